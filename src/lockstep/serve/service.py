"""What the service knows: the project, its jobs, and their stores, opened once and kept.

Routes, pages and the command line ask here; nothing here knows HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.clock import Clock, wall_us
from lockstep.config import STORE_FOLDER, Settings, load_settings
from lockstep.connect.letters import dead_letters
from lockstep.control.operations.verbs import JobVerbs
from lockstep.control.status.overview import Overview, Watcher
from lockstep.errors import ServiceError
from lockstep.runtime.desired_run import RUN_BEGAN
from lockstep.store.dead_letters import DeadLetters
from lockstep.store.home import job_folder
from lockstep.store.names import checked_name
from lockstep.store.opening import absolute, is_being_deleted, list_jobs, open_store
from lockstep.store.protocols import Store


@dataclass
class _Opened:
    """A job whose store is open."""

    store: Store
    letters: DeadLetters
    began: str | None
    """The run that the watcher looks at: it reads the settings of one run."""
    watcher: Watcher
    lock: threading.Lock = field(default_factory=threading.Lock)


class Service:
    """The jobs of one project. Safe to use from several threads.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     service = Service(Path(folder))
    ...     service.jobs()
    ...     service.close()
    []
    """

    def __init__(self, project: Path, clock: Clock = wall_us) -> None:
        self.project = project.resolve()
        self.clock = clock
        self.settings: Settings = load_settings(self.project)
        self.address = absolute(self.settings.store, self.project)
        self.on_close: list[Callable[[], None]] = []
        """What others opened for this service is given back with it."""
        self._opened: dict[str, _Opened] = {}
        self._lock = threading.Lock()

    @property
    def home(self) -> Path:
        """Where the project's journals and the folders of its jobs are on this host."""
        return self.project / STORE_FOLDER

    def jobs(self) -> list[str]:
        """The names of all jobs."""
        return list_jobs(self.address)

    def living_jobs(self) -> list[str]:
        """Those of them that nobody has begun to delete: the stores of the others cannot be opened."""
        return [job for job in self.jobs() if not is_being_deleted(self.address, job)]

    def folder(self, job: str) -> Path:
        """Everything of one job on this host."""
        return job_folder(self.home, job)

    def store(self, job: str) -> Store:
        """The store of a job, kept open: whoever asks does not close it. LS0760 if there is no such job."""
        return self._open(job).store

    def verbs(self, job: str) -> JobVerbs:
        """What can be asked of a job."""
        return JobVerbs(self.store(job), job, self.clock)

    def look(self, job: str) -> Overview:
        """How a job is now. Its events are those since the last look, whoever took it: use the store's for all."""
        opened = self._open(job)
        with opened.lock:
            began = opened.store.fact(RUN_BEGAN)
            if began != opened.began:
                opened.began, opened.watcher = began, Watcher(opened.store, opened.letters)
            return opened.watcher.look(self.clock())

    def close(self) -> None:
        """Give all stores back."""
        while self.on_close:
            self.on_close.pop()()
        with self._lock:
            for opened in self._opened.values():
                _close(opened)
            self._opened.clear()

    def _open(self, job: str) -> _Opened:
        checked_name("job", job)
        with self._lock:
            opened = self._opened.get(job)
            if opened is None:
                # Opening one makes it if it is not there.
                if job not in self.jobs():
                    raise unknown_job(job, self.jobs())
                opened = self._opened[job] = self._newly_opened(job)
            return opened

    def _newly_opened(self, job: str) -> _Opened:
        with ExitStack() as undo:
            store = open_store(self.address, job, self.clock)
            undo.callback(store.close)
            letters = dead_letters(self.home, job, store)
            undo.callback(letters.close)
            opened = _Opened(store, letters, store.fact(RUN_BEGAN), Watcher(store, letters))
            undo.pop_all()
            return opened

    def forget(self, job: str) -> None:
        """Give the store of a job back."""
        with self._lock:
            opened = self._opened.pop(job, None)
        if opened is not None:
            _close(opened)


def _close(opened: _Opened) -> None:
    opened.letters.close()
    opened.store.close()


def unknown_job(job: str, jobs: list[str]) -> ServiceError:
    """There is no such job."""
    there = ", ".join(jobs[:20]) or "none yet"
    return ServiceError(
        "LS0760",
        f'there is no job "{job}"',
        why=f"the jobs here are: {there}.",
        hint="`lockstep list` shows them; `lockstep submit job.py` makes one.",
    )
