"""For processes of tests that are none: known by a number, as if it were a handle."""

from __future__ import annotations


class KnownByPid:
    """What a supervisor calls a process by, and what it tells people of it."""

    pid: int

    @property
    def handle(self) -> str:
        return str(self.pid)

    @property
    def where(self) -> str:
        return f"pid {self.pid}"
