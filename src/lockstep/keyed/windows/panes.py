"""What a window function knows about the window it is called for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from lockstep.keyed.records import Record

Timing = Literal["early", "on_time", "late"]
"""Whether a result comes before the window's end, at it, or after it."""


@dataclass(frozen=True)
class Pane:
    """One result of a window: ``pane`` 0 is the window's first, 1 the second, and so on.

    ``start`` and ``end`` are None in count and global windows. A result is final when no other can follow it.
    """

    key: Record
    """The key of the window: ``window.key.user``."""
    start: datetime | None
    """Where it begins."""
    end: datetime | None
    """Where it ends: the first instant that is not in it."""
    watermark: datetime | None
    """How far event time has come."""
    epoch_time: datetime
    """The time of the epoch that gives the result."""
    pane: int
    """Which result of the window it is."""
    timing: Timing
    """Whether it comes before the end of the window ("early"), at it ("on_time"), or after it ("late")."""
    is_final: bool
    """Whether no other result can follow it."""

    def __str__(self) -> str:
        bounds = f"{self.start} to {self.end}" if self.start is not None else "no bounds"
        return f"the window of {self.key} with {bounds}"
