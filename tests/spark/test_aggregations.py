"""Aggregations over random input in many epochs, against DuckDB."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

import lockstep as ls
from lockstep import F
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial

Row = dict[str, Any]
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "user string, n bigint, price double, ok boolean, at timestamp"
ARROW = pa.schema(
    [
        ("epoch", pa.int64()),
        ("user", pa.string()),
        ("n", pa.int64()),
        ("price", pa.float64()),
        ("ok", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
EPOCHS = 6
EMPTY = (3,)
OUT_OF_ORDER_S = 5


def _epoch(chance: random.Random, epoch: int) -> list[Row]:
    """Records around ``epoch`` times ten seconds, some of them late, some far too late, some without key or value."""
    if epoch in EMPTY:
        return []
    return [
        {
            "user": chance.choice([None, "", "ann", "bob", "eve"]),
            "n": chance.choice([None, *range(-50, 50)]),
            "price": chance.choice([None, chance.randrange(0, 1_000_000) / 100]),
            "ok": chance.choice([None, True, False]),
            "at": DAY
            + timedelta(
                milliseconds=round(1000 * (epoch * 10 + chance.uniform(0, 10) - chance.choice([0, 0, 0, 4, 35])))
            ),
        }
        for _ in range(60)
    ]


def _input(seed: int) -> list[list[Row]]:
    chance = random.Random(seed)
    return [_epoch(chance, epoch) for epoch in range(EPOCHS)]


def _run(trial: Trial, epochs: list[list[Row]], partitions: int) -> None:
    trial.start(partitions=partitions)
    for records in epochs:
        trial.epoch(events=records)


def _database(epochs: list[list[Row]]) -> duckdb.DuckDBPyConnection:
    records = pa.Table.from_pylist([{"epoch": e, **row} for e, rows in enumerate(epochs) for row in rows], ARROW)
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("given", records)
    database.execute("CREATE TABLE records AS SELECT * FROM given")
    return database


def _answer(database: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return sorted(database.execute(query).fetchall(), key=repr)


def _published(trial: Trial, path: str, columns: list[str]) -> list[tuple[Any, ...]]:
    rows = [(epoch, *(row[name] for name in columns)) for epoch in range(EPOCHS + 1) for row in trial.rows(path, epoch)]
    return sorted(rows, key=repr)


def test_a_rolling_aggregation_gives_each_epoch_the_new_totals_of_the_keys_it_touched(trial: NewTrial) -> None:
    job = ls.Job("rolling")
    events = job.source("events", ls.journal("events", schema=SCHEMA, partitions=2))
    events.key_by("user").agg(
        records=F.count("*"),
        counted=F.count("n"),
        total=F.sum("n"),
        mean=F.avg("n"),
        money=F.sum("price"),
        least=F.min("n"),
        latest=F.max("at"),
        good=F.count_if("ok"),
        all_good=F.bool_and("ok"),
        bits=F.bit_xor("n"),
        numbers=F.collect_set("n"),
    ).to(ls.files("out"))
    epochs, ran = _input(seed=11), trial(job)
    _run(ran, epochs, partitions=2)
    ran.run(1)
    wanted = _answer(
        _database(epochs),
        """
        SELECT now.epoch, now.user, count(*), count(n), sum(n)::BIGINT, avg(n),
               sum(price::DECIMAL(18, 2))::DOUBLE, min(n), max("at"), count_if(ok), bool_and(ok), bit_xor(n),
               list_sort(coalesce(list(DISTINCT n) FILTER (n IS NOT NULL), []))
        FROM (SELECT DISTINCT epoch, "user" FROM records) AS now
        JOIN records AS r ON r.epoch <= now.epoch AND r.user IS NOT DISTINCT FROM now.user
        GROUP BY now.epoch, now.user
        """,
    )
    columns = [
        *("user", "records", "counted", "total", "mean", "money", "least", "latest"),
        *("good", "all_good", "bits", "numbers"),
    ]
    assert _published(ran, "out", columns) == wanted


WINDOWS = """
WITH clock AS (
    -- An epoch is computed with the highest event time of the epochs before it, less the allowed disorder.
    SELECT e.epoch, coalesce((SELECT max("at") FROM records r WHERE r.epoch < e.epoch), 'epoch'::TIMESTAMPTZ)
                    - INTERVAL {disorder} SECOND AS passed
    FROM range({epochs}) AS e(epoch)
), assigned AS (
    SELECT r.*, begin, begin + INTERVAL {size} SECOND AS finish
    FROM records r, LATERAL (
        SELECT time_bucket(INTERVAL {every} SECOND, r."at") - INTERVAL {every} SECOND * back AS begin
        FROM range({overlap}) AS b(back)
    ) WHERE begin + INTERVAL {size} SECOND > r."at"
), in_time AS (
    -- Too late is what belongs to a window that an earlier epoch has closed.
    SELECT a.* FROM assigned a
    WHERE NOT EXISTS (SELECT 1 FROM clock c WHERE c.epoch < a.epoch AND c.passed >= a.finish)
), closed AS (
    SELECT finish, (SELECT min(epoch) FROM clock c WHERE c.passed >= finish) AS epoch
    FROM (SELECT DISTINCT finish FROM in_time)
)
SELECT c.epoch, {keys} begin, t.finish, count(*), sum(n)::BIGINT, sum(price::DECIMAL(18, 2))::DOUBLE
FROM in_time t JOIN closed c ON c.finish = t.finish WHERE c.epoch IS NOT NULL
GROUP BY c.epoch, {keys} begin, t.finish
"""


def test_windows_hold_what_came_in_time_and_close_in_the_epoch_that_time_passes_them(trial: NewTrial) -> None:
    job = ls.Job("windows")
    events = job.source("events", ls.journal("events", schema=SCHEMA, partitions=2)).event_time(
        "at", out_of_order=f"{OUT_OF_ORDER_S} seconds"
    )
    values: dict[str, Any] = {"records": F.count("*"), "total": F.sum("n"), "money": F.sum("price")}
    events.key_by("user").window(ls.tumbling("10 seconds")).agg(**values).to(ls.files("tumbling"))
    events.key_by("user").window(ls.sliding("20 seconds", every="5 seconds")).agg(**values).to(ls.files("sliding"))
    events.window(ls.tumbling("30 seconds")).agg(**values).to(ls.files("unkeyed"))
    epochs, ran = _input(seed=12), trial(job)
    _run(ran, epochs, partitions=1)
    ran.run(1)
    database = _database(epochs)
    common = {"disorder": OUT_OF_ORDER_S, "epochs": EPOCHS + 1}
    columns = ["window_start", "window_end", "records", "total", "money"]
    late = "SELECT count(*) FROM records"
    for path, keys, size, every in (
        ("tumbling", "t.user,", 10, 10),
        ("sliding", "t.user,", 20, 5),
        ("unkeyed", "", 30, 30),
    ):
        query = WINDOWS.format(**common, keys=keys, size=size, every=every, overlap=size // every)
        wanted = _answer(database, query)
        assert _published(ran, path, ["user", *columns] if keys else columns) == wanted, path
        assert len(wanted) > 10 or path == "unkeyed"
    counted = sum(row["records"] for row in ran.rows("tumbling"))
    assert 0 < counted < database.execute(late).fetchall()[0][0], "some records have to be late, or this tests little"


def test_a_window_may_follow_python_functions_behind_event_time(trial: NewTrial) -> None:
    job = ls.Job("mapped-windows")
    events = job.source("events", ls.journal("events", schema="user string, at timestamp"))
    (
        events.event_time("at")
        .map(_shouted, schema="user string")
        .flat_map(_twice, schema="user string")
        .key_by("user")
        .window(ls.tumbling("10 seconds"))
        .agg(records=F.count("*"))
        .to(ls.files("out"))
    )
    ran = trial(job)
    ran.start()
    ran.epoch(
        events=[
            {"user": user, "at": DAY + timedelta(seconds=s)} for user, s in (("a", 1), ("b", 2), ("a", 9), ("a", 12))
        ]
    )
    ran.epoch()
    found = {(row["user"], row["window_start"], row["records"]) for row in ran.rows()}
    assert found == {("A", DAY, 4), ("B", DAY, 2)}


def _shouted(record: Any) -> Row:
    return {"user": record.user.upper()}


def _twice(record: Any) -> list[Any]:
    return [record, record]
