"""How much memory the processes of replicas on this host have, looked up seldom: it takes a walk over all processes."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from lockstep.clock import US_PER_S
from lockstep.store.protocols import Progress

AGAIN_S = 10


class Memory:
    """The memory of replicas: driver, JVM and workers together. Those on other hosts are not known here."""

    def __init__(self) -> None:
        self._at_us = 0
        self._found: dict[str, int] = {}

    def of(self, progress: Iterable[Progress], now_us: int) -> dict[str, int]:
        """Bytes by replica, at most ten seconds old."""
        if now_us - self._at_us >= AGAIN_S * US_PER_S:
            self._at_us = now_us
            here = {one.replica: resident_bytes(one.pid) for one in progress if one.pid and not one.host}
            self._found = {replica: count for replica, count in here.items() if count}
        return self._found


def resident_bytes(pid: int) -> int:
    """What a process and everything below it holds, 0 if it is gone."""
    try:
        process = psutil.Process(pid)
        return sum(_resident(one) for one in (process, *process.children(recursive=True)))
    except psutil.Error:
        return 0


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
