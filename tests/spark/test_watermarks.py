"""Event time: the plan keeps filters above the watermark, restarts do not move it, quiet sources do not stop it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from tests.spark.conftest import NewTrial
from tests.spark.harness import START_US, optimized_plan

Row = dict[str, Any]
START = datetime.fromtimestamp(START_US / 1e6, UTC)
SCHEMA = "user string, at timestamp"


def _at(*seconds: float, user: str = "ann") -> list[Row]:
    return [{"user": user, "at": START + timedelta(seconds=second)} for second in seconds]


def test_the_optimizer_leaves_the_filters_above_the_watermark_and_time_moves_on_records_filtered_away(
    trial: NewTrial,
) -> None:
    job = ls.Job("filters")
    events = job.source("events", ls.journal("events", schema=SCHEMA)).event_time("at", out_of_order="5 seconds")
    kept = events.filter(F.col("user") == "kept", name="kept_only")
    kept.window(ls.tumbling("10 seconds")).agg(records=F.count("*")).to(ls.files("out"))
    ran = trial(job)
    replica = ran.start()
    ran.epoch(events=[*_at(1, user="kept"), *_at(200, user="dropped")])
    ran.epoch()
    plan = optimized_plan(replica)
    above, below = re.split(r"^.*EventTimeWatermark.*$", plan, maxsplit=1, flags=re.MULTILINE)
    assert "Filter" in above and "__mark" in above and "kept" in above
    assert "Filter" not in below, plan
    assert replica.watermark_ms == _ms(195)
    assert [row["records"] for row in ran.rows()] == [1]


def _two_sources() -> ls.Job:
    job = ls.Job("two-sources")
    streams = [
        job.source(name, ls.journal(name, schema=SCHEMA))
        .filter("user <> 'nobody'")
        .event_time("at", out_of_order="2 seconds", idle_after="6 seconds", name=f"{name}_time")
        for name in ("left", "right")
    ]
    united = streams[0].union(streams[1])
    united.key_by("user").window(ls.tumbling("5 seconds")).agg(records=F.count("*")).to(ls.files("out"))
    return job


TWO_SOURCES: list[dict[str, list[Row]]] = [
    {"left": _at(1, 4), "right": _at(2)},
    {"left": _at(12), "right": _at(3, 8)},
    # The right source is quiet: it holds time back, and in the epoch after this one it is idle.
    {"left": _at(9, 21, user="bob")},
    {"left": _at(24)},
    # The faster source is quiet: a replica that forgot how far it had come would let time stand still.
    {"right": _at(16)},
    {"left": _at(36), "right": _at(30)},
    {},
]
WATERMARKS_S = [None, 0, 6, 6, 12, 14, 28]
"""The slower source's highest event time before each epoch, less 2 seconds. 12 is 14 less 2, and 14 is the mark of the
idle source: the clock's 16, less 2."""


def _ms(seconds: float) -> int:
    return START_US // 1000 + round(seconds * 1000)


QUIET = frozenset({2, 4, 5})
"""Where a source is quiet, and the one after: what a replica that starts again does not see in the records."""


@pytest.mark.parametrize(
    "starts", [QUIET, pytest.param(frozenset(range(len(TWO_SOURCES))), marks=pytest.mark.long)], ids=["quiet", "every"]
)
def test_a_replica_that_starts_again_has_the_watermarks_and_output_of_one_that_never_does(
    trial: NewTrial, starts: frozenset[int]
) -> None:
    restarted = trial(_two_sources())
    replica = restarted.start()
    watermarks = []
    for epoch, records in enumerate(TWO_SOURCES):
        if epoch in starts:
            restarted.stop()
            replica = restarted.start()
        restarted.epoch(4, **records)
        watermarks.append(replica.watermark_ms)
    assert watermarks == [0 if seconds is None else _ms(seconds) for seconds in WATERMARKS_S]
    closed = [
        (epoch, sorted(((row["window_start"] - START).seconds, row["user"], row["records"]) for row in rows))
        for epoch in range(len(TWO_SOURCES))
        if (rows := restarted.rows(epoch=epoch))
    ]
    # Each window in the epoch whose watermark is the first to pass its end.
    assert closed == [
        (2, [(0, "ann", 4)]),
        (4, [(5, "ann", 1), (5, "bob", 1)]),
        (6, [(10, "ann", 1), (15, "ann", 1), (20, "ann", 1), (20, "bob", 1)]),
    ]


@pytest.mark.long
def test_a_source_that_goes_quiet_stops_holding_windows_open(trial: NewTrial) -> None:
    job = ls.Job("quiet")
    streams = {}
    for name, idle in (("left", "5 seconds"), ("right", "5 seconds")):
        streams[name] = job.source(name, ls.journal(name, schema=SCHEMA)).event_time(
            "at", idle_after=idle, name=f"{name}_time"
        )
    streams["left"].union(streams["right"]).window(ls.tumbling("5 seconds")).agg(records=F.count("*")).to(
        ls.files("out")
    )
    ran = trial(job)
    ran.start()
    ran.epoch(left=_at(1), right=_at(1))
    for second in range(3, 18, 3):
        ran.epoch(3, left=_at(second - 1, second, second + 1))
    found = [(row["window_start"], row["records"]) for row in ran.rows()]
    # The left source has 1 to 4, 5 to 9, ...; the right one a single record, and nothing ever after.
    assert found[:2] == [(START, 5), (START + timedelta(seconds=5), 5)]


def test_heartbeats_alone_close_the_last_window_and_do_not_make_the_first_records_late(trial: NewTrial) -> None:
    job = ls.Job("heartbeats")
    events = job.source("events", ls.journal("events", schema=SCHEMA)).event_time("at", idle_after="3 seconds")
    events.window(ls.tumbling("5 seconds")).agg(records=F.count("*")).to(ls.files("out"))
    ran = trial(job)
    ran.start()
    # Three minutes without a record: event time has not begun, so what comes first may be of any age.
    ran.run(3, seconds=60)
    ran.epoch(events=_at(1, 2))
    ran.run(4, seconds=2)
    assert [row["records"] for row in ran.rows()] == [2]


def test_without_idleness_a_window_waits_for_its_source(trial: NewTrial) -> None:
    job = ls.Job("patient")
    events = job.source("events", ls.journal("events", schema=SCHEMA)).event_time("at", idle_after=None)
    events.window(ls.tumbling("5 seconds")).agg(records=F.count("*")).to(ls.files("out"))
    ran = trial(job)
    ran.start()
    ran.epoch(events=_at(1, 2))
    ran.run(3, seconds=1000)
    assert ran.rows() == []
    ran.epoch(events=_at(6))
    ran.epoch()
    assert [row["records"] for row in ran.rows()] == [2]
