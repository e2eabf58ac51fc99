"""What nothing waits for: done by a thread of its own, one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Act = Callable[[], None]


class Aside(threading.Thread):
    """Does what it is given; what is left when the process ends is not done.

    >>> aside, done = Aside(), threading.Event()
    >>> aside(done.set)
    >>> done.wait(10)
    True
    """

    def __init__(self) -> None:
        super().__init__(name="aside", daemon=True)
        self._acts: queue.SimpleQueue[Act] = queue.SimpleQueue()
        self.start()

    def __call__(self, act: Act) -> None:
        """Do this some time."""
        self._acts.put(act)

    def run(self) -> None:
        """Do one after the other, for ever."""
        while True:
            self._acts.get()()
