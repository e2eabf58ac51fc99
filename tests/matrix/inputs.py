"""Small random inputs with everything in them that has ever hurt: the same for the same seed.

Nulls in keys, values and times; ties; the same record twice; records out of order, late and far too late; epochs
without records; texts from everywhere; numbers at the end of their range; and a change to daylight-saving time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.matrix.case import Inputs, Row

SCHEMA = "k string, n bigint, big bigint, x double, at timestamp"
START = datetime(2026, 3, 29, 0, 59, 30, tzinfo=UTC)
"""Half a minute before clocks in Europe are put forward."""
STEP_S = 4
"""How far event time goes on from one epoch to the next."""
EVENTS_MAX = 8
KEYS: Sequence[str | None] = ("ann", "bob", "ann", "", "Ünïcødé", "日本", "o'hara\"\n", None)
BIGS: Sequence[int | None] = (2**63 - 1, -(2**63), 0, -1, 7, 7, 9, 12, None)
MONEY: Sequence[float | None] = (0.1, 0.2, 0.3, 19.99, -0.01, 1e15, 123456.78, None)
LATE_S: Sequence[float] = (0, 0, 0, 0, 1, 2, 3, 6, 9, 30)
MICROS: Sequence[int] = (0, 0, 0, 1, 500, 999_999)


def event(chance: Random, epoch: int) -> Row:
    """One record of the usual kind."""
    late_s = chance.choice(LATE_S)
    at = START + timedelta(
        seconds=epoch * STEP_S + chance.randrange(STEP_S) - late_s, microseconds=chance.choice(MICROS)
    )
    return {
        "k": chance.choice(KEYS),
        "n": chance.choice([None, 0, 1, 1, 9, 12, chance.randrange(-100, 100)]),
        "big": chance.choice(BIGS),
        "x": chance.choice(MONEY),
        "at": chance.choice([at] * 12 + [None]),
    }


def epochs_of(
    chance: Random, epochs: int, make: Callable[[Random, int], Row] = event, at_most: int = EVENTS_MAX
) -> list[list[Row]]:
    """So many epochs of records; some are empty, and some records are there twice."""
    made = []
    for epoch in range(epochs):
        count = 0 if chance.random() < 0.12 else chance.randrange(1, at_most + 1)
        records = [make(chance, epoch) for _ in range(count)]
        made.append([copy for record in records for copy in [record] * chance.choice([1, 1, 1, 1, 2])])
    return made


def events(chance: Random, epochs: int) -> Inputs:
    """Input for a job with one source, "events"."""
    return {"events": epochs_of(chance, epochs)}


def two_sides(chance: Random, epochs: int) -> Inputs:
    """Input for a job with the sources "left" and "right", of few keys: most find a partner."""

    def one(chance: Random, epoch: int) -> Row:
        return {**event(chance, epoch), "k": chance.choice(["ann", "bob", "", None])}

    return {side: epochs_of(chance, epochs, one, at_most=5) for side in ("left", "right")}


def only(record: Row, *names: str) -> tuple[Any, ...]:
    """Some values of a record."""
    return tuple(record[name] for name in names)
