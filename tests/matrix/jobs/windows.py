"""Windows that Spark computes by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import lockstep as ls
from lockstep import F
from tests.matrix.case import Case, Expected, Given, Inputs, Row, Rows
from tests.matrix.clock import NEVER_US, first_epoch, idle_watermarks, micros, watermarks
from tests.matrix.inputs import SCHEMA, epochs_of, events
from tests.matrix.jobs.rolling import most, total

LATE_S, IDLE_S = 3, 2
SECOND = 1_000_000
GAP_US = 3 * SECOND
VALUES: dict[str, Any] = {"n": F.count("*"), "total": F.sum("n"), "most": F.max("big"), "money": F.sum("x")}
Bounds = tuple[int, int]


def timed(job: ls.Job) -> ls.Stream:
    """The usual source by event time."""
    source = job.source("events", ls.journal("events", schema=SCHEMA))
    return source.event_time("at", out_of_order=f"{LATE_S} seconds", idle_after=None)


def native(_: Given) -> ls.Job:
    """Tumbling, sliding and session windows with one final result each."""
    job = ls.Job("windows")
    source = timed(job)
    by_key = source.key_by("k")
    tumbling = by_key.window(ls.tumbling("10 seconds", offset="3 seconds")).agg(**VALUES, name="tumbling")
    tumbling.to(ls.files("out/tumbling"), name="tumbled")
    tumbling.to(ls.sqlite("out/tumbling.db", table="tumbling", key=("k", "window_start")), name="by_window")
    by_key.window(ls.sliding("10 seconds", every="5 seconds")).agg(**VALUES, name="sliding").to(
        ls.files("out/sliding", format="jsonl"), name="slid"
    )
    by_key.window(ls.session("3 seconds")).agg(**VALUES, name="session").to(ls.files("out/sessions"), name="sessions")
    source.window(ls.tumbling("1 day")).agg(n=F.count("*")).to(ls.files("out/days"), name="days")
    by_key.window(ls.tumbling("10 seconds", offset="3 seconds")).sum("n", money="x", name="sums").to(
        ls.files("out/sums"), name="summed"
    )
    return job


def native_expected(given: Given) -> Expected:
    """A window comes out when event time has passed its end; late is what would have been over an epoch before."""
    tumbled = _regular(given, lambda at: _starting(at, 10, 10, 3))
    days = [(e, *bounds, row[0]) for e, _, *bounds, row in _windows(given, lambda at: _starting(at, 86_400, 86_400, 0))]
    per_day: dict[tuple[int, Any, Any], int] = defaultdict(int)
    for epoch, start, end, rows in days:
        per_day[epoch, start, end] += rows
    return {
        "tumbled": tumbled,
        "by_window": [(given.end, *row[1:]) for row in tumbled],
        "slid": _regular(given, lambda at: _starting(at, 10, 5, 0)),
        "sessions": _sessions(given),
        "days": [(*key, count) for key, count in per_day.items()],
        "summed": [(*row[:4], row[5], row[7]) for row in tumbled],
    }


def _starting(at_us: int, size_s: int, every_s: int, offset_s: int) -> list[Bounds]:
    """The windows that a time is in."""
    last = at_us - (at_us - offset_s * SECOND) % (every_s * SECOND)
    starts = range(last, at_us - size_s * SECOND, -every_s * SECOND)
    return [(start, start + size_s * SECOND) for start in starts]


def utc(us: int) -> datetime:
    """As a time."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def summed(rows: list[Row]) -> tuple[Any, ...]:
    """What the jobs here compute of a window."""
    columns = {name: [row[name] for row in rows] for name in ("n", "big", "x")}
    return len(rows), total(columns["n"]), most(columns["big"]), total(columns["x"])


def _windows(given: Given, windows_of: Callable[[int], list[Bounds]], passed: Sequence[int] | None = None) -> list[Any]:
    """(epoch, key, start, end, results) of every window with records that came in time."""
    passed = passed or watermarks(given, {"events": LATE_S})
    held: dict[tuple[Any, Bounds], list[Row]] = defaultdict(list)
    closes: dict[tuple[Any, Bounds], int] = {}
    for epoch, row in given.records():
        late_us = passed[epoch - 1] if epoch else NEVER_US
        for bounds in windows_of(micros(row["at"])) if row["at"] is not None else []:
            if bounds[1] > late_us:
                held[row["k"], bounds].append(row)
                closes[row["k"], bounds] = first_epoch(passed, bounds[1], epoch)
    # A record that comes in the epoch in which its window closes is still in it; one that comes after opens it anew.
    return [
        (closes[key, bounds], key, utc(bounds[0]), utc(bounds[1]), summed(rows)) for (key, bounds), rows in held.items()
    ]


