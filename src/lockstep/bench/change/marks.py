"""Moments that a process notes in a file, and the time between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from lockstep.clock import US_PER_S, wall_us

Mark = tuple[str, int]
"""(what was reached, when in microseconds)."""


def mark(folder: Path, name: str) -> None:
    """Note that something was reached now."""
    with (folder / "marks.log").open("a", encoding="utf-8") as file:
        file.write(f"{name} {wall_us()}\n")


def read_marks(folder: Path, from_us: int) -> list[Mark]:
    """What was noted from a moment on."""
    path = folder / "marks.log"
    words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [(name, int(at_us)) for name, at_us in words if int(at_us) >= from_us]


def laps(begun_us: int, marks: Sequence[Mark]) -> dict[str, float]:
    """Seconds from each mark to the next, by the name of the one that was reached.

    >>> laps(1_000_000, [("stopped", 1_500_000), ("booted", 4_500_000)])
    {'stopped': 0.5, 'booted': 3.0}
    """
    edges = [("", begun_us), *marks]
    return {name: (at_us - before_us) / US_PER_S for (_, before_us), (name, at_us) in pairwise(edges)}
