"""Keeps jobs that are wanted running on one machine: for each a coordinator, in a process that outlives the service."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lockstep.agent.candidate import LOG
from lockstep.agent.processes import opened_log
from lockstep.control.start.run import SUBMITTED, kept_by
from lockstep.errors import LockstepError
from lockstep.runtime.desired_run import LEASE, wanted_run
from lockstep.runtime.process_environment import process_environment
from lockstep.serve.service import Service

LOOK_S = 0.5
PAUSE_MIN_S = 1.0
"""Before a coordinator that died is started again. Its replicas go on meanwhile."""
PAUSE_MAX_S = 60.0
"""The pause doubles up to this while it dies again and again."""
WELL_AFTER_S = 60.0
"""One that lived this long counts as well: the next pause is the shortest."""


class Process(Protocol):
    """A process that was started."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, None while it lives."""


@dataclass
class _Kept:
    """One job, as this service knows it."""

    process: Process | None = None
    started_s: float = 0.0
    pause_s: float = PAUSE_MIN_S
    not_before_s: float = 0.0
    dead: str = ""
    """The last coordinator that died here, as its lease names it: nobody has to wait until that has expired."""


def next_pause_s(pause_s: float, lived_s: float, code: int) -> float:
    """How long to wait before a coordinator that has ended is started again.

    >>> next_pause_s(4.0, lived_s=2.0, code=1), next_pause_s(4.0, lived_s=90.0, code=-9), next_pause_s(50.0, 1.0, 1)
    (8.0, 1.0, 60.0)
    """
    if code == 0 or lived_s >= WELL_AFTER_S:
        return PAUSE_MIN_S
    return min(2 * pause_s, PAUSE_MAX_S)


class Keeper:
    """Started once for a service. A job that another process coordinates is left alone: its lease is held."""

    def __init__(
        self,
        service: Service,
        start: Callable[[str], Process] | None = None,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._start = start or self._started
        self._elapsed_s = elapsed_s
        self._kept: dict[str, _Kept] = {}
        self._name = kept_by(service.project)

    def run(self, ended: threading.Event, say: Callable[[str], None]) -> None:
        """Look again and again until the service ends; the jobs do not."""
        while not ended.wait(LOOK_S):
            try:
                self.tend(say)
            except (LockstepError, OSError) as error:
                say(f"jobs cannot be looked at now, trying again: {error}")
                ended.wait(PAUSE_MIN_S)

    def tend(self, say: Callable[[str], None]) -> None:
        """Start what is missing."""
        for job in self._service.living_jobs():
            kept = self._kept.setdefault(job, _Kept())
            self._reap(kept)
            if kept.process is None and self._elapsed_s() >= kept.not_before_s and self._is_missing(job, kept.dead):
                kept.process, kept.started_s = self._start(job), self._elapsed_s()
                say(f"{job}: coordinated by process {kept.process.pid}, log in {self._service.folder(job) / LOG}")

    def kept(self) -> list[str]:
        """The jobs that are wanted and kept running by this service."""
        return [job for job in self._service.living_jobs() if self._is_ours(job)]

    def _is_ours(self, job: str) -> bool:
        store = self._service.store(job)
        return store.fact(SUBMITTED) == self._name and wanted_run(store) is not None

    def _is_missing(self, job: str, dead: str) -> bool:
        return self._is_ours(job) and self._service.store(job).holder(LEASE) in (None, dead)

    def _reap(self, kept: _Kept) -> None:
        """Notice that a coordinator has ended."""
        if kept.process is None or (code := kept.process.poll()) is None:
            return
        now_s = self._elapsed_s()
        kept.pause_s = next_pause_s(kept.pause_s, now_s - kept.started_s, code)
        kept.dead, kept.process, kept.not_before_s = str(kept.process.pid), None, now_s + kept.pause_s

    def _started(self, job: str) -> Process:
        """In a session of its own: neither Ctrl-C nor a kill of the service reaches it."""
        with opened_log(self._service.folder(job) / LOG) as log:
            return subprocess.Popen(
                [sys.executable, "-m", "lockstep.control.coordinator.coordinate", job, str(self._service.project)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._service.project,
                env=process_environment(),
                start_new_session=True,
            )
