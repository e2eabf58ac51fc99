"""Triggers as people write them: when a window gives a result."""

from __future__ import annotations

from typing import Any

from lockstep.api.windows import TimeName, window_time_of
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.plan.triggers import EACH_EPOCH, Firing, Trigger


def at_watermark(*, early: Firing | Trigger | None = None, late: Firing | Trigger | None = None) -> Trigger:
    """A result when the window ends: the default. ``early`` gives some before, ``late`` says how often after.

    >>> str(at_watermark(early=every("10 seconds"), late=on_count(1)))
    'at the watermark, early every 10 seconds, late on 1 record'

    Late results come within ``.allowed_lateness(...)``; without ``late`` there is one in each epoch with late records.
    """
    return Trigger(early=_part(early, "early"), late=_part(late, "late") or EACH_EPOCH)


def every(interval: Duration, *, time: TimeName = "processing") -> Firing:
    """A result at every whole interval in which records have come, and when the window ends.

    >>> str(every("10 seconds")), str(every("1 minute", time="event"))
    ('every 10 seconds', 'every 1 minute of event time')
    """
    return Firing(every_us=duration_us(interval), time=window_time_of(time))


def on_count(records: int) -> Firing:
    """A result whenever so many records have come since the last one, and no other: not when the window ends.

    >>> str(on_count(100))
    'on 100 records'

    ``ls.at_watermark(early=ls.on_count(100))`` also gives the rest when the window ends.
    """
    return Firing(count=records)


def early(*, every: Duration | None = None, count: int | None = None) -> Trigger:
    """Results before the window ends, after an interval or a number of records, and one when it ends.

    >>> str(early(every="10 seconds", count=1000))
    'at the watermark, early every 10 seconds or on 1000 records'
    """
    return Trigger(early=_firing(every, count))


def late(*, every: Duration | None = None, count: int | None = None) -> Trigger:
    """A result when the window ends, and after that one after an interval or a number of late records.

    >>> str(late(count=1))
    'at the watermark, late on 1 record'
    """
    return Trigger(late=_firing(every, count))


def checked_trigger(trigger: Any, *, purge: bool) -> Trigger:
    """What ``.trigger(...)`` was given, as a trigger (LS0165 if it is none)."""
    match trigger:
        case Trigger():
            return Trigger(trigger.at_end, trigger.early, trigger.late, purge)
        case Firing():
            # Counting is exact: only every so many records. An interval is about freshness, and leaves no rest behind.
            return Trigger(at_end=trigger.count is None, early=trigger, late=trigger, purge=purge)
    raise _no_trigger(".trigger(...)", trigger)


def _firing(every: Duration | None, count: int | None) -> Firing:
    return Firing(every_us=None if every is None else duration_us(every), count=count)


def _part(given: Any, name: str) -> Firing | None:
    """``early=`` or ``late=`` of a trigger: a firing, or what ``ls.early`` and ``ls.late`` have made."""
    if given is None or isinstance(given, Firing):
        return given
    if isinstance(given, Trigger):
        found: Firing | None = getattr(given, name)
        if found is not None and found != EACH_EPOCH:
            return found
    raise _no_trigger(f"{name}=", given)


def _no_trigger(where: str, given: object) -> PlanError:
    return PlanError(
        "LS0165",
        f"{where} was given {given!r}, not a trigger",
        hint='ls.every("10 seconds"), ls.on_count(100), or ls.at_watermark(early=ls.every("10 seconds")).',
    )
