"""Rows that replace each other, used further: aggregates of aggregates, conditions that a row no longer meets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import lockstep as ls
from lockstep import F
from tests.matrix.case import Case, Expected, Given, Row, Rows
from tests.matrix.inputs import SCHEMA, events, only
from tests.matrix.jobs.rolling import least, most, total

QUERY = """
    SELECT n, count(*) AS groups, max(total) AS most
    FROM (SELECT k, big, count(*) AS n, sum(n) AS total FROM events GROUP BY k, big)
    GROUP BY n HAVING groups < 3
"""


def changes(_: Given) -> ls.Job:
    """The newest totals of each key: filtered, added up by other keys, and filtered again; one sink takes them all."""
    job = ls.Job("changes")
    source = job.source("events", ls.journal("events", schema=SCHEMA, partitions=2))
    totals = source.key_by("k", "big").agg(n=F.count("*"), total=F.sum("n"), money=F.sum("x"))
    totals.as_events().to(ls.files("out/told"), name="told")
    latest = totals.latest()
    high = latest.filter("total > 5").select("k", "big", twice="total * 2")
    high.to(ls.sqlite("out/changes.db", table="high", key=("k", "big")), name="high")
    by_key = latest.key_by("k").agg(
        groups=F.count("*"),
        total=F.sum("total"),
        mean=F.avg("total"),
        money=F.sum("money"),
        least=F.min("total"),
        most=F.max("money"),
        different=F.count_distinct("n"),
        middle=F.median("total"),
    )
    by_key.to(ls.sqlite("out/changes.db", table="by_key", key="k"), name="by_key")
    low = by_key.filter("total < 50 OR total IS NULL").select("k", "total")
    low.to(ls.sqlite("out/changes.db", table="low", key="k"), name="low")
    job.sql(QUERY, name="rare").to(ls.sqlite("out/changes.db", table="rare", key="n"), name="rare_sizes")
    return job


def changes_expected(given: Given) -> Expected:
    """The same of all records at once; what each epoch tells, one epoch after the other."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    told: Rows = []
    for epoch, records in enumerate(given.inputs["events"]):
        for row in records:
            groups[only(row, "k", "big")].append(row)
        touched = {only(row, "k", "big") for row in records}
        told += [(epoch, *key, *_totals(groups[key])) for key in touched]
    held = {key: _totals(rows) for key, rows in groups.items()}
    by_key = [(key, *_of_totals([one for (k, _), one in held.items() if k == key])) for key in {k for k, _ in held}]
    end = given.end
    return {
        "told": told,
        "high": [(end, *key, 2 * one[1]) for key, one in held.items() if one[1] is not None and one[1] > 5],
        "by_key": [(end, *row) for row in by_key],
        "low": [(end, row[0], row[2]) for row in by_key if row[2] is None or row[2] < 50],
        "rare_sizes": [(end, *row) for row in _sizes(list(held.values())) if row[1] < 3],
    }


def _totals(rows: list[Row]) -> tuple[Any, ...]:
    return len(rows), total([row["n"] for row in rows]), total([row["x"] for row in rows])


def _of_totals(held: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    numbers, sums, money = (list(column) for column in zip(*held, strict=True))
    known = sorted(one for one in sums if one is not None)
    mean = sum(known) / len(known) if known else None
    half = len(known) // 2
    middle = None if not known else known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2
    last = (mean, total(money), least(sums), most(money), len(set(numbers)), None if middle is None else float(middle))
    return len(held), total(sums), *last


def _sizes(held: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    sizes = {one[0] for one in held}
    return [
        (size, sum(one[0] == size for one in held), most([one[1] for one in held if one[0] == size])) for size in sizes
    ]


CASES = [Case("rows that replace each other", "changes", changes, events, changes_expected, by_epoch=False)]
