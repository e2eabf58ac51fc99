"""The project folder as commands see it: which jobs it has, and opening their stores."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lockstep.errors import EnvironmentError_

if TYPE_CHECKING:
    from lockstep.store.protocols import Store


@dataclass(frozen=True)
class Project:
    """A project folder."""

    folder: Path

    @property
    def home(self) -> Path:
        """Where the project's journals and everything else of Lockstep's on this host is."""
        # Imported late, here and elsewhere: pydantic takes a tenth of a second to load, and `plan` does not need it.
        from lockstep.config import STORE_FOLDER

        return self.folder / STORE_FOLDER

    @cached_property
    def address(self) -> str:
        """Where the stores of the project's jobs are."""
        from lockstep.config import load_settings
        from lockstep.store.opening import absolute

        return absolute(load_settings(self.folder).store, self.folder)

    def jobs(self) -> list[str]:
        """The names of the jobs that have run here."""
        from lockstep.store.opening import list_jobs

        return list_jobs(self.address)

    def job(self, name: str | None) -> str:
        """``name`` if there is such a job; without a name, the only job there is."""
        jobs = self.jobs()
        if not jobs:
            raise EnvironmentError_(
                "LS0003",
                f"no job has run in {self.folder}",
                why=f"there is no {self.home.name}/jobs in it.",
                hint="start one with `lockstep run job.py`, or name its folder: lockstep --project DIR ...",
            )
        if name in jobs:
            return name
        if name is None and len(jobs) == 1:
            return jobs[0]
        raise which_job(name, jobs)

    @contextmanager
    def open_store(self, name: str | None) -> Iterator[tuple[str, Store]]:
        """The job's name and its store, closed at the end."""
        from lockstep.store.opening import open_store

        job = self.job(name)
        store = open_store(self.address, job)
        try:
            yield job, store
        finally:
            store.close()


def project_of(context: typer.Context) -> Project:
    """The project that the global options named."""
    project = context.obj
    if not isinstance(project, Project):
        raise AssertionError("the app's callback sets the project before any command runs")
    return project


def which_job(name: str | None, jobs: list[str]) -> EnvironmentError_:
    """The job that is meant cannot be told, or is not there."""
    there = ", ".join(jobs)
    if name is None:
        return EnvironmentError_(
            "LS0004", f"there are {len(jobs)} jobs here", why=f"they are: {there}.", hint=f"name one, e.g. {jobs[0]}."
        )
    near = difflib.get_close_matches(name, jobs, n=1, cutoff=0.4)
    hint = f'did you mean "{near[0]}"?' if near else f"name one of them, e.g. {jobs[0]}."
    return EnvironmentError_("LS0004", f'no job "{name}" has run here', why=f"there are: {there}.", hint=hint)
