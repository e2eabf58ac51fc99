"""Statistics, distinct values, percentiles, the best of a window and windows over windows: replicas of two shapes
against DuckDB."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lockstep as ls
from lockstep import F
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial

Row = dict[str, Any]
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "carrier string, tail string, delay bigint, x double, y double, at timestamp"
EPOCHS, PARTITIONS, PER_PARTITION = 2, 2, 20

NATIVE = {
    "tails": (F.count_distinct("tail"), "count(DISTINCT tail)"),
    "pairs": (F.count_distinct("tail", "delay"), "count(DISTINCT (tail, delay)) FILTER (tail <> '' AND delay < 99)"),
    "middle": (F.median("delay"), "median(delay::DOUBLE)"),
    "high": (F.percentile("x", 0.9), "quantile_cont(x, 0.9)"),
    "about": (F.approx_count_distinct("tail"), "count(DISTINCT tail)"),
}
OWN = {
    "spread": (F.stddev("x"), "stddev_samp(x)"),
    "square": (F.var_pop("delay"), "var_pop(delay)"),
    "sample": (F.variance("x"), "var_samp(x)"),
    "together": (F.corr("x", "y"), "CASE WHEN isfinite(corr(x, y)) THEN corr(x, y) END"),
    "common": (F.covar_samp("x", "y"), "covar_samp(x, y)"),
}
QUERY = """
    SELECT carrier, window_start, count(DISTINCT tail) AS tails, max_by(tail, delay) AS worst, stddev(x) AS spread,
           median(delay) AS middle, percentile(x, 0.9) AS high, var_samp(y) FILTER (WHERE delay > 0) AS late
    FROM flights GROUP BY carrier, window(at, '10 seconds')
