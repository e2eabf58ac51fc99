"""Queries in SQL over random input in several epochs, against DuckDB on (nearly) the same queries."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lockstep as ls
from lockstep.errors import LockstepError
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial

Row = dict[str, Any]
DAY = datetime(2026, 3, 1, tzinfo=UTC)
EPOCHS = 2
LOGINS = pa.schema(
    [
        ("user", pa.string()),
        ("ok", pa.bool_()),
        ("ms", pa.int64()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
CLICKS = pa.schema([("user", pa.string()), ("page", pa.string()), ("at", pa.timestamp("us", "UTC"))])

ROLLING = """
    SELECT l.user AS who, count(*) AS n, count(*) FILTER (WHERE ok) AS good, max(ms) - min(ms) AS spread,
           sum({price}) AS money, sum(ms) / count(*) AS mean
    FROM logins AS l WHERE user <> 'end' GROUP BY user
"""
PLAIN = """
    SELECT upper(user) AS who, CASE WHEN ms > 0 THEN 'it''s late' WHEN ms IS NULL THEN '?' ELSE 'early' END AS kind,
           ms % 7 AS rest, coalesce(ms, 0) BETWEEN -10 AND 10 AS small
    FROM (SELECT * FROM logins WHERE ok) AS fine WHERE price > 100
"""
WINDOWS = """
    WITH known AS (SELECT user AS who, ms, at AS happened FROM logins WHERE user <> 'end')
    SELECT who, {start} AS began, count(*) AS n, avg(ms) AS mean FROM known
    GROUP BY who, {window} HAVING count(*) > 1 AND coalesce(max(ms), 1) > 0
"""
UNITED = "SELECT user, 'login' AS what FROM logins UNION ALL SELECT user, page FROM clicks WHERE page IS NOT NULL"
JOINED = """
    SELECT l.user, l.ms, c.page, c.user AS clicker FROM logins AS l LEFT JOIN clicks AS c
    ON l.user = c.user AND c.at BETWEEN l.at - INTERVAL 3 SECONDS AND l.at + INTERVAL 2 SECONDS AND c.page <> 'b'
    WHERE l.user <> 'end'
"""

SLID = """
    WITH slid AS (SELECT user AS who, {bounds}, max(ms) AS most, count(*) AS n
                  FROM {logins} WHERE user <> 'end' GROUP BY user, {window}),
         ranked AS (SELECT *, row_number() OVER (PARTITION BY window_start, window_end
                                                 ORDER BY most NULLS LAST, n, who) AS place FROM slid)
    SELECT place, who, window_start, window_end, most FROM ranked WHERE place < 3 AND n > 1
