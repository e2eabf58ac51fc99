"""The looks at all jobs, shared by everybody who watches: a hundred viewers cost what one does."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lockstep.clock import US_PER_S, Clock
from lockstep.serve.looks.look import JobWatch, Look
from lockstep.store.protocols import Store

LOOK_EVERY_S = 1.0


class Jobs(Protocol):
    """Whoever knows the jobs and keeps their stores open: the service."""

    clock: Clock

    @property
    def home(self) -> Path:
        """Where journals are on this host."""

    def jobs(self) -> list[str]:
        """The names of all jobs."""

    def store(self, job: str) -> Store:
        """The store of a job, which is not to be closed."""


@dataclass
class _Watched:
    watch: JobWatch | None = None
    look: Look | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Looks:
    """At most one look a second at each job, and none at jobs that nobody asks for."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """All jobs."""
        return self._jobs.jobs()

    def look(self, job: str) -> Look:
        """The job as it was within the last second. An error of the service if there is no such job."""
        store = self._jobs.store(job)
        with self._lock:
            watched = self._watched.setdefault(job, _Watched())
        with watched.lock:
            now_us = self._jobs.clock()
            if watched.watch is None or watched.watch.store is not store:
                if watched.watch is not None:
                    watched.watch.close()
                watched.watch, watched.look = JobWatch(store, job, self._jobs.home), None
            if watched.look is None or not 0 <= now_us - watched.look.at_us < LOOK_EVERY_S * US_PER_S:
                watched.look = watched.watch.look(now_us)
            return watched.look

    def close(self) -> None:
        """Give back what was opened here."""
        with self._lock:
            for one in self._watched.values():
                if one.watch is not None:
                    one.watch.close()
            self._watched.clear()
