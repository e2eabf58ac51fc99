"""Event time by partition inside Spark. Journals stand for topics here: they need no broker."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as sf

import lockstep as ls
from lockstep import F
from lockstep.compile.hidden_columns import EVENT_TIME, MARK, PARTITION_NUMBER
from lockstep.compile.partition_times import newest_by_partition, partition_times
from lockstep.plan import event_times
from lockstep.testing.trial import Trial
from tests.spark.conftest import NewTrial
from tests.spark.harness import START_US

Row = dict[str, Any]
BEGIN_US = START_US - 5_000_000_000
"""Long ago: event time is not taken beyond the clock."""
START = datetime.fromtimestamp(BEGIN_US / 1e6, UTC)
HOUR_S = 3600
WINDOW_S = 10


@pytest.fixture(autouse=True)
def journals_go_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_times, "BY_PARTITION_KINDS", frozenset({"journal"}))


def _job() -> ls.Job:
    job = ls.Job("partitions")
    events = job.source("events", ls.journal("events", schema="user string, n bigint, at timestamp", partitions=2))
    events.select("n").to(ls.files("all"), name="all")
    kept = events.flat_map(lambda one: [one], schema="user string, n bigint, at timestamp")
    timed = kept.event_time("at", idle_after="5 seconds").key_by("user")
    window = ls.tumbling(f"{WINDOW_S} seconds")
    timed.window(window).agg(n=F.count("*"), total=F.sum("n")).to(ls.files("out"), name="windows")
    timed.window(window).top(1, by="n").to(ls.files("tops"), name="tops")
    return job


def _sent(number: int) -> tuple[list[Row], list[Row]]:
    """The records of an epoch: those of the first partition happened an hour after those of the second."""
    seconds = [4 * number + part for part in range(4)]
    fast = [{"user": "fast", "n": second, "at": START + timedelta(seconds=HOUR_S + second)} for second in seconds]
    slow = [{"user": "slow", "n": second, "at": START + timedelta(seconds=second)} for second in seconds]
    return fast, slow


def _windows(rows: list[Row]) -> Counter[tuple[str, int, int, int]]:
    """User, start, count and sum: plain Python."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        second = int((row["at"] - START).total_seconds())
        found.setdefault((row["user"], second // WINDOW_S * WINDOW_S), []).append(row["n"])
    return Counter((*key, len(values), sum(values)) for key, values in found.items())


def _published(ran: Trial) -> Counter[tuple[str, int, int, int]]:
    return Counter(
        (row["user"], int((row["window_start"] - START).total_seconds()), row["n"], row["total"]) for row in ran.rows()
    )


def test_a_partition_an_hour_behind_has_no_late_records_and_a_restart_forgets_nothing(trial: NewTrial) -> None:
    ran = trial(_job())
    replica = ran.start()
    sent: list[Row] = []
    watermarks = []
    for number in range(10):
        if number in (4, 7):
            ran.stop()
            replica = ran.start()
        fast, slow = _sent(number)
        ran.put("events", fast, 0)
        ran.put("events", slow, 1)
        sent += [*fast, *slow]
        ran.run(1)
        watermarks.append(replica.watermark_ms)
    # The highest of the slower partition, as the epoch before was sealed with it.
    assert watermarks == [0, 0] + [BEGIN_US // 1000 + 1000 * (4 * number - 5) for number in range(2, 10)]
    assert {user for user, *_ in _published(ran)} == {"slow"}
    ran.run(9)
    wanted = _windows(sent)
    assert _published(ran) == wanted
    tops = Counter((row["user"], row["n"]) for row in ran.rows("tops"))
    assert len(tops) == len(wanted)
    assert max(n for user, n in tops if user == "slow") == 39
    assert len(ran.rows("all")) == len(sent)


def test_a_join_over_partitions_that_are_apart_finds_every_pair(trial: NewTrial) -> None:
    job = ls.Job("pairs")
    schema = "n bigint, at timestamp"
    left, right = (
        job.source(name, ls.journal(name, schema=schema, partitions=2)).event_time(
            "at", idle_after="5 seconds", name=f"{name}_time"
        )
        for name in ("left", "right")
    )
    pairs = left.join(right, on="n", between=("0 seconds", "2 seconds"), how="left", suffixes=("", "_right"))
    pairs.select("n", "at", "at_right").to(ls.files("out"), name="pairs")
    ran = trial(job)
    ran.start()
    for number in range(6):
        for partition, behind_s in ((0, 0), (1, HOUR_S)):
            at = START + timedelta(seconds=HOUR_S + 3 * number - behind_s)
            key = 10 * number + partition
            ran.put("left", [{"n": key, "at": at}], partition)
            if number % 2:
                ran.put("right", [{"n": key, "at": at + timedelta(seconds=1)}], partition)
        ran.run(1)
    ran.run(9)
    found = {row["n"]: row["at_right"] is not None for row in ran.rows()}
    assert found == {10 * number + partition: bool(number % 2) for number in range(6) for partition in range(2)}
    assert len(ran.rows()) == len(found)


def test_the_highest_time_of_each_partition_is_seen_however_many_there_are(session: SparkSession) -> None:
    draw = random.Random(7)
    rows: list[tuple[int, int | None, bool]] = [
        (draw.randrange(60), draw.randrange(-(10**12), 2 * 10**12), draw.random() < 0.1) for _ in range(3_000)
    ]
    rows += [(0, None, False), (59, None, False)]
    given = session.createDataFrame(rows, f"{PARTITION_NUMBER} int, ms bigint, is_mark boolean").select(
        PARTITION_NUMBER,
        sf.timestamp_millis("ms").alias(EVENT_TIME),
        sf.when(sf.col("is_mark"), sf.lit(1)).alias(MARK),
    )
    seen = Observation()
    given.observe(seen, *newest_by_partition()).select(sf.count("*")).collect()
    expected: dict[str, int] = {}
    for partition, ms, is_mark in rows:
        if ms is not None and not is_mark:
            expected[str(partition)] = max(expected.get(str(partition), ms * 1000), ms * 1000)
    assert partition_times(seen.get) == expected
    assert len(expected) == 60
