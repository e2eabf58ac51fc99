"""Event time by partition: what an epoch saw of each, and a watermark that the records do not move."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from lockstep.compile.hidden_columns import EVENT_TIME, MARK, PARTITION_NUMBER

OBSERVED_PARTITIONS = "partitions"
_DELAY = "spark.watermarkDelayMs"
"""What Spark writes into the metadata of an event-time column, and knows it by."""
_CLOCK = "__clock"
_TIME_BITS = 48
"""Milliseconds of nearly nine thousand years; Spark's watermark counts in them too. 15 bits are left for partitions."""
_BEGIN_MS = -(1 << _TIME_BITS - 1)


def watched_by_marks(timed: DataFrame, mark: SparkColumn, delay_ms: int) -> DataFrame:
    """A frame whose watermark follows the mark rows alone: records of the fastest partition must not move it.

    So the node that Spark looks at has a column of its own, and the event time is labelled as Spark would have done it.
    """
    clock = sf.when(sf.col(MARK).isNotNull(), mark).otherwise(sf.timestamp_micros(sf.lit(0)))
    watched = timed.withColumn(_CLOCK, clock).withWatermark(_CLOCK, f"{delay_ms} milliseconds")
    kept = [sf.col(f"`{name}`") for name in timed.columns if name != EVENT_TIME]
    return watched.select(*kept, sf.col(EVENT_TIME).alias(EVENT_TIME, metadata={_DELAY: delay_ms}))


def newest_by_partition() -> SparkColumn:
    """The highest event time of each partition in an epoch, each as one number (:func:`partition_times`).

    Spark has no aggregate that keeps a value for each key. A set of pairs does: an epoch is what a replica computes in
    a second or two, and a pair is no larger than a number. What leaves Spark is one pair for each partition.
    """
    time_ms = sf.unix_millis(sf.col(EVENT_TIME)) - sf.lit(_BEGIN_MS)
    pair = sf.shiftleft(sf.col(PARTITION_NUMBER).cast("bigint"), _TIME_BITS) + time_ms
    pairs = sf.sort_array(sf.collect_set(sf.when(sf.col(MARK).isNull(), pair)))
    # As the variable of a function it is collected once, however often it is used.
    return sf.transform(sf.array(pairs), _last_of_each).getItem(0).alias(OBSERVED_PARTITIONS)


def _last_of_each(pairs: SparkColumn) -> SparkColumn:
    after = sf.concat(sf.slice(pairs, sf.lit(2), sf.size(pairs)), sf.array(sf.lit(-1).cast("bigint")))
    last = sf.zip_with(pairs, after, lambda one, next_: sf.when(_partition(one) != _partition(next_), one))
    return sf.filter(last, lambda one: one.isNotNull())


def _partition(pair: SparkColumn) -> SparkColumn:
    return sf.shiftright(pair, _TIME_BITS)


def partition_times(pairs: Iterable[int]) -> dict[str, int]:
    """What an epoch saw of event time, in microseconds, by partition.

    >>> partition_times([(3 << 48) + (1 << 47) + 5])
    {'3': 5000}
    """
    found = (divmod(pair, 1 << _TIME_BITS) for pair in pairs)
    return {str(partition): (time_ms + _BEGIN_MS) * 1000 for partition, time_ms in found}
