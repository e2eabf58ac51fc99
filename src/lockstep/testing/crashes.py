"""Crashes in named windows, in this process: what a replica had in memory is lost, what it wrote is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lockstep.faults.switch import switch
from lockstep.faults.windows import Window


class CrashedError(RuntimeError):
    """A replica ends here, as if it had been killed."""


@dataclass
class Crash:
    """A crash that is wanted, and whether it has happened."""

    window: Window
    replica: str
    epoch: int | None = None
    """In which epoch it happened; None as long as it has not."""

    def __call__(self, window: str, replica: str, epoch: int) -> None:
        """Called at every window; the first one that fits ends whoever is there."""
        if self.epoch is None and window == self.window and replica == self.replica:
            self.epoch = epoch
            raise CrashedError(f"{replica} crashes here: {window}, epoch {epoch}")


@contextmanager
def crash_at(window: Window, replica: str = "r0") -> Iterator[Crash]:
    """Within the block, the replica crashes when it first reaches this window.

    >>> from lockstep.faults.windows import reached
    >>> with crash_at(Window.SEALED_NOT_RUN, "r1") as crash:
    ...     reached(Window.SEALED_NOT_RUN, "r0", epoch=7)
    ...     crash.epoch is None
    True
    """
    before, switch.harm_here = switch.harm_here, Crash(window, replica)
    try:
        yield switch.harm_here
    finally:
        switch.harm_here = before
