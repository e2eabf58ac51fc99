"""Micro-batches handed over and brought back by the short way: the same rows and errors as by PySpark's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from lockstep.runtime.spark.batches import collected, collected_up_to, for_each_batch

EVERY_KIND = """
    s string, b boolean, i int, l bigint, d double, c decimal(12, 3), t timestamp, day date, raw binary,
    list array<int>, pair struct<x: int, y: string>, m map<string, bigint>
"""


def _short(frame: DataFrame) -> object:
    return collected(frame, to_arrow_schema(frame.schema, timezone="UTC"))


def _bounded(frame: DataFrame, rows_max: int) -> pa.Table | None:
    return collected_up_to(frame, to_arrow_schema(frame.schema, timezone="UTC"), rows_max)


def test_the_short_way_brings_what_pyspark_brings(session: SparkSession) -> None:
    kinds = session.createDataFrame([], EVERY_KIND).schema
    numbers = session.range(500, numPartitions=3)
    columns = [_made(field.name, field.dataType.simpleString()) for field in kinds.fields]
    frame = numbers.select(*columns)
    assert [field.dataType.simpleString() for field in frame.schema] == [
        field.dataType.simpleString() for field in kinds
    ]
    assert _short(frame) == frame.toArrow()
    assert _short(frame.limit(0)) == frame.limit(0).toArrow()
    assert _bounded(frame, 500) == frame.toArrow()
    assert _bounded(frame.limit(0), 500) == frame.limit(0).toArrow()


def _made(name: str, kind: str) -> object:
    """A column of a kind with a null in every third row, made from the number of the row."""
    number = sf.col("id")
    values = {
        "timestamp": sf.timestamp_seconds(number),
        "date": sf.date_add(sf.lit("2026-01-01").cast("date"), number.cast("int")),
        "binary": number.cast("string").cast("binary"),
        "array<int>": sf.array(number.cast("int"), sf.lit(None)),
        "struct<x:int,y:string>": sf.struct(
            sf.when(number % 5 != 0, number.cast("int")).alias("x"),
            sf.when(number % 5 != 1, number.cast("string")).alias("y"),
        ),
        "map<string,bigint>": sf.create_map(number.cast("string"), number),
        "boolean": number % 2 == 0,
    }
    value = values.get(kind, number.cast(kind))
    return sf.when(number % 3 != 0, value).alias(name)


def test_what_fails_in_a_batch_fails_here(session: SparkSession) -> None:
    frame = session.range(10).select((sf.lit(1) / (sf.col("id") - 5)).alias("x"))
    for bring in (_short, lambda frame: _bounded(frame, 100)):
        with pytest.raises((PySparkException, Py4JJavaError), match="DIVIDE_BY_ZERO"):
            bring(frame)


def test_of_more_rows_than_may_come_only_that_is_known_and_few_are_made(session: SparkSession) -> None:
    made = session.sparkContext.accumulator(0)

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made.add(batch.num_rows)
            yield batch

    frame = session.range(3_000_000, numPartitions=3).mapInArrow(counted, "id bigint")
    assert _bounded(frame, 100) is None
    assert made.value < 600_000, "every task stops soon after its row 101"
    assert _bounded(session.range(101, numPartitions=2), 100) is None
    assert _bounded(session.range(100, numPartitions=2), 100) is not None


def test_every_batch_is_handed_over_and_an_error_ends_the_query(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.csv").write_text(f"{number}\n", encoding="utf-8")
    frame = session.readStream.schema("n int").option("maxFilesPerTrigger", 1).csv(str(tmp_path / "in"))
    seen: list[tuple[int, list[int]]] = []

    def on_batch(batch: DataFrame, number: int) -> None:
        seen.append((number, _short(batch).column("n").to_pylist()))  # type: ignore[attr-defined]
        if number == 2:
            raise ValueError("a batch that is not wanted")

    writer = for_each_batch(frame, on_batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    with pytest.raises(PySparkException, match="a batch that is not wanted"):
        query.awaitTermination(60)
    assert [number for number, _ in seen] == [0, 1, 2]
    assert sorted(n for _, rows in seen for n in rows) == [0, 1, 2]


def test_neither_way_makes_spark_forget_where_the_query_was_started(session: SparkSession) -> None:
    context = session.sparkContext
    context.setLocalProperty("callSite.short", "somewhere")
    try:
        frame = session.range(3)
        _short(frame)
        _short(frame.mapInArrow(lambda batches: batches, "id bigint"))
        assert context.getLocalProperty("callSite.short") == "somewhere"
    finally:
        context.setLocalProperty("callSite.short", None)
