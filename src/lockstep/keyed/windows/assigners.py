"""Which windows a record belongs to. Bounds are microseconds since 1970; a window holds start <= time < end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol

from lockstep.errors import FunctionError
from lockstep.keyed.codec import time_us
from lockstep.keyed.functions import explained, shown
from lockstep.keyed.records import Record
from lockstep.keyed.windows.custom import WindowAssigner
from lockstep.plan.windows import Custom, GlobalWindow, Session, Sliding, Tumbling

Bounds = tuple[int | None, int | None]
"""Start and end; (None, None) for the window that has neither."""


class Assigner(Protocol):
    """Finds a record's windows."""

    @property
    def merging(self) -> bool:
        """Whether windows that touch become one."""

    def windows(self, at_us: int | None, values: tuple[Any, ...]) -> list[Bounds]:
        """The windows of a record with this time, earliest first; none if it has no time."""


@dataclass(frozen=True)
class Regular:
    """Windows of one size that begin every so often.

    >>> Regular(size_us=20, every_us=10, offset_us=3).windows(25, ())
    [(13, 33), (23, 43)]
    """

    size_us: int
    every_us: int
    offset_us: int
    merging: ClassVar[bool] = False

    def windows(self, at_us: int | None, values: tuple[Any, ...]) -> list[Bounds]:  # noqa: ARG002
        """Every window that began up to one size ago."""
        if at_us is None:
            return []
        newest = at_us - (at_us - self.offset_us) % self.every_us
        oldest = newest - (newest - (at_us - self.size_us) - 1) // self.every_us * self.every_us
        return [(start, start + self.size_us) for start in range(oldest, newest + 1, self.every_us)]


@dataclass(frozen=True)
class Sessions:
    """A window for each record, from its time to the end of the gap; those that touch become one."""

    gap_us: int
    merging: ClassVar[bool] = True

    def windows(self, at_us: int | None, values: tuple[Any, ...]) -> list[Bounds]:  # noqa: ARG002
        """The session that the record alone would be."""
        return [] if at_us is None else [(at_us, at_us + self.gap_us)]


@dataclass(frozen=True)
class Everything:
    """One window for all."""

    merging: ClassVar[bool] = False

    def windows(self, at_us: int | None, values: tuple[Any, ...]) -> list[Bounds]:  # noqa: ARG002
        """The window without bounds, also for a record without a time."""
        return [(None, None)]


@dataclass(frozen=True)
class Own:
    """Asks the user's assigner."""

    step: str
    assigner: WindowAssigner
    names: tuple[str, ...]
    merging: ClassVar[bool] = False

    def windows(self, at_us: int | None, values: tuple[Any, ...]) -> list[Bounds]:  # noqa: ARG002
        """The windows it answers with, checked, each once."""
        record = dict(zip(self.names, values, strict=False))
        try:
            answer = list(self.assigner.assign(Record(record)))
            return sorted({self._checked(pair) for pair in answer})
        except Exception as error:
            raise explained(self.step, error, shown(record), "mend the window assigner.") from None

    def _checked(self, pair: Any) -> tuple[int, int]:
        if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(end, datetime) for end in pair):
            start_us, end_us = time_us(pair[0]), time_us(pair[1])
            if start_us < end_us:
                return start_us, end_us
        raise FunctionError(
            "LS0360",
            f'the window assigner of step "{self.step}" returned {shown(pair)}',
            why="a window is a pair of datetimes, the start before the end.",
            hint="return [(start, end)] with datetimes.",
        )


def assigner_of(
    window: Tumbling | Sliding | Session | GlobalWindow | Custom, step: str, names: tuple[str, ...]
) -> Assigner:
    """The working side of a window of the plan."""
    match window:
        case Tumbling():
            return Regular(window.size_us, window.size_us, window.offset_us)
        case Sliding():
            return Regular(window.size_us, window.every_us, window.offset_us)
        case Session():
            return Sessions(window.gap_us)
        case GlobalWindow():
            return Everything()
        case Custom():
            return Own(step, window.assigner, names)
