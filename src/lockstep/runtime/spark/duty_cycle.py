"""Slowing a JVM that boots: it runs for a moment and is stopped for three.

Two threads of one core slow each other down whatever their priorities are. Where that is felt, only running less helps.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

RUN_S = 0.05
REST_S = 0.15
"""A quarter of the time; both shorter than an epoch, so that no epoch has it beside it for long."""


class DutyCycle(threading.Thread):
    """Stops and continues a process until it is ``needed``. It has to die with this one (``boot.py``)."""

    def __init__(self, pid: int, needed: threading.Event) -> None:
        super().__init__(name="duty-cycle", daemon=True)
        self._pid = pid
        self._needed = needed
        self._ended = False

    def run(self) -> None:
        """Stop and continue it, the last time to continue."""
        with suppress(ProcessLookupError):
            while not self._needed.wait(RUN_S) and not self._ended:
                os.kill(self._pid, signal.SIGSTOP)
                self._needed.wait(REST_S)
                os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        """Let it run: there is nothing left to be slow about."""
        self._ended = True
