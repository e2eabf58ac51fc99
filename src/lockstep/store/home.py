"""What Lockstep keeps on this host (".lockstep"), whatever store the jobs have: a folder for each of them."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from lockstep.store.names import checked_name

JOBS_FOLDER = "jobs"
DELETED_FOLDER = "deleted"


def job_folder(home: Path, job: str) -> Path:
    """Everything of one job on this host: checkpoints, staged files, logs, and an embedded store.

    >>> job_folder(Path(".lockstep"), "failed-logins").as_posix()
    '.lockstep/jobs/failed-logins'
    """
    return home / JOBS_FOLDER / checked_name("job", job)


def list_job_folders(home: Path) -> list[str]:
    """The names of all folders of jobs, those too of which nobody can say whether they have a store."""
    try:
        return sorted(path.name for path in (home / JOBS_FOLDER).iterdir())
    except FileNotFoundError:
        return []


def set_job_aside(home: Path, job: str) -> Path:
    """Put everything of a job on this host out of the way in one act, since half a job is none; where it is to be
    removed from."""
    aside, folder = home / DELETED_FOLDER, job_folder(home, job)
    while folder.exists():
        aside.mkdir(exist_ok=True, parents=True)
        # Whoever removes what another deletion put aside may do so in between.
        with suppress(FileNotFoundError):
            folder.rename(aside / f"{job}-{secrets.token_hex(4)}")
    return aside
