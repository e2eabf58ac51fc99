"""Virtual time: one queue of what happens next. Nothing in the simulation reads a real clock or sleeps."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from lockstep.clock import US_PER_S

START_US = 1_700_000_000 * US_PER_S


class Timeline:
    """What will happen, in order of time and, at one instant, in the order it was planned."""

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

    def pass_by(self, seconds: float) -> None:
        """Let this much time pass: whatever is planned in it happens."""
        until_us = self.now_us + round(seconds * US_PER_S)
        while self._queue and self._queue[0][0] <= until_us:
            self.now_us, _, action = heapq.heappop(self._queue)
            action()
        self.now_us = until_us
