"""How far event time has come, as the guide describes it: computed from the input alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from lockstep.testing.trial import START_US
from tests.matrix.case import Given

MILLISECOND_US = 1000
NEVER_US = -(10**18)
END_US = 10**18


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    since = at - datetime(1970, 1, 1, tzinfo=at.tzinfo)
    return since // timedelta(microseconds=1)


def watermarks(given: Given, out_of_order_s: Mapping[str, float]) -> list[int]:
    """The watermark of every epoch: what the epochs before have seen, on the slowest side, in whole milliseconds.

    The first epoch after the input is sealed with the end of event time, and the next one is computed with it.
    """
    passed = [
        min(_seen(given, source, epoch, late_s) for source, late_s in out_of_order_s.items())
        for epoch in range(given.end + 1)
    ]
    return [*passed, END_US]


def epoch_time_us(epoch: int) -> int:
    """When an epoch of a life is sealed: one every second."""
    return START_US + (epoch + 1) * 1_000_000


def _seen(given: Given, source: str, epoch: int, late_s: float) -> int:
    times = [micros(row["at"]) for before, row in given.records(source) if before < epoch and row["at"] is not None]
    if not times:
        return NEVER_US
    return (max(times) - round(late_s * 1_000_000)) // MILLISECOND_US * MILLISECOND_US


def first_epoch(passed: Sequence[int], at_least: int, since: int, *, beyond: bool = False) -> int:
    """The first epoch from ``since`` on whose watermark has reached (or is ``beyond``) a time."""
    return next(e for e in range(since, len(passed)) if passed[e] > at_least or (not beyond and passed[e] == at_least))
