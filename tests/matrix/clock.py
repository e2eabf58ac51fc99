"""How far event time has come, as the guide describes it: computed from the input alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from tests.matrix.case import Given
from tests.matrix.inputs import START

MILLISECOND_US = 1000
SECOND_US = 1_000_000
NEVER_US = -(10**18)
END_US = 10**18


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    since = at - datetime(1970, 1, 1, tzinfo=at.tzinfo)
    return since // timedelta(microseconds=1)


LIFE_START_US = micros(START) + 600 * SECOND_US
"""Epoch time when a life begins: its records are some minutes old."""


def watermarks(given: Given, out_of_order_s: Mapping[str, float]) -> list[int]:
    """The watermark of every epoch: what the epochs before have seen, on the slowest side, in whole milliseconds.

    The first epoch after the input is sealed with the end of event time, and the next one is computed with it.
    """
    passed = [
        min(_seen(given, source, epoch, late_s) for source, late_s in out_of_order_s.items())
        for epoch in range(given.end + 1)
    ]
    return [*passed, END_US]


def idle_watermarks(given: Given, out_of_order_s: int, idle_after_s: int) -> list[int]:
    """The same for one source that counts as idle after some seconds: then event time goes on at the clock's pace."""
    late_us, idle_us = out_of_order_s * SECOND_US, idle_after_s * SECOND_US
    passed: list[int] = []
    known, active_us = NEVER_US, epoch_time_us(0)
    for epoch in range(given.end + 1):
        passed.append((known - late_us) // MILLISECOND_US * MILLISECOND_US if known > NEVER_US else NEVER_US)
        records = given.inputs["events"][epoch] if epoch < given.end else []
        now_us, before_us = epoch_time_us(epoch), epoch_time_us(epoch - 1)
        if records:
            active_us = now_us
        elif known > NEVER_US and now_us - active_us >= idle_us:
            since_us = before_us if before_us - active_us >= idle_us else active_us
            known = max(known, min(now_us - late_us, known + now_us - since_us))
        known = max([known, *(micros(row["at"]) for row in records if row["at"] is not None)])
    return [*passed, END_US]


def epoch_time_us(epoch: int) -> int:
    """When an epoch of a life is sealed: one every second."""
    return LIFE_START_US + (epoch + 1) * SECOND_US


def _seen(given: Given, source: str, epoch: int, late_s: float) -> int:
    times = [micros(row["at"]) for before, row in given.records(source) if before < epoch and row["at"] is not None]
    if not times:
        return NEVER_US
    return (max(times) - round(late_s * 1_000_000)) // MILLISECOND_US * MILLISECOND_US


def first_epoch(passed: Sequence[int], at_least: int, since: int, *, beyond: bool = False) -> int:
    """The first epoch from ``since`` on whose watermark has reached (or is ``beyond``) a time."""
    return next(e for e in range(since, len(passed)) if passed[e] > at_least or (not beyond and passed[e] == at_least))
