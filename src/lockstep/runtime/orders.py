"""What its agent says to a process through the pipe that is its standard input."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from lockstep.runtime.spec import EXIT_DRAINED

BE = "be"
"""To a spare: ``be PATH`` makes it the replica whose spec is there."""
DRAIN = "drain"
READY = "ready"
"""A file in a spare's folder: it has booted and is warm."""


class Orders(threading.Thread):
    """Reads the pipe. Its end means that the agent is gone: a replica drains then, a spare just ends."""

    def __init__(self, *, spare: bool) -> None:
        super().__init__(name="agent-pipe", daemon=True)
        self.drain = threading.Event()
        self.told = threading.Event()
        """Set once this process knows which replica it is."""
        self.spec_path: Path | None = None
        self.told_s = 0.0
        """When that was, as wall-clock time."""
        if not spare:
            self.told.set()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._end())

    def run(self) -> None:
        """Read until the end."""
        for line in sys.stdin:
            self.obey(line)
        self._end()

    def obey(self, line: str) -> None:
        """Do what one line says."""
        word, _, rest = line.strip().partition(" ")
        if word == BE and not self.told.is_set():
            self.spec_path, self.told_s = Path(rest), time.time()
            self.told.set()
        elif word == DRAIN:
            self._end()

    def _end(self) -> None:
        if not self.told.is_set():
            # At once, also in the middle of booting: a spare has nothing that anyone would miss.
            os._exit(EXIT_DRAINED)
        self.drain.set()
