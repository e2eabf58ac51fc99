"""A job with all kinds of state, in two stages; and what it has to publish, computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa

from lockstep.plan.schema import parse_schema
from lockstep.store.journal import open_journal

JOB = "numbers"
KEYS = 7
WINDOW_S = 100
TEXT = f"""
import lockstep as ls
from lockstep import F

job = ls.Job("numbers")
numbers = job.source("numbers", ls.journal("numbers", schema="seq bigint"))
timed = numbers.select("seq", k="seq % {KEYS}", at=F.timestamp_seconds("seq")).event_time("at", idle_after=None)
summed = timed.key_by("k").fold(0, lambda total, row: total + row.seq, schema="total bigint")
summed.to(ls.files("out/totals"), name="totals")
windows = timed.key_by("k").window(ls.tumbling("{WINDOW_S} seconds")).agg(total=F.sum("seq"))
windows.key_by("k").agg(windows=F.count("*"), most=F.max("total")).to(ls.files("out/windows"), name="windows")
"""


def feed(home: Path, numbers: range) -> None:
    """Have the job read these numbers."""
    journal = open_journal(home, "numbers", parse_schema("seq bigint"))
    journal.append(pa.table({"seq": pa.array(numbers, pa.int64())}))
    journal.close()


def newest(rows: list[dict[str, int]], growing: str) -> dict[int, dict[str, int]]:
    """The last update of each key; ``growing`` is a column that every update of a key makes larger."""
    last: dict[int, dict[str, int]] = {}
    for row in rows:
        before = last.get(row["k"])
        assert before is None or before[growing] < row[growing], "an update that came twice, or out of order"
        last[row["k"]] = row
    return last


def expected_totals(limit: int) -> dict[int, dict[str, int]]:
    """What the last updates of the sums have to be."""
    return {key: {"k": key, "total": sum(range(key, limit, KEYS))} for key in range(KEYS)}


def expected_windows(limit: int) -> dict[int, dict[str, int]]:
    """What the last updates about windows have to be, once all are closed."""
    sums: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for number in range(limit):
        sums[number % KEYS][number // WINDOW_S] += number
    return {key: {"k": key, "windows": len(those), "most": max(those.values())} for key, those in sums.items()}
