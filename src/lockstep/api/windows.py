"""Windows as people write them."""

from __future__ import annotations

from typing import Literal, overload

from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.plan.windows import Count, GlobalWindow, Session, Sliding, Tumbling, WindowTime

TimeName = Literal["event", "processing"]
"""Which time puts a record into a window.

"event" is when it happened, or whatever ``.event_time(...)`` says: when it came in, too. "processing" is the time of
the epoch that computes it: the only clock that all replicas agree on.
"""


@overload
def tumbling(size: Duration, *, offset: Duration | None = None, time: TimeName = "event") -> Tumbling: ...
@overload
def tumbling(*, count: int) -> Count: ...
def tumbling(
    size: Duration | None = None, *, offset: Duration | None = None, time: TimeName = "event", count: int | None = None
) -> Tumbling | Count:
    """Windows that follow each other: every record is in exactly one.

    >>> str(tumbling("1 minute"))
    'tumbling 1 minute'
    >>> str(tumbling("1 day", offset="22 hours")), str(tumbling(count=100))
    ('tumbling 1 day from 22 hours', 'count 100')

    Days begin at midnight UTC; ``offset`` moves the beginning. ``time="processing"`` goes by the time of the epochs.
    With ``count`` instead of a size a window is so many records.
    """
    if count is not None:
        _check_alone("tumbling", size, offset, time)
        return Count(count, count)
    size_us = _size("tumbling", size)
    return Tumbling(size_us, _offset_us(offset, size_us), window_time_of(time))


@overload
def sliding(
    size: Duration, *, every: Duration, offset: Duration | None = None, time: TimeName = "event"
) -> Sliding: ...
@overload
def sliding(*, count: int, every: int) -> Count: ...
def sliding(
    size: Duration | None = None,
    *,
    every: Duration | int,
    offset: Duration | None = None,
    time: TimeName = "event",
    count: int | None = None,
) -> Sliding | Count:
    """Windows of one size that begin every so often: a record is in ``size / every`` of them.

    >>> str(sliding("1 minute", every="10 seconds")), str(sliding(count=100, every=10))
    ('sliding 1 minute every 10 seconds', 'count 100 every 10')
    """
    if count is not None:
        _check_alone("sliding", size, offset, time)
        return Count(count, every)  # type: ignore[arg-type]
    size_us, every_us = _size("sliding", size), duration_us(every)  # type: ignore[arg-type]
    return Sliding(size_us, every_us, _offset_us(offset, every_us), window_time_of(time))


def session(gap: Duration, *, time: TimeName = "event") -> Session:
    """Windows that last as long as records follow each other within ``gap``; they end a gap after the last one.

    >>> str(session("30 minutes"))
    'session with a gap of 30 minutes'
    """
    return Session(duration_us(gap), window_time_of(time))


def global_() -> GlobalWindow:
    """One window for all records of a key, without an end: a trigger says when there are results.

    >>> import lockstep as ls
    >>> clicks = ls.Job("doc").source("clicks", ls.journal("clicks", schema="user string"))
    >>> totals = clicks.key_by("user").window(ls.global_()).trigger(ls.on_count(1000)).count()
    >>> totals.columns
    ('user', 'window_start', 'window_end', 'count')
    """
    return GlobalWindow()


def count(size: int, *, every: int | None = None) -> Count:
    """Windows of ``size`` records of a key; with ``every``, the last ``size`` records after every so many.

    >>> str(count(100)), str(count(100, every=10))
    ('count 100', 'count 100 every 10')

    Records count in the order in which they come: by epoch, then by event time. A window that is not full gives no
    result, except that those with ``every`` begin with fewer records. window_start and window_end are null.
    """
    return Count(size, size if every is None else every)


def window_time_of(time: str) -> WindowTime:
    """The clock behind a name; LS0165 if there is none."""
    if time == "event":
        return "event"
    if time == "processing":
        return "processing"
    raise PlanError(
        "LS0165",
        f"{time!r} is not a time that windows know",
        hint='time= is "event", or "processing" (the time of the epochs). To go by when records came in, ask the '
        'source for that (timestamp_column="arrived") and make it the event time: .event_time("arrived").',
    )


def _size(method: str, size: Duration | None) -> int:
    if size is None:
        raise PlanError("LS0114", f"ls.{method}() was given no size", hint=f'ls.{method}("1 minute"), or count=100.')
    return duration_us(size)


def _offset_us(offset: Duration | None, every_us: int) -> int:
    """Where windows begin within one step: an offset of a whole step, or below zero, moves them to the same places."""
    us = 0 if offset is None else duration_us(offset)
    return us % every_us if every_us > 0 else us


def _check_alone(method: str, size: object, offset: object, time: str) -> None:
    if size is not None or offset is not None or time != "event":
        raise PlanError(
            "LS0162",
            f"ls.{method}(count=...) was given a size, an offset or a time as well",
            why="a window of so many records is about no time.",
            hint=f'ls.{method}(count=100), or ls.{method}("1 minute") for windows of time.',
        )