def _regular(given: Given, windows_of: Callable[[int], list[Bounds]]) -> Rows:
    return [(epoch, key, start, end, *values) for epoch, key, start, end, values in _windows(given, windows_of)]


def _sessions(given: Given) -> Rows:
    """Records of a key that follow each other within the gap; a session closes with its epoch."""
    passed = watermarks(given, {"events": LATE_S})
    live: dict[Any, list[Row]] = defaultdict(list)
    results: Rows = []
    for epoch in range(given.end + 2):
        late_us = passed[epoch - 1] if epoch else NEVER_US
        records = given.inputs["events"][epoch] if epoch < given.end else []
        for row in records:
            if row["at"] is not None and micros(row["at"]) + GAP_US > late_us:
                live[row["k"]].append(row)
        for key, rows in live.items():
            for run in _runs(rows):
                end_us = micros(run[-1]["at"]) + GAP_US
                if end_us <= passed[epoch]:
                    results.append((epoch, key, run[0]["at"], utc(end_us), *summed(run)))
                    live[key] = [row for row in live[key] if not any(row is one for one in run)]
    return results


def _runs(rows: list[Row]) -> list[list[Row]]:
    runs: list[list[Row]] = []
    for row in sorted(rows, key=lambda one: micros(one["at"])):
        if runs and micros(row["at"]) - micros(runs[-1][-1]["at"]) <= GAP_US:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def updates(_: Given) -> ls.Job:
    """Windows that tell after every epoch how they stand."""
    job = ls.Job("window-updates")
    by_key = timed(job).key_by("k")
    shifted = by_key.window(ls.tumbling("10 seconds", offset="3 seconds")).updates().agg(**VALUES)
    shifted.to(ls.files("out/updates"), name="updates")
    return job


def updates_expected(given: Given) -> Expected:
    """Each window after each epoch that has added to it."""
    passed = watermarks(given, {"events": LATE_S})
    held: dict[tuple[Any, Bounds], list[Row]] = defaultdict(list)
    results: Rows = []
    for epoch, records in enumerate(given.inputs["events"]):
        touched = set()
        for row in records:
            for bounds in _starting(micros(row["at"]), 10, 10, 3) if row["at"] is not None else []:
                if bounds[1] > (passed[epoch - 1] if epoch else NEVER_US):
                    held[row["k"], bounds].append(row)
                    touched.add((row["k"], bounds))
        results += [(epoch, key, utc(bounds[0]), utc(bounds[1]), *summed(held[key, bounds])) for key, bounds in touched]
    return {"updates": results}


def idle(_: Given) -> ls.Job:
    """A source that is quiet at times: windows close nevertheless."""
    job = ls.Job("idle")
    source = job.source("events", ls.journal("events", schema=SCHEMA))
    timed = source.event_time("at", out_of_order=f"{LATE_S} seconds", idle_after=f"{IDLE_S} seconds")
    windows = timed.key_by("k").window(ls.tumbling("5 seconds")).agg(**VALUES)
    windows.to(ls.files("out/windows"), name="windows")
    timed.to(ls.files("out/raw"), name="raw")
    return job


def with_pauses(chance: Random, epochs: int) -> Inputs:
    """Two stretches of epochs without records."""
    made = epochs_of(chance, epochs)
    return {"events": [[] if 3 <= epoch % 7 < 7 else rows for epoch, rows in enumerate(made)]}


def idle_expected(given: Given) -> Expected:
    """As before, with the clock of an idle source."""
    passed = idle_watermarks(given, LATE_S, IDLE_S)
    windows = _windows(given, lambda at: _starting(at, 5, 5, 0), passed)
    return {
        "windows": [(epoch, key, start, end, *values) for epoch, key, start, end, values in windows],
        "raw": [(epoch, *row.values()) for epoch, row in given.records()],
    }


CASES = [
    Case("idle source", "windows", idle, with_pauses, idle_expected),
    Case("Spark's windows", "windows", native, events, native_expected),
    Case("updates of windows", "windows", updates, events, updates_expected),
]
