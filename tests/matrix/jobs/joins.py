"""Joins of two streams, with a table, and co-groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

import lockstep as ls
from lockstep.plan.joins import JoinKind, JoinWindow
from tests.matrix.case import Case, Expected, Given, Row, Rows
from tests.matrix.clock import MILLISECOND_US, first_epoch, micros, watermarks
from tests.matrix.inputs import SCHEMA, only, two_sides
from tests.matrix.jobs.windows import utc

KINDS: tuple[JoinKind, ...] = get_args(JoinKind)
LATE_S = {"left": 2, "right": 5}
LOWER_S, UPPER_S = -3, 6
SECOND = 1_000_000
Numbered = tuple[int, int, Row]
"""The number of a record, its epoch, and itself."""


def _sides(job: ls.Job) -> tuple[ls.Stream, ls.Stream]:
    left, right = (
        job.source(side, ls.journal(side, schema=SCHEMA)).event_time(
            "at", out_of_order=f"{late_s} seconds", idle_after=None, name=f"{side}_time"
        )
        for side, late_s in LATE_S.items()
    )
    return left.select("k", "n", "at", name="narrow_left"), right.select("k", "n", "at", name="narrow_right")


def intervals(_: Given) -> ls.Job:
    """An interval join of each kind."""
    job = ls.Job("intervals")
    left, right = _sides(job)
    between = (f"{LOWER_S} seconds", f"{UPPER_S} seconds")
    for kind in KINDS:
        joined = left.join(_other(right, kind), on="k", how=kind, between=between, **_named(kind))
        joined.to(ls.files(f"out/{kind}"), name=f"{kind}_rows")
    return job


def _other(right: ls.Stream, kind: JoinKind) -> ls.Stream:
    """The inner join has names of its own on the right and needs no suffixes."""
    return right.select("k", m="n", then="at", name="renamed") if kind == "inner" else right


def _named(kind: JoinKind) -> dict[str, Any]:
    return {"name": f"{kind}_join", "suffixes": None if kind == "inner" else ("_l", "_r")}


def intervals_expected(given: Given) -> Expected:
    """Pairs of both sides."""
    left, right = (list(given.records(side)) for side in LATE_S)
    inner, lonely_left, lonely_right = near_rows(left, right, watermarks(given, LATE_S))
    return {
        "inner_rows": inner,
        "left_rows": inner + lonely_left,
        "right_rows": inner + lonely_right,
        "full_rows": inner + lonely_left + lonely_right,
    }


def near_rows(
    all_left: Sequence[tuple[int, Row]], all_right: Sequence[tuple[int, Row]], passed: Sequence[int]
) -> tuple[Rows, Rows, Rows]:
    """Pairs come out with their second record, a record alone when event time has passed its last chance."""
    left, right = _in_time(all_left, passed), _in_time(all_right, passed)
    pairs = [
        (one, other)
        for one in left
        for other in right
        if one[2]["k"] is not None
        and one[2]["k"] == other[2]["k"]
        and LOWER_S * SECOND <= micros(other[2]["at"]) - micros(one[2]["at"]) <= UPPER_S * SECOND
    ]
    inner: Rows = [
        (max(one[1], other[1]), one[2]["k"], *only(one[2], "n", "at"), *only(other[2], "n", "at"))
        for one, other in pairs
    ]
    paired_left, paired_right = {one[0] for one, _ in pairs}, {other[0] for _, other in pairs}
    lonely_left: Rows = [
        (_after(passed, epoch, row, UPPER_S), row["k"], *only(row, "n", "at"), None, None)
        for number, epoch, row in left
        if number not in paired_left
    ]
    lonely_right: Rows = [
        (_after(passed, epoch, row, -LOWER_S), row["k"], None, None, *only(row, "n", "at"))
        for number, epoch, row in right
        if number not in paired_right
    ]
    return inner, lonely_left, lonely_right


def _in_time(records: Sequence[tuple[int, Row]], passed: Sequence[int]) -> list[Numbered]:
    """Late is what is older than the time that the epoch before had reached."""
    return [
        (number, epoch, row)
        for number, (epoch, row) in enumerate(records)
        if row["at"] is not None and (epoch == 0 or micros(row["at"]) >= passed[epoch - 1])
    ]


def _after(passed: Sequence[int], epoch: int, row: Row, wait_s: int) -> int:
    # Event time has passed it by a millisecond: that is how fine Spark counts.
    return first_epoch(passed, micros(row["at"]) + wait_s * SECOND + MILLISECOND_US, epoch, beyond=True)


TEN, TWENTY = ls.tumbling("10 seconds"), ls.sliding("20 seconds", every="10 seconds")
BONUSES = {"ann": [1, 2], "bob": [3], "nobody": [4]}


def in_windows(_: Given) -> ls.Job:
    """Window joins of each kind, over both kinds of windows."""
    job = ls.Job("window-joins")
    left, right = _sides(job)
    windows: dict[str, JoinWindow] = {"inner": TEN, "left": TEN, "right": TEN, "full": TWENTY}
    for kind in KINDS:
        joined = left.join(_other(right, kind), on="k", how=kind, window=windows[kind], **_named(kind))
        joined.to(ls.files(f"out/{kind}"), name=f"{kind}_rows")
    return job


def in_windows_expected(given: Given) -> Expected:
    """Pairs within a window come out with their second record, a record alone when the window is over."""
    ten, twenty = (_window_rows(given, size_s, LATE_BY_ONE) for size_s in (10, 20))
    inner, lonely_left, lonely_right = ten
    return {
        "inner_rows": inner,
        "left_rows": inner + lonely_left,
        "right_rows": inner + lonely_right,
        "full_rows": [row for rows in twenty for row in rows],
    }


LATE_BY_ONE, LATE_AT_ONCE = 1, 0
"""Spark's joins still take what the epoch itself makes late; steps in Python do not."""


