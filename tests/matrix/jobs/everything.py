"""A bit of everything in one job: the life of this one is a part of every run of the tests."""

from __future__ import annotations

from typing import Any

import lockstep as ls
from lockstep import F
from tests.matrix.case import Case, Expected, Given, Row
from tests.matrix.clock import watermarks
from tests.matrix.inputs import events
from tests.matrix.jobs import ends, joins, processes, rolling, windows
from tests.matrix.jobs.windows import LATE_S, VALUES, timed


def _tripled(record: Row) -> Row:
    return {"k": record["k"], "triple": None if record["n"] is None else 3 * record["n"]}


def everything(_: Given) -> ls.Job:
    """A Python function, a join, windows, a process function with state and timers, rolling results, keyed sinks."""
    job = ls.Job("everything")
    source = timed(job)
    source.map(_tripled, schema="k string, triple bigint").to(ls.files("out/tripled"), name="tripled")
    narrow = source.select("k", "n", "at", name="narrow")
    sides: dict[str, Any] = {"on": "k", "how": "full", "suffixes": ("_l", "_r")}
    between = (f"{joins.LOWER_S} seconds", f"{joins.UPPER_S} seconds")
    low, high = narrow.filter("n < 10", name="low"), narrow.filter("n >= 1", name="high")
    low.join(high, between=between, **sides).to(ls.files("out/near"), name="near")
    by_key = source.key_by("k")
    tumbling = by_key.window(ls.tumbling("10 seconds", offset="3 seconds")).agg(**VALUES)
    tumbling.to(ls.files("out/windows"), name="windows")
    schema = "k string, tag string, at timestamp, count bigint"
    kept = by_key.process(processes.Keeper(), schema=processes.KEPT, side_outputs={"timers": schema}, name="keeper")
    kept.to(ls.files("out/kept"), name="kept")
    kept.side("timers").to(ls.files("out/timers"), name="timers")
    by_key.agg(n=F.count("*"), total=F.sum("n"), least=F.min("big"), most=F.max("big"), money=F.sum("x")).to(
        ls.sqlite("out/k.db", table="totals", key="k"), name="newest"
    )
    narrow.to(ls.sqlite("out/k.db", table="by_time", key="k"), name="by_time")
    return job


def everything_expected(given: Given) -> Expected:
    """What the references of the other jobs say."""
    records = list(given.records())
    passed = watermarks(given, {"events": LATE_S})
    low = [(epoch, row) for epoch, row in records if row["n"] is not None and row["n"] < 10]
    high = [(epoch, row) for epoch, row in records if row["n"] is not None and row["n"] >= 1]
    states = processes.states_expected(given)
    return {
        "tripled": [(epoch, *_tripled(row).values()) for epoch, row in records],
        "near": [row for rows in joins.near_rows(low, high, passed) for row in rows],
        "windows": windows.native_expected(given)["tumbled"],
        "kept": states["kept"],
        "timers": states["timers"],
        "newest": rolling.native_expected(given)["newest"],
        "by_time": ends.keyed_expected(given)["by_time"],
    }


CASES = [Case("a bit of everything", "everything", everything, events, everything_expected)]
