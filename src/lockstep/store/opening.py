"""Opening a job's store by its address: the one place that knows which kinds there are.

An address is a URI: ``sqlite:FOLDER`` is an embedded store in a folder of this host. Everything else in Lockstep holds
an address and asks here, so that a job on one laptop and one on many hosts are the same code.
"""

from __future__ import annotations

from pathlib import Path

from lockstep.clock import Clock, wall_us
from lockstep.errors import StoreError
from lockstep.store import sqlite_store
from lockstep.store.protocols import Store

SQLITE = "sqlite:"


def address_in(folder: Path) -> str:
    """The address of the embedded store in a folder (".lockstep").

    >>> address_in(Path("/srv/job/.lockstep"))
    'sqlite:/srv/job/.lockstep'
    """
    return f"{SQLITE}{folder}"


def absolute(address: str, project: Path) -> str:
    """The address as every process of the job understands it, wherever it works: folders are the project's.

    >>> absolute("sqlite:.lockstep", Path("/srv/job"))
    'sqlite:/srv/job/.lockstep'
    """
    folder = embedded_folder(address)
    return address if folder is None else address_in((project / folder).resolve())


def embedded_folder(address: str) -> Path | None:
    """The folder of an embedded store, None for one that several hosts share."""
    return Path(address.removeprefix(SQLITE)) if address.startswith(SQLITE) else None


def open_store(address: str, job: str, clock: Clock = wall_us) -> Store:
    """The store of ``job`` at an address, created if it is not there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"sqlite:{folder}", "failed-logins")
    ...     store.begin("r0", pid=1)
    ...     store.close()
    Holder(replica='r0', incarnation=1)
    """
    folder = embedded_folder(address)
    if folder is None:
        raise _unknown(address)
    return sqlite_store.open_store(folder, job, clock)


def lock_file(address: str, job: str) -> Path | None:
    """The file whose write lock everybody who uses an embedded store waits for; None for one that has no such lock.

    A process that is stopped while it holds that lock holds up the whole job: whoever keeps the job going has to see
    who that is without asking the store.
    """
    folder = embedded_folder(address)
    return None if folder is None else sqlite_store.ledger_file(folder, job)


def list_jobs(address: str) -> list[str]:
    """The jobs that have a store at an address, by name."""
    folder = embedded_folder(address)
    if folder is None:
        raise _unknown(address)
    return sqlite_store.list_jobs(folder)


def _unknown(address: str) -> StoreError:
    return StoreError(
        "LS0420",
        f'there is no kind of store for the address "{address}"',
        why="an address begins with the kind of store: sqlite:FOLDER.",
        hint='write store = "sqlite:.lockstep" in lockstep.toml, or leave it out.',
    )
