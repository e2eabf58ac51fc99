"""How long each phase of a replica's start took, from its process to its first computed epoch.

One event of kind :data:`KIND` for every start, so that people see it and benches can read it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import psutil

KIND = "replica-phases"
_PART = re.compile(r"([\w-]+) (\d+) ms")


class Phases:
    """A stopwatch whose laps have names. ``began_s`` is wall-clock time, like :func:`time.time`.

    >>> phases = Phases("a new process", began_s=10.0, clock=iter([10.5, 12.0]).__next__)
    >>> phases.mark("imports"), phases.mark("session")
    (None, None)
    >>> phases.text
    'a new process: imports 500 ms, session 1500 ms, total 2000 ms'
    """

    def __init__(self, origin: str, began_s: float, clock: Callable[[], float] = time.time) -> None:
        self._origin = origin
        self._clock = clock
        self._began_s = began_s
        self._last_s = began_s
        self._laps: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        """The time since the last mark was ``phase``; a phase that was marked before is over, and stays as it is."""
        now_s = self._clock()
        if phase not in self._laps:
            self._laps[phase] = now_s - self._last_s
            self._last_s = now_s

    @property
    def text(self) -> str:
        """All laps so far and their sum."""
        laps = {**self._laps, "total": self._last_s - self._began_s}
        return f"{self._origin}: " + ", ".join(f"{name} {max(0, round(s * 1000))} ms" for name, s in laps.items())


def since_process_start() -> float:
    """When this process began, as wall-clock time."""
    return float(psutil.Process().create_time())


def phases_ms(text: str) -> dict[str, int]:
    """The milliseconds of each phase, from the text of an event.

    >>> phases_ms("a new process: imports 912 ms, session 4210 ms, total 5122 ms")
    {'imports': 912, 'session': 4210, 'total': 5122}
    """
    return {name: int(took) for name, took in _PART.findall(text)}
