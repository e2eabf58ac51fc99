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
    start: datetime | None
    end: datetime | None
    watermark: datetime | None
    epoch_time: datetime
    pane: int
    timing: Timing
    is_final: bool

    def __str__(self) -> str:
        bounds = f"{self.start} to {self.end}" if self.start is not None else "no bounds"
        return f"the window of {self.key} with {bounds}"
