"""A job that this program runs or has run, to look at: where it lives, how it is, what it has published."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.clock import wall_us
from lockstep.config import STORE_FOLDER, load_settings
from lockstep.connect.letters import dead_letters
from lockstep.control.status.overview import Watcher
from lockstep.control.status.report import status_report
from lockstep.library.picture import SHOWN_S, job_html, job_line
from lockstep.library.rows import SinkRows, readable_sinks, sink_rows
from lockstep.plan.graph import Graph
from lockstep.store.home import job_folder
from lockstep.store.opening import absolute, open_store
from lockstep.store.protocols import Published, Store

_EPOCHS_SHOWN_MAX = round(SHOWN_S / 0.1)
"""At the shortest interval between epochs."""


@dataclass(eq=False)
class Home:
    """Where a job lives: a project folder, which goes with this object if it is a temporary one."""

    project: Path
    temporary: bool

    @staticmethod
    def given(project: str | os.PathLike[str]) -> Home:
        """The folder of a project, made if it is not there."""
        folder = Path(project).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return Home(folder, temporary=False)

    @staticmethod
    def new(job: str) -> Home:
        """A temporary folder, gone when nobody holds this object any more, at the latest when this program ends."""
        folder = Path(tempfile.mkdtemp(prefix=f"lockstep-{job}-")).resolve()
        home = Home(folder, temporary=True)
        weakref.finalize(home, _remove, folder, os.getpid())
        return home

    @property
    def text(self) -> str:
        """The same for people."""
        if self.temporary:
            return f"in the temporary folder {self.project}, which goes with this object; project=... keeps one"
        return f"in {self.project / STORE_FOLDER}"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked from this one
        shutil.rmtree(folder, ignore_errors=True)


class JobView:
    """What :class:`RunningJob` and :class:`JobResult` have in common."""

    def __init__(self, graph: Graph, home: Home) -> None:
        self._graph = graph
        self._home = home

    @property
    def job(self) -> str:
        """The job's name."""
        return self._graph.name

    @property
    def project(self) -> Path:
        """The project folder: relative paths of the job begin there, and `.lockstep` in it is all that the job keeps.

        `lockstep --project FOLDER status` and all other commands work on it.
        """
        return self._home.project

    @property
    def sinks(self) -> tuple[str, ...]:
        """The names of the sinks, as :meth:`read` takes them."""
        return tuple(readable_sinks(self._graph))

    def read(self, sink: str | None = None, *, epochs: Iterable[int] | None = None) -> SinkRows:
        """What is published in a sink so far: whole epochs, in order. A job with one sink needs no name.

        >>> running.read("counts").pandas()  # doctest: +SKIP

        ``epochs`` picks some of them. A sink that keeps one row for each key (``key=``) has the newest ones.
        """
        return sink_rows(self._graph, sink, self.project, epochs)

    def status(self) -> dict[str, Any]:
        """How the job is: what `lockstep status --json` prints.

        >>> running.status()["state"]  # doctest: +SKIP
        'healthy'
        """
        with self._store() as store:
            return self._status(store)

    def _status(self, store: Store) -> dict[str, Any]:
        with closing(dead_letters(self.project / STORE_FOLDER, self.job, store)) as letters:
            return status_report(self.job, store, Watcher(store, letters).look(wall_us()))

    @contextmanager
    def _store(self) -> Iterator[Store]:
        store = open_store(absolute(load_settings(self.project).store, self.project), self.job)
        try:
            yield store
        finally:
            store.close()

    @property
    def _folder(self) -> Path:
        return job_folder(self.project / STORE_FOLDER, self.job)

    def __repr__(self) -> str:
        return f"<{job_line(self.status())}>"

    def _repr_html_(self) -> str:
        """The job, its replicas and how late results were, for notebooks."""
        with self._store() as store:
            return job_html(self._status(store), _published(store), self._home.text)


def _published(store: Store) -> list[Published]:
    head = store.head()
    return [] if head is None else store.published(max(0, head.epoch - _EPOCHS_SHOWN_MAX), head.epoch)


class JobResult(JobView):
    """What ``job.run()`` gives: a job that is over, and what it published.

    >>> result = job.run()                      # doctest: +SKIP
    >>> result.read("counts").arrow()           # doctest: +SKIP
    """