"""
PARTS = (
    "SELECT carrier, window_start, window_end, count(*) AS n FROM flights GROUP BY carrier, window(at, '10 seconds')"
)
LARGER = "SELECT window_start, window_end, sum(n) AS n FROM parts GROUP BY window({over}, '20 seconds')"


def _input() -> list[list[list[Row]]]:
    chance = random.Random(3)

    def row(epoch: int) -> Row:
        return {
            "carrier": chance.choice([None, "aa", "dl"]),
            "tail": chance.choice([None, "n1", "n2", "n3", "n4"]),
            "delay": chance.choice([None, 0, 5, 5, 30, -3]),
            "x": chance.choice([None, 0.0, -0.0, chance.randrange(10**6) / 1000]),
            "y": chance.choice([None, 100 + chance.randrange(100) / 8]),
            "at": DAY + timedelta(seconds=epoch * 10 + chance.randrange(20)),
        }

    return [[[row(epoch) for _ in range(PER_PARTITION)] for _ in range(PARTITIONS)] for epoch in range(EPOCHS)]


def _job() -> ls.Job:
    job = ls.Job("statistics")
    flights = job.source("flights", ls.journal("flights", schema=SCHEMA, partitions=PARTITIONS))
    timed = flights.event_time("at", out_of_order="30 seconds")
    native, own = ([value.alias(name) for name, (value, _) in table.items()] for table in (NATIVE, OWN))
    timed.key_by("carrier").agg(*native, name="native").to(ls.files("native"))
    timed.key_by("carrier").agg(*native, *own, per_record=True, name="each").to(ls.files("each"))
    timed.key_by("carrier").window(ls.session("3 seconds")).agg(*native, name="session").to(ls.files("sessions"))
    timed.key_by("carrier").window(ls.tumbling("10 seconds")).top(2, by="delay").to(ls.files("top"))
    job.sql(QUERY).to(ls.files("windows"))
    return job


def _windows_over_windows() -> ls.Job:
    job = ls.Job("over")
    flights = job.source("flights", ls.journal("flights", schema=SCHEMA, partitions=PARTITIONS))
    flights.event_time("at", out_of_order="30 seconds")
    job.sql(PARTS, name="parts")
    for over in ("window_start", "window_end"):
        job.sql(LARGER.format(over=over), name=over).to(ls.files(over))
    return job


def _database(epochs: list[list[list[Row]]]) -> duckdb.DuckDBPyConnection:
    """All records, with the order of their positions."""
    rows = [
        {**row, "place": partition * 1000 + epoch * PER_PARTITION + place}
        for epoch, parts in enumerate(epochs)
        for partition, part in enumerate(parts)
        for place, row in enumerate(part)
    ]
    kinds = [("carrier", pa.string()), ("tail", pa.string()), ("delay", pa.int64()), ("x", pa.float64())]
    kinds += [("y", pa.float64()), ("at", pa.timestamp("us", "UTC")), ("place", pa.int64())]
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("given", pa.Table.from_pylist(rows, pa.schema(kinds)))
    database.execute('CREATE TABLE flights AS SELECT *, time_bucket(INTERVAL 10 SECOND, "at") AS bucket FROM given')
    return database


def _asked(database: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return sorted(database.execute(query).fetchall(), key=repr)


def _assert_near(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    """The same rows, but for the last digits of DuckDB's floats."""
    assert len(found) == len(wanted) > 0
    for one, two in zip(sorted(found, key=_exact), sorted(wanted, key=_exact), strict=True):
        for a, b in zip(one, two, strict=True):
            same = a == b or (isinstance(a, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
            assert same, (one, two)


def _exact(row: tuple[Any, ...]) -> str:
    return repr([value for value in row if not isinstance(value, float)])


def _rows(ran: Trial, path: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in ran.rows(path)]


def _newest(ran: Trial, path: str) -> list[tuple[Any, ...]]:
    newest = {row["carrier"]: row for epoch in range(EPOCHS) for row in ran.rows(path, epoch)}
    return [tuple(row.values()) for row in newest.values()]


@pytest.mark.long
def test_statistics_are_those_of_duckdb_and_the_same_in_replicas_of_other_shapes(trial: NewTrial) -> None:
    epochs, ran = _input(), trial(_job())
    ran.start("narrow", partitions=1, tasks=1)
    ran.start("wide", partitions=3, tasks=3)
    _feed(ran, epochs, more=2)
    _check(ran, _database(epochs))
    for epoch in range(EPOCHS + 2):
        digests = ran.digests(epoch)
        for sink in {sink for _, sink in digests}:
            assert digests["narrow", sink] == digests["wide", sink], (epoch, sink)


def _feed(ran: Trial, epochs: list[list[list[Row]]], *, more: int) -> None:
    """The records epoch by epoch, then two that are so much later that every window has passed, and more epochs."""
    for epoch in epochs:
        for partition, rows in enumerate(epoch):
            ran.put("flights", rows, partition)
        ran.run(1)
    end = {"carrier": "end", "at": DAY + timedelta(hours=1)}
    for partition in range(PARTITIONS):
        ran.put("flights", [end], partition)
    ran.run(more)


def _check(ran: Trial, database: duckdb.DuckDBPyConnection) -> None:
    native, own = (", ".join(sql for _, sql in table.values()) for table in (NATIVE, OWN))
    _assert_near(_newest(ran, "native"), _asked(database, f"SELECT carrier, {native} FROM flights GROUP BY 1"))
    # After the last record of a key a result per record is that of all records.
    _assert_near(_newest(ran, "each"), _asked(database, f"SELECT carrier, {native}, {own} FROM flights GROUP BY 1"))
    sessions = f"""
        WITH starts AS (SELECT *, coalesce("at" > lag("at") OVER w + INTERVAL 3 SECOND, true) AS is_new FROM flights
                        WINDOW w AS (PARTITION BY carrier ORDER BY "at")),
             numbered AS (SELECT *, sum(is_new::INT) OVER (PARTITION BY carrier ORDER BY "at") AS number FROM starts)
        SELECT carrier, min("at"), max("at") + INTERVAL 3 SECOND, {native} FROM numbered GROUP BY carrier, number
    """
    _assert_near(_rows(ran, "sessions"), _asked(database, sessions))
    _assert_near(_rows(ran, "top"), _asked(database, TOP))
    worst = '(list(tail ORDER BY delay DESC, "at", place) FILTER (delay IS NOT NULL))[1]'
    middle = QUERY.replace("max_by(tail, delay)", worst).replace("median(delay)", "median(delay::DOUBLE)")
    windows = middle.replace("percentile(x", "quantile_cont(x").replace("window_start", "bucket")
    _assert_near(_rows(ran, "windows"), _asked(database, windows.replace("window(at, '10 seconds')", "bucket")))


def test_windows_over_windows_go_by_the_column_that_they_name(trial: NewTrial) -> None:
    epochs, ran = _input(), trial(_windows_over_windows())
    ran.start(partitions=1)
    # Event time goes through two stages, three epochs later in the second.
    _feed(ran, epochs, more=7)
    database = _database(epochs)
    for path, end in (("window_start", "bucket"), ("window_end", "bucket + INTERVAL 10 SECOND")):
        larger = f"time_bucket(INTERVAL 20 SECOND, {end})"
        wanted = _asked(
            database, f"SELECT {larger}, {larger} + INTERVAL 20 SECOND, count(*) FROM flights GROUP BY 1, 2"
        )
        assert sorted(_rows(ran, path), key=repr) == wanted, path


TOP = """
    SELECT carrier, bucket, bucket + INTERVAL 10 SECOND, rank, tail, delay, x, y, "at" FROM (
        SELECT *, row_number() OVER (PARTITION BY carrier, bucket ORDER BY delay DESC, "at", place) AS rank
        FROM flights WHERE delay IS NOT NULL
    ) WHERE rank <= 2
"""