def _assigned(given: Given, side: str, size_s: int, grace: int) -> list[tuple[int, int, int, Row]]:
    """(number, epoch, beginning of the window, record), without what is late; windows begin every ten seconds."""
    passed = watermarks(given, LATE_S)
    found = []
    for number, (epoch, row) in enumerate(given.records(side)):
        if row["at"] is None:
            continue
        last = micros(row["at"]) // (10 * SECOND) * 10 * SECOND
        for start in range(last, micros(row["at"]) - size_s * SECOND, -10 * SECOND):
            if epoch < grace or passed[epoch - grace] < start + size_s * SECOND:
                found.append((number, epoch, start, row))
    return found


def _window_rows(given: Given, size_s: int, grace: int) -> tuple[Rows, Rows, Rows]:
    passed = watermarks(given, LATE_S)
    left, right = (_assigned(given, side, size_s, grace) for side in LATE_S)
    pairs = [
        (one, other)
        for one in left
        for other in right
        if one[3]["k"] is not None and one[3]["k"] == other[3]["k"] and one[2] == other[2]
    ]

    def window(one: tuple[int, int, int, Row]) -> tuple[Any, ...]:
        return one[3]["k"], utc(one[2]), utc(one[2] + size_s * SECOND)

    def closes(one: tuple[int, int, int, Row]) -> int:
        return first_epoch(passed, one[2] + size_s * SECOND, one[1])

    inner: Rows = [
        (max(one[1], other[1]), *window(one), *only(one[3], "n", "at"), *only(other[3], "n", "at"))
        for one, other in pairs
    ]
    paired = {(side, one[0], one[2]) for pair in pairs for side, one in enumerate(pair)}
    lonely_left: Rows = [
        (closes(one), *window(one), *only(one[3], "n", "at"), None, None)
        for one in left
        if (0, one[0], one[2]) not in paired
    ]
    lonely_right: Rows = [
        (closes(one), *window(one), None, None, *only(one[3], "n", "at"))
        for one in right
        if (1, one[0], one[2]) not in paired
    ]
    return inner, lonely_left, lonely_right


