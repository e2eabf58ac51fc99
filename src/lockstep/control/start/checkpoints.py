"""Where the replicas of a job keep their checkpoints, settled before the first one starts: folders, or an address."""

from __future__ import annotations

import re
import secrets

from lockstep.errors import ServiceError
from lockstep.store.protocols import Facts, Store

CHECKPOINTS = "checkpoints"
"""Fact: the address below which the job's checkpoints are, or :data:`FOLDERS`."""
FOLDERS = "folders"
_ADDRESS = re.compile(r"(?:hdfs://[\w.-]+(?::\d+)?|s3a://[\w.-]+|file://)(?:/[\w.-]+)+/?")
"""Plain letters: Spark does not read its own state in folders whose names have others."""


def settle_checkpoints(store: Store, job: str, wanted: str) -> str:
    """The address of this job's checkpoints, below the one that is ``wanted``; empty if they are in folders.

    It has a name of its own, since another store may have a job of the same name, and another history of it. LS0700 if
    the job began with another setting, LS0701 if no checkpoint can be there.
    """
    if wanted and _ADDRESS.fullmatch(wanted) is None:
        raise _no_address(wanted)
    held, begins = store.fact(CHECKPOINTS), store.head() is None
    if held is None or (begins and not _fits(wanted, job, held)):
        # Nothing was sealed: there is no state. A job of an older release has it in folders.
        held = f"{wanted.rstrip('/')}/{job}.{secrets.token_hex(4)}" if begins and wanted else FOLDERS
        store.set_fact(CHECKPOINTS, held)
    if not _fits(wanted, job, held):
        raise _fixed(job, held)
    return held if wanted else ""


def refuse_at_address(store: Facts, job: str, what: str) -> None:
    """Refuse what is done with checkpoints in folders only. LS0705 for a job that has them at an address."""
    held = store.fact(CHECKPOINTS)
    if held not in (None, FOLDERS):
        raise ServiceError(
            "LS0705",
            f'{what} is not possible for job "{job}"',
            why=f"its checkpoints are at {held}, and this works with checkpoints in folders of its hosts.",
            hint="leave checkpoints out of lockstep.toml where replicas have local masters: they need no address.",
        )


def _fits(wanted: str, job: str, held: str) -> bool:
    """Whether what the job has is where it is wanted."""
    return held == FOLDERS if not wanted else held.rpartition(".")[0] == f"{wanted.rstrip('/')}/{job}"


def _no_address(wanted: str) -> ServiceError:
    return ServiceError(
        "LS0701",
        f'checkpoints cannot be at "{wanted}"',
        why="Spark and Lockstep both work with them, each by its own way of reaching a system.",
        hint='in lockstep.toml: checkpoints = "hdfs://HOST:PORT/FOLDER", "s3a://BUCKET/FOLDER" or '
        '"file:///FOLDER", with plain letters, digits, ".", "_" and "-" in the folders\' names.',
    )


def _fixed(job: str, held: str) -> ServiceError:
    return ServiceError(
        "LS0700",
        f'job "{job}" was begun with its checkpoints in {"folders of its hosts" if held == FOLDERS else held}',
        why="its state is there.",
        hint="set checkpoints in lockstep.toml as it was, or give Job(...) another name and its sinks other places.",
    )
