"""Being told to stop: a flag that a signal's handler can set.

Not a `threading.Event`: its lock may be held by the very thread that the signal interrupts, which would then wait for
itself. With a look every few milliseconds that happened in one of a dozen runs.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

_LOOK_S = 0.05


class Stop:
    """Whether to stop: after SIGTERM or SIGINT (:meth:`on_signals`), or when whoever started this process is gone."""

    def __init__(self) -> None:
        self.asked = False
        self._parent = os.getppid()

    def on_signals(self) -> Stop:
        """Listen to signals from now on; only in a main thread."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)
        return self

    def wait(self, seconds: float) -> bool:
        """Wait so long, less if asked to stop meanwhile; whether to stop.

        >>> Stop().wait(0.001)
        False
        """
        deadline_s = time.monotonic() + seconds
        while not self.asked and (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOK_S))
        self.asked = self.asked or os.getppid() != self._parent
        return self.asked

    def ask(self) -> None:
        """Ask to stop; from a signal's handler or another thread as well."""
        self.asked = True

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.ask()
