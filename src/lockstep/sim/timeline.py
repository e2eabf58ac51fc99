"""Virtual time: one queue of what happens next. Nothing in the simulation reads a real clock or sleeps."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from lockstep.clock import US_PER_S

START_US = 1_700_000_000 * US_PER_S


class Timeline:
    """What will happen, in order of time and, at one instant, in the order it was planned.

    >>> timeline, said = Timeline(), []
    >>> timeline.after(2.0, lambda: said.append("second"))
    >>> timeline.after(1.0, lambda: said.append("first"))
    >>> timeline.pass_by(5.0)
    >>> said, timeline.elapsed_s
    (['first', 'second'], 5.0)
    """

    def __init__(self) -> None:
        self.now_us = START_US
        self._planned = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []

    @property
    def elapsed_s(self) -> float:
        """Seconds since the simulation began."""
        return (self.now_us - START_US) / US_PER_S

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan ``action``."""
        self._planned += 1
        heapq.heappush(self._queue, (self.now_us + round(seconds * US_PER_S), self._planned, action))

    def next(self) -> None:
        """Let the next thing happen."""
        at_us, _, action = heapq.heappop(self._queue)
        # Something that let time pass while it happened may have brought us beyond.
        self.now_us = max(self.now_us, at_us)
        action()

    def pass_by(self, seconds: float) -> None:
        """Let this much time pass: whatever is planned in it happens. May be called by what happens."""
        until_us = self.now_us + round(seconds * US_PER_S)
        while self._queue and self._queue[0][0] <= until_us:
            self.next()
        self.now_us = max(self.now_us, until_us)


class HostClock:
    """The wall clock of one host: the true time and how wrong it is. Somebody may set it at any moment."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.wrong_us = 0

    def __call__(self) -> int:
        """Microseconds since 1970, as this host believes."""
        return self._timeline.now_us + self.wrong_us
