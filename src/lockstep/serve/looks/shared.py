"""The looks at all jobs, shared by everybody who watches: a hundred viewers cost what one does."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from psutil import pid_exists

from lockstep.clock import US_PER_S, Clock
from lockstep.errors import LockstepError
from lockstep.serve.looks.look import JobWatch, Look
from lockstep.store.protocols import Store

LOOK_EVERY_S = 0.9
"""Pages are rendered once a second: a little less, so that each time there is something newer to render."""
NEWS_EVERY_S = 0.2
"""After an event a job is looked at sooner, and not more often than this however many events there are."""
UNWATCHED_S = 5.0
"""A look that is older was the last one: nobody watches that job, and its events wake nobody."""


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
    event: int = 0
    """The newest event when that look was taken."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Looks:
    """About one look a second at each job, sooner if something happens to it, and none at jobs that nobody asks for."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """All jobs."""
        return self._jobs.jobs()

    def look(self, job: str) -> Look:
        """The job as it was within the last second. An error of the service if there is no such job."""
        try:
            store = self._jobs.store(job)
        except LockstepError:
            self._forget(job)
            raise
        with self._lock:
            watched = self._watched.setdefault(job, _Watched())
        with watched.lock:
            now_us = self._jobs.clock()
            if watched.watch is None or watched.watch.store is not store:
                if watched.watch is not None:
                    watched.watch.close()
                watched.watch, watched.look = JobWatch(store, job, self._jobs.home), None
            if watched.look is None or _is_old(watched, watched.look, now_us):
                # Asked before the look: an event between the two is looked for once more.
                watched.event = store.newest_event()
                watched.look = watched.watch.look(now_us)
            return watched.look

    def _forget(self, job: str) -> None:
        with self._lock:
            gone = self._watched.pop(job, None)
        if gone is not None and gone.watch is not None:
            gone.watch.close()

    def has_news(self) -> bool:
        """Whether something happened to a watched job since it was looked at: cheap, and asked ten times a second."""
        with self._lock:
            watched = list(self._watched.values())
        now_us = self._jobs.clock()
        return any(_has_news(one, now_us) for one in watched)

    def close(self) -> None:
        """Give back what was opened here."""
        with self._lock:
            for one in self._watched.values():
                if one.watch is not None:
                    one.watch.close()
            self._watched.clear()


def _is_old(watched: _Watched, look: Look, now_us: int) -> bool:
    return not 0 <= now_us - look.at_us < LOOK_EVERY_S * US_PER_S or _has_news(watched, now_us)


def _has_news(watched: _Watched, now_us: int) -> bool:
    """Whether something happened since the last look, if somebody watches and it is time to look again."""
    watch, look = watched.watch, watched.look
    if watch is None or look is None or not NEWS_EVERY_S <= (now_us - look.at_us) / US_PER_S < UNWATCHED_S:
        return False
    # Whoever supervises clears up after a process before it says that it has ended; here it is seen at once.
    if any(one.alive and not one.host and not pid_exists(one.pid) for one in look.overview.health.replicas):
        return True
    try:
        return watch.store.newest_event() != watched.event
    except (LockstepError, AssertionError):
        return False  # away, or closed since the job was deleted: whoever looks next is told
