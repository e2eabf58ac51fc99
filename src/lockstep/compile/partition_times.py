"""Event time by partition: what an epoch saw of each, and a watermark that the records do not move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from lockstep.compile.hidden_columns import EVENT_TIME, MARK, PARTITION_NUMBER

PARTITIONS_WITH_COLUMN = 32
_BEYOND = "partitions_beyond"
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


def newest_by_partition() -> list[SparkColumn]:
    """The highest event time of each partition in an epoch; :func:`partition_times` reads them.

    Spark has no aggregate that keeps a value for each key, so the first partitions have a column each. Those beyond
    share a set of pairs, as numbers: it costs much more (four seconds for a million records, where a column each costs
    a fifth of one), but holds for any number of partitions. What leaves Spark is one pair for each of them.
    """
    is_record, time_ms = sf.col(MARK).isNull(), sf.unix_millis(sf.col(EVENT_TIME))
    number = sf.col(PARTITION_NUMBER)
    each = [
        sf.max(sf.when(is_record & (number == one), time_ms)).alias(_column(one))
        for one in range(PARTITIONS_WITH_COLUMN)
    ]
    # Times beyond what the bits hold count as the last one that they do.
    bounded_ms = sf.least(sf.greatest(time_ms, sf.lit(_BEGIN_MS)), sf.lit(-_BEGIN_MS - 1))
    pair = sf.shiftleft(number.cast("bigint"), _TIME_BITS) + bounded_ms - sf.lit(_BEGIN_MS)
    pairs = sf.sort_array(sf.collect_set(sf.when(is_record & (number >= PARTITIONS_WITH_COLUMN), pair)))
    # As the variable of a function it is collected once, however often it is used.
    return [*each, sf.transform(sf.array(pairs), _last_of_each).getItem(0).alias(_BEYOND)]


def _last_of_each(pairs: SparkColumn) -> SparkColumn:
    after = sf.concat(sf.slice(pairs, sf.lit(2), sf.size(pairs)), sf.array(sf.lit(-1).cast("bigint")))
    last = sf.zip_with(pairs, after, lambda one, next_: sf.when(_partition(one) != _partition(next_), one))
    return sf.filter(last, lambda one: one.isNotNull())


def _partition(pair: SparkColumn) -> SparkColumn:
    return sf.shiftright(pair, _TIME_BITS)


def _column(partition: int) -> str:
    return f"partition_{partition}"


def partition_times(observed: Mapping[str, Any]) -> dict[str, int]:
    """What an epoch saw of event time, in microseconds, by partition: only those that had records.

    >>> partition_times({"partition_3": 5, "partitions_beyond": [(70 << 48) + (1 << 47) + 6]})
    {'3': 5000, '70': 6000}
    """
    columns = ((one, observed.get(_column(one))) for one in range(PARTITIONS_WITH_COLUMN))
    found = {str(one): time_ms * 1000 for one, time_ms in columns if time_ms is not None}
    beyond = (divmod(pair, 1 << _TIME_BITS) for pair in observed.get(_BEYOND, ()))
    return found | {str(one): (time_ms + _BEGIN_MS) * 1000 for one, time_ms in beyond}
