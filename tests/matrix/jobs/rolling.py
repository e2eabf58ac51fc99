"""Rolling results by key: Spark's own, and those that run in Python; distinct records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import lockstep as ls
from lockstep import F
from tests.matrix.case import Case, Expected, Given, Row, Rows
from tests.matrix.clock import micros, watermarks
from tests.matrix.inputs import SCHEMA, events, only

LATE_S = 3
WITHIN_S = 5
SECOND = 1_000_000


def total(values: list[Any]) -> Any:
    """A sum as SQL has it: of nothing it is null. Floats are added up exactly, and rounded once."""
    known = [value for value in values if value is not None]
    if known and isinstance(known[0], float):
        return float(sum(Decimal(repr(value)) for value in known))
    return sum(known) if known else None


def least(values: list[Any]) -> Any:
    """The smallest that is known."""
    return min((value for value in values if value is not None), default=None)


def most(values: list[Any]) -> Any:
    """The largest that is known."""
    return max((value for value in values if value is not None), default=None)


def native(_: Given) -> ls.Job:
    """Updates of sums, into a sink that keeps all of them and into one that keeps the newest."""
    job = ls.Job("rolling")
    source = job.source("events", ls.journal("events", schema=SCHEMA, partitions=2))
    totals = source.key_by("k").agg(
        n=F.count("*"), total=F.sum("n"), least=F.min("big"), most=F.max("big"), money=F.sum("x")
    )
    totals.to(ls.files("out/totals"), name="totals")
    quick = source.key_by("k").agg(total=F.sum(F.col("n").cast("double")), exact_floats=False, name="quick")
    quick.to(ls.files("out/quick"), name="quick_totals")
    totals.to(ls.sqlite("out/totals.db", table="totals", key="k"), name="newest")
    return job


def native_expected(given: Given) -> Expected:
    """After each epoch, every key that it has touched."""
    history: dict[Any, list[Row]] = defaultdict(list)
    updates: Rows = []
    quick: Rows = []
    newest: dict[Any, tuple[Any, ...]] = {}
    for epoch, records in enumerate(given.inputs["events"]):
        for row in records:
            history[row["k"]].append(row)
        for key in {row["k"] for row in records}:
            rows = history[key]
            bigs, numbers = [row["big"] for row in rows], [row["n"] for row in rows]
            values = (key, len(rows), total(numbers), least(bigs), most(bigs), total([row["x"] for row in rows]))
            updates.append((epoch, *values))
            quick.append((epoch, key, None if values[2] is None else float(values[2])))
            newest[key] = values
    return {"totals": updates, "quick_totals": quick, "newest": [(given.end, *values) for values in newest.values()]}


def _longer(one: Any, two: Any) -> Any:
    return {**one.asdict(), "n": (one.n or 0) + (two.n or 0), "at": two.at}


def _said(words: str, record: Any) -> str:
    return f"{words}{record.n},"


def by_record(_: Given) -> ls.Job:
    """Rolling results in Python: after each record or each epoch, in the order of event time."""
    job = ls.Job("by-record")
    source = job.source("events", ls.journal("events", schema=SCHEMA))
    timed = source.event_time("at", out_of_order=f"{LATE_S} seconds", idle_after=None)
    by_key = timed.key_by("k")
    by_key.agg(total=F.sum("x"), last=F.last("big"), per_record=True).to(ls.files("out/each"), name="each")
    by_key.max_by("n").to(ls.files("out/largest"), name="largest")
    by_key.min_by("n", per_record=True).to(ls.files("out/smallest"), name="smallest")
    by_key.reduce(_longer, per_record=True).to(ls.files("out/reduced"), name="reduced")
    by_key.reduce(_longer, name="put_together").to(ls.files("out/together"), name="together")
    by_key.fold("", _said, schema="said string", per_record=True, name="telling").to(ls.files("out/told"), name="told")
    folded = by_key.fold("", _said, schema="said string")
    folded.to(ls.files("out/folded"), name="folded")
    folded.to(ls.sqlite("out/folded.db", table="folded", key="k"), name="newest_fold")
    once = timed.distinct("k", within=f"{WITHIN_S} seconds")
    once.select("k", "n", "at").to(ls.files("out/once"), name="once")
    newest = timed.dedup("k", keep="last", within=f"{WITHIN_S} seconds")
    newest.select("k", "n", "at").to(ls.files("out/newest"), name="newest")
    by_key.top(2, by="n").select("k", "rank", "n", "at").to(ls.files("out/best"), name="best")
    return job


def in_order(records: list[Row]) -> list[Row]:
    """As a keyed step sees the records of an epoch: by event time, those without one first; then by position."""
    return sorted(records, key=lambda row: (row["at"] is not None, micros(row["at"]) if row["at"] else 0))


def by_record_expected(given: Given) -> Expected:
    """One record after the other."""
    names = ("each", "reduced", "folded", "largest", "smallest", "together", "told", "best")
    made: dict[str, Rows] = {name: [] for name in names}
    history: dict[Any, list[Row]] = defaultdict(list)
    said: dict[Any, str] = defaultdict(str)
    for epoch, records in enumerate(given.inputs["events"]):
        for row in in_order(records):
            key, mine = row["k"], history[row["k"]]
            mine.append(row)
            said[key] += f"{row['n']},"
            made["each"].append((epoch, key, total([one["x"] for one in mine]), row["big"]))
            made["reduced"].append((epoch, *_reduced(mine).values()))
            made["told"].append((epoch, key, said[key]))
            made["smallest"] += _extreme(epoch, mine, min)
        for key in {row["k"] for row in records}:
            made["folded"].append((epoch, key, said[key]))
            made["largest"] += _extreme(epoch, history[key], max)
            made["together"].append((epoch, *_reduced(history[key]).values()))
            made["best"] += _best(epoch, history[key])
    newest: Rows = [(given.end, key, words) for key, words in said.items()]
    return {**made, "newest_fold": newest, "once": _once(given), "newest": _newest(given)}


def _best(epoch: int, rows: list[Row]) -> Rows:
    """Two records of all so far; of equal ones the earlier, those without a time before all."""
    known = [row for row in in_order(rows) if row["n"] is not None]
    best = sorted(known, key=lambda row: -row["n"])[:2]
    return [(epoch, row["k"], rank, row["n"], row["at"]) for rank, row in enumerate(best, 1)]


def _reduced(rows: list[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    return {**rows[0], "n": sum(row["n"] or 0 for row in rows), "at": rows[-1]["at"]}


def _extreme(epoch: int, rows: list[Row], of: Callable[..., Row]) -> Rows:
    """The first record with the smallest or largest number, as soon as there is one."""
    known = [row for row in rows if row["n"] is not None]
    return [(epoch, *of(known, key=lambda row: row["n"]).values())] if known else []


def _once(given: Given) -> Rows:
    """What has no like within some seconds, and is not too late to tell."""
    passed = watermarks(given, {"events": LATE_S})
    through: list[Row] = []
    found: Rows = []
    for epoch, records in enumerate(given.inputs["events"]):
        for row in in_order(records):
            if row["at"] is None or micros(row["at"]) + WITHIN_S * SECOND <= passed[epoch]:
                continue
            if not any(one["k"] == row["k"] and abs(micros(one["at"]) - micros(row["at"])) < WITHIN_S * SECOND
                       for one in through):  # fmt: skip
                through.append(row)
                found.append((epoch, *only(row, "k", "n", "at")))
    return found


def _newest(given: Given) -> Rows:
    """What none like it follows within some seconds; told when that is certain, and final."""
    taken: list[tuple[int, int, Row]] = []
    told: list[int] = []
    found: Rows = []
    records = [(place, epoch, row) for place, (epoch, row) in enumerate(given.records())]
    for epoch, now_us in enumerate(watermarks(given, {"events": LATE_S})):
        for at_us, place, row in sorted(taken, key=lambda one: one[:2]):
            if at_us + WITHIN_S * SECOND <= now_us and place not in told and not _is_followed(at_us, place, row, taken):
                told.append(place)
                found.append((epoch, *only(row, "k", "n", "at")))
        for place, _, row in [one for one in records if one[1] == epoch]:
            if row["at"] is None or micros(row["at"]) + WITHIN_S * SECOND <= now_us:
                continue
            passed = [time for time, other, like in taken if other in told and like["k"] == row["k"]]
            if all(abs(time - micros(row["at"])) >= WITHIN_S * SECOND for time in passed):
                taken.append((micros(row["at"]), place, row))
    return found


def _is_followed(at_us: int, place: int, row: Row, taken: list[tuple[int, int, Row]]) -> bool:
    return any(
        like["k"] == row["k"] and (at_us, place) < (time, other) and time - at_us < WITHIN_S * SECOND
        for time, other, like in taken
    )


CASES = [
    Case("rolling results", "rolling", native, events, native_expected),
    Case("rolling results in Python", "rolling", by_record, events, by_record_expected),
]
