"""A job for executors: state, a Python function, rows to files; and what it has to publish, computed without Spark."""

from __future__ import annotations

JOB = "numbers"
LIMIT = 12_000
KEYS = 7
_TEXT = """
import lockstep as ls
from lockstep import F

job = ls.Job("numbers")
numbers = job.source("numbers", ls.rate(400, limit={limit}))
keyed = numbers.map(lambda row: {{"k": row["seq"] % {keys}, "seq": row["seq"]}}, schema="k bigint, seq bigint")
keyed.key_by("k").agg(n=F.count("*"), total=F.sum("seq")).to(ls.files("out"), name="out")
"""


def text(limit: int) -> str:
    """The job's file."""
    return _TEXT.format(limit=limit, keys=KEYS)


def newest(rows: list[list[int]]) -> dict[int, tuple[int, int]]:
    """The last update of each key, of rows of key, count and total: counts only grow."""
    last: dict[int, tuple[int, int]] = {}
    for key, count, total in rows:
        assert key not in last or last[key][0] < count, "an update that came twice, or out of order"
        last[key] = count, total
    return last


def expected(limit: int) -> dict[int, tuple[int, int]]:
    """What the last updates have to be."""
    numbers = {key: range(key, limit, KEYS) for key in range(KEYS)}
    return {key: (len(those), sum(those)) for key, those in numbers.items()}