"""


def _epoch(chance: random.Random, epoch: int) -> dict[str, list[Row]]:
    def at() -> datetime:
        return DAY + timedelta(milliseconds=round(1000 * (epoch * 10 + chance.uniform(-8, 10))))

    users = [None, "", "ann", "bob", "eve"]
    return {
        "logins": [
            {
                "user": chance.choice(users),
                "ok": chance.choice([None, True, False]),
                "ms": chance.choice([None, *range(-30, 30)]),
                "price": chance.choice([None, chance.randrange(0, 100_000) / 100]),
                "at": at(),
            }
            for _ in range(40)
        ],
        "clicks": [
            {"user": chance.choice(users), "page": chance.choice([None, "a", "b", "c"]), "at": at()} for _ in range(25)
        ],
    }


def _input() -> list[dict[str, list[Row]]]:
    """Random epochs, then one so much later that every window and every bound of a join has passed."""
    chance = random.Random(5)
    end = {"user": "end", "ok": None, "ms": None, "price": None, "page": None, "at": DAY + timedelta(hours=1)}
    last = {"logins": [_only(end, LOGINS)], "clicks": [_only(end, CLICKS)]}
    return [*(_epoch(chance, number) for number in range(EPOCHS)), last]


def _only(row: Row, schema: pa.Schema) -> Row:
    return {name: row[name] for name in schema.names}


def _database(epochs: list[dict[str, list[Row]]]) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, schema in (("logins", LOGINS), ("clicks", CLICKS)):
        rows = [_only(row, schema) for epoch in epochs for row in epoch[name]]
        database.register(f"given_{name}", pa.Table.from_pylist(rows, schema))
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
    return database


def _answer(database: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    # DuckDB takes a bare `user` for the current one and `at` for a keyword, and has no plural units.
    made = re.sub(r"\b(user|at)\b", r'"\1"', query).replace("SECONDS", "SECOND")
    return sorted(database.execute(made).fetchall(), key=repr)


def _rows(ran: Trial, path: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in ran.rows(path)), key=repr)


def _latest(ran: Trial, path: str, key: str) -> list[tuple[Any, ...]]:
    """The last update of each key."""
    newest = {row[key]: row for epoch in range(EPOCHS + 1) for row in ran.rows(path, epoch)}
    return sorted((tuple(row.values()) for row in newest.values()), key=repr)


def _job() -> ls.Job:
    job = ls.Job("queries")
    schema = "user string, ok boolean, ms bigint, price double, at timestamp"
    job.source("logins", ls.journal("logins", schema=schema)).event_time("at", out_of_order="20 seconds")
    clicks = ls.journal("clicks", schema="user string, page string, at timestamp")
    job.source("clicks", clicks).event_time("at", out_of_order="20 seconds")
    job.sql(ROLLING.format(price="price")).to(ls.files("rolling"))
    job.sql(PLAIN).to(ls.files("plain"))
    tumbling = WINDOWS.format(start="window.start", window="window(happened, '10 seconds')")
    job.sql(tumbling).to(ls.files("windows"))
    job.sql(UNITED).to(ls.files("united"))
    job.sql(JOINED).to(ls.files("joined"))
    return job


def test_queries_of_one_job_give_what_duckdb_gives(trial: NewTrial) -> None:
    epochs, ran = _input(), trial(_job())
    ran.start(partitions=1)
    for records in epochs:
        ran.epoch(1.0, **records)
    ran.run(1)
    database = _database(epochs)
    money = ROLLING.format(price="price::DECIMAL(18, 2)").replace("AS money", "::DOUBLE AS money")
    bucket = "time_bucket(INTERVAL 10 SECOND, happened)"
    assert _latest(ran, "rolling", "who") == _answer(database, money)
    assert _rows(ran, "plain") == _answer(database, PLAIN)
    assert _rows(ran, "windows") == _answer(database, WINDOWS.format(start=bucket, window=bucket))
    assert _rows(ran, "united") == _answer(database, UNITED)
    assert _rows(ran, "joined") == _answer(database, JOINED)
    assert all(ran.rows(path) for path in ("rolling", "plain", "windows", "united", "joined"))


def test_the_first_rows_of_windows_that_overlap_are_those_that_duckdb_numbers(trial: NewTrial) -> None:
    job, epochs = ls.Job("ranked"), _input()
    schema = "user string, ok boolean, ms bigint, price double, at timestamp"
    job.source("logins", ls.journal("logins", schema=schema)).event_time("at", out_of_order="20 seconds")
    window = "window(at, '10 seconds', '5 seconds')"
    job.sql(SLID.format(bounds="window_start, window_end", logins="logins", window=window)).to(ls.files("ranked"))
    ran = trial(job)
    ran.start(partitions=2)
    for records in epochs:
        ran.epoch(1.0, logins=records["logins"])
    ran.run(6)
    slid = (
        "(SELECT *, time_bucket(INTERVAL 5 SECOND, at) - back * INTERVAL 5 SECOND AS s FROM logins, range(2) r(back))"
    )
    bounds = "s AS window_start, s + INTERVAL 10 SECOND AS window_end"
    expected = _answer(_database(epochs), SLID.format(bounds=bounds, logins=slid, window="s"))
    assert _rows(ran, "ranked") == expected
    assert len(expected) > 5


@pytest.mark.parametrize("call", ["try_sum(ms)", "mode(ms)", "regr_count(ms, ms)"])
def test_what_the_reading_of_a_query_lets_through_spark_does_not(trial: NewTrial, call: str) -> None:
    job = ls.Job("refused")
    job.source("logins", ls.journal("logins", schema="user string, ms bigint"))
    with pytest.raises(LockstepError):
        job.sql(f"SELECT user, {call} AS x FROM logins GROUP BY user").to(ls.files("out"))
