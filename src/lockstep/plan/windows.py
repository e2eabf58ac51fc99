"""Which windows a record belongs to, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeGuard

from lockstep.durations import duration_text
from lockstep.errors import PlanError

WindowTime = Literal["event", "processing"]
"""Which time puts a record into a window: its event time, or the time of the epoch that it came in."""


@dataclass(frozen=True)
class Tumbling:
    """Windows that follow each other: every record is in exactly one. They begin at ``offset_us`` after 1970.

    >>> str(Tumbling(60_000_000)), str(Tumbling(86_400_000_000, 3_600_000_000))
    ('tumbling 1 minute', 'tumbling 1 day from 1 hour')
    """

    ends: ClassVar[bool] = True
    size_us: int
    offset_us: int = 0
    time: WindowTime = "event"

    def __post_init__(self) -> None:
        _check_positive("size", self.size_us)

    def __str__(self) -> str:
        return f"tumbling {duration_text(self.size_us)}{_offset(self.offset_us)}{_time(self.time)}"


@dataclass(frozen=True)
class Sliding:
    """Windows of one size that begin every so often: a record is in several.

    >>> str(Sliding(60_000_000, 10_000_000))
    'sliding 1 minute every 10 seconds'
    """

    ends: ClassVar[bool] = True
    size_us: int
    every_us: int
    offset_us: int = 0
    time: WindowTime = "event"

    def __post_init__(self) -> None:
        _check_positive("size", self.size_us)
        _check_positive("step", self.every_us)
        if self.every_us > self.size_us:
            raise _gaps(duration_text(self.size_us), duration_text(self.every_us))

    def __str__(self) -> str:
        every = f"every {duration_text(self.every_us)}"
        return f"sliding {duration_text(self.size_us)} {every}{_offset(self.offset_us)}{_time(self.time)}"


@dataclass(frozen=True)
class Session:
    """Windows that last as long as records follow each other within a gap.

    >>> str(Session(60_000_000))
    'session with a gap of 1 minute'
    """

    ends: ClassVar[bool] = True
    gap_us: int
    time: WindowTime = "event"

    def __post_init__(self) -> None:
        _check_positive("gap", self.gap_us)

    def __str__(self) -> str:
        return f"session with a gap of {duration_text(self.gap_us)}{_time(self.time)}"


@dataclass(frozen=True)
class GlobalWindow:
    """One window for all records of a key, which never ends.

    >>> str(GlobalWindow())
    'global'
    """

    ends: ClassVar[bool] = False

    def __str__(self) -> str:
        return "global"


@dataclass(frozen=True)
class Count:
    """Windows of so many records; with ``every`` less than ``size`` they overlap.

    >>> str(Count(100, 100)), str(Count(100, 10))
    ('count 100', 'count 100 every 10')
    """

    ends: ClassVar[bool] = False
    size: int
    every: int

    def __post_init__(self) -> None:
        for what, number in (("size", self.size), ("step", self.every)):
            if type(number) is not int or number <= 0:
                raise PlanError(
                    "LS0114",
                    f"the {what} of a count window is {number!r}",
                    why="it counts records, and a window without any has no result.",
                    hint="ls.count(100), or ls.count(100, every=10).",
                )
        if self.every > self.size:
            raise _gaps(f"{self.size} records", f"{self.every} records")

    def __str__(self) -> str:
        return f"count {self.size}" + (f" every {self.every}" if self.every != self.size else "")


@dataclass(frozen=True)
class Custom:
    """Windows that the user's own class assigns, ``assign(record) -> [(start, end), ...]``."""

    ends: ClassVar[bool] = True
    assigner: Any
    time: WindowTime = "event"

    @property
    def name(self) -> str:
        """What the assigner's class is called."""
        return type(self.assigner).__qualname__

    def __str__(self) -> str:
        return f"windows of {self.name}{_time(self.time)}"


NativeWindow = Tumbling | Sliding | Session
"""Windows that Spark has operators for, if they are windows of event time."""
TimeWindow = NativeWindow | Custom
Window = TimeWindow | GlobalWindow | Count


def window_time(window: Window) -> WindowTime | None:
    """The time that the window is about; None if it is about none."""
    return None if isinstance(window, GlobalWindow | Count) else window.time


def is_native(window: Window) -> TypeGuard[NativeWindow]:
    """Whether Spark has an operator for the window.

    >>> is_native(Session(1)), is_native(Session(1, "processing")), is_native(Count(2, 2))
    (True, False, False)
    """
    return isinstance(window, Tumbling | Sliding | Session) and window.time == "event"


def window_json(window: Window | None) -> dict[str, int | str] | None:
    """The window as plain data, None for an aggregation without one. What is as usual is left out.

    >>> window_json(Tumbling(60_000_000)), window_json(Session(5_000_000, "processing"))
    ({'kind': 'tumbling', 'size_us': 60000000}, {'kind': 'session', 'gap_us': 5000000, 'time': 'processing'})
    """
    if window is None or isinstance(window, GlobalWindow):
        return None if window is None else {"kind": "global"}
    if isinstance(window, Count):
        return {"kind": "count", "size": window.size, "every": window.every}
    return {**_timed_json(window), **_unusual(window)}


def _timed_json(window: TimeWindow) -> dict[str, int | str]:
    match window:
        case Tumbling():
            return {"kind": "tumbling", "size_us": window.size_us}
        case Sliding():
            return {"kind": "sliding", "size_us": window.size_us, "every_us": window.every_us}
        case Session():
            return {"kind": "session", "gap_us": window.gap_us}
        case Custom():
            return {"kind": "custom", "assigner": window.name}


def _unusual(window: TimeWindow) -> dict[str, int | str]:
    offset_us = getattr(window, "offset_us", 0)
    offset: dict[str, int | str] = {"offset_us": offset_us} if offset_us else {}
    return {**offset, "time": window.time} if window.time != "event" else offset


def _offset(us: int) -> str:
    return f" from {duration_text(us)}" if us else ""


def _time(time: WindowTime) -> str:
    return "" if time == "event" else " of processing time"


def _gaps(size: str, every: str) -> PlanError:
    return PlanError(
        "LS0114",
        f"windows of {size} every {every} leave gaps",
        why="records between two windows would be in none of them.",
        hint="make every= at most the size; equal to it is a tumbling window.",
    )


def _check_positive(what: str, us: int) -> None:
    if us <= 0:
        raise PlanError(
            "LS0114",
            f"the {what} of a window is {us} microseconds",
            why="a window of no length holds no record.",
            hint='write ls.tumbling("1 minute").',
        )
