"""Windows of event time."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.durations import duration_text
from lockstep.errors import PlanError


@dataclass(frozen=True)
class Tumbling:
    """Windows that follow each other: every record is in exactly one.

    >>> str(Tumbling(60_000_000))
    'tumbling 1 minute'
    """

    size_us: int

    def __post_init__(self) -> None:
        _check_positive("size", self.size_us)

    def __str__(self) -> str:
        return f"tumbling {duration_text(self.size_us)}"


@dataclass(frozen=True)
class Sliding:
    """Windows of one size that begin every so often: a record is in several.

    >>> str(Sliding(60_000_000, 10_000_000))
    'sliding 1 minute every 10 seconds'
    """

    size_us: int
    every_us: int

    def __post_init__(self) -> None:
        _check_positive("size", self.size_us)
        _check_positive("step", self.every_us)
        if self.every_us > self.size_us:
            raise PlanError(
                "LS0114",
                f"windows of {duration_text(self.size_us)} every {duration_text(self.every_us)} leave gaps",
                why="records between two windows would be in none of them.",
                hint="make every= at most the size; equal to it is a tumbling window.",
            )

    def __str__(self) -> str:
        return f"sliding {duration_text(self.size_us)} every {duration_text(self.every_us)}"


Window = Tumbling | Sliding


def _check_positive(what: str, us: int) -> None:
    if us <= 0:
        raise PlanError(
            "LS0114",
            f"the {what} of a window is {us} microseconds",
            why="a window of no length holds no record.",
            hint='write ls.tumbling("1 minute").',
        )


def window_json(window: Window | None) -> dict[str, int | str] | None:
    """The window as plain data, None for an aggregation without one."""
    match window:
        case None:
            return None
        case Tumbling(size_us):
            return {"kind": "tumbling", "size_us": size_us}
        case Sliding(size_us, every_us):
            return {"kind": "sliding", "size_us": size_us, "every_us": every_us}