def _gathered(key: Any, left: list[Any], right: list[Any], window: Any) -> list[Row]:
    return [{"k": key.k, "start": window.start, "lefts": len(left), "rights": [one.n for one in right]}]


def _tables(folder: Path) -> list[Any]:
    """The same rows as a file of each format."""
    rows = [(key, one) for key, all_ in BONUSES.items() for one in all_]
    schema = "key string, bonus bigint"
    (folder / "bonuses.csv").write_text("\n".join(["key,bonus", *(f"{key},{one}" for key, one in rows)]))
    (folder / "bonuses.jsonl").write_text("".join(f'{{"key": "{key}", "bonus": {one}}}\n' for key, one in rows))
    columns = {"key": [key for key, _ in rows], "bonus": [one for _, one in rows]}
    pq.write_table(pa.table(columns), folder / "bonuses.parquet")
    texts = [ls.table(folder / f"bonuses.{format}", schema=schema) for format in ("csv", "jsonl")]
    return [*texts, ls.table(folder / "bonuses.parquet")]


def with_tables(given: Given) -> ls.Job:
    """A table on the right, and both streams gathered by key and window."""
    tables = _tables(given.folder)
    job = ls.Job("tables")
    left, right = _sides(job)
    left.join(tables[0], on={"k": "key"}, name="bonus").to(ls.files("out/inner"), name="inner_rows")
    left.join(tables[1], on={"k": "key"}, how="left", name="looked_up").to(ls.files("out/left"), name="left_rows")
    named = right.with_columns(bonus="n").join(tables[2], on={"k": "key"}, suffixes=("_own", ""), name="suffixed")
    named.select("k", "bonus_own", "bonus").to(ls.files("out/suffixed"), name="suffixed_rows")
    grouped = left.key_by("k").co_group(right.key_by("k")).window(TEN)
    schema = "k string, start timestamp, lefts bigint, rights array<bigint>"
    grouped.apply(_gathered, schema=schema).to(ls.files("out/gathered"), name="gathered")
    return job


def with_tables_expected(given: Given) -> Expected:
    """Each record with every row of its key; windows with what both sides have."""
    rows = [(epoch, only(row, "k", "n", "at")) for epoch, row in given.records("left")]
    inner: Rows = [(epoch, *row, bonus) for epoch, row in rows for bonus in BONUSES.get(row[0], [])]
    alone: Rows = [(epoch, *row, None) for epoch, row in rows if row[0] not in BONUSES]
    right = [(epoch, row["k"], row["n"]) for epoch, row in given.records("right")]
    return {
        "inner_rows": inner,
        "left_rows": inner + alone,
        "suffixed_rows": [(epoch, k, n, bonus) for epoch, k, n in right for bonus in BONUSES.get(k, [])],
        "gathered": _gathered_rows(given),
    }


def _gathered_rows(given: Given) -> Rows:
    passed = watermarks(given, LATE_S)
    sides = [_assigned(given, side, 10, LATE_AT_ONCE) for side in LATE_S]
    windows = {(one[3]["k"], one[2]) for side in sides for one in side}
    found: Rows = []
    for key, start in windows:
        left, right = ([one for one in side if (one[3]["k"], one[2]) == (key, start)] for side in sides)
        closes = first_epoch(passed, start + 10 * SECOND, 0)
        ordered = sorted(right, key=lambda one: (micros(one[3]["at"]), one[1], one[0]))
        found.append((closes, key, utc(start), len(left), [one[3]["n"] for one in ordered]))
    return found


CASES: list[Case] = [
    Case("interval joins", "joins", intervals, two_sides, intervals_expected),
    Case("window joins", "joins", in_windows, two_sides, in_windows_expected),
    Case("tables and co-groups", "joins", with_tables, two_sides, with_tables_expected),
]
