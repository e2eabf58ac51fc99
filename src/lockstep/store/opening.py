"""Opening a job's store by its address: the one place that knows which kinds there are.

An address is a URI: ``sqlite:FOLDER`` is an embedded store in a folder of this host,
``zookeeper://h1:2181,h2:2181/lockstep`` one in an ensemble that several hosts share. Everything else in Lockstep holds
an address and asks here, so that a job on one laptop and one on many hosts are the same code.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from lockstep.clock import Clock, wall_us
from lockstep.errors import StoreError
from lockstep.store import sqlite_store
from lockstep.store.hosts import SqliteHosts
from lockstep.store.protocols import Hosts, Store
from lockstep.store.zookeeper import deleting
from lockstep.store.zookeeper import store as zookeeper_store
from lockstep.store.zookeeper.address import SCHEME as ZOOKEEPER
from lockstep.store.zookeeper.address import parsed
from lockstep.store.zookeeper.hosts import ZookeeperHosts
from lockstep.store.zookeeper.members import Member, members

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
    if address.startswith(ZOOKEEPER):
        return zookeeper_store.open_store(address, job, clock)
    return sqlite_store.open_store(_folder(address), job, clock)


def open_hosts(address: str, clock: Clock = wall_us) -> Hosts:
    """The registry of hosts at an address.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hosts = open_hosts(f"sqlite:{folder}")
    ...     hosts.announce("h1", {"cores": 2})
    ...     hosts.withdraw("h1")
    ...     hosts.hosts()
    ...     hosts.close()
    {}
    """
    return ZookeeperHosts(parsed(address)) if address.startswith(ZOOKEEPER) else SqliteHosts(_folder(address), clock)


def announced_hosts(address: str) -> dict[str, dict[str, Any]]:
    """The hosts that are announced at an address now, with what they said of themselves.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     announced_hosts(f"sqlite:{folder}")
    {}
    """
    registry = open_hosts(address)
    try:
        return registry.hosts()
    finally:
        registry.close()


def members_at(address: str) -> list[Member]:
    """The members of the ensemble at an address, as each answers; none where the store is a folder.

    >>> members_at("sqlite:.lockstep")
    []
    """
    return members(parsed(address)) if address.startswith(ZOOKEEPER) else []


def lock_file(address: str, job: str) -> Path | None:
    """The file whose write lock everybody who uses an embedded store waits for; None for one that has no such lock.

    A process that is stopped while it holds that lock holds up the whole job: whoever keeps the job going has to see
    who that is without asking the store.
    """
    folder = embedded_folder(address)
    return None if folder is None else sqlite_store.ledger_file(folder, job)


def list_jobs(address: str) -> list[str]:
    """The jobs that have a store at an address, by name."""
    if address.startswith(ZOOKEEPER):
        return zookeeper_store.list_jobs(address)
    return sqlite_store.list_jobs(_folder(address))


def is_being_deleted(address: str, job: str) -> bool:
    """Whether somebody has begun to delete a job at an address that several hosts share."""
    return address.startswith(ZOOKEEPER) and deleting.is_being_deleted(parsed(address), job)


def begin_deleting(address: str, job: str, hosts: Collection[str]) -> None:
    """Nobody opens the store of a job any more, at an address that several hosts share (LS0427); these hosts have
    something of it."""
    deleting.begin_deleting(parsed(address), job, hosts)


def hosts_to_ask(address: str, job: str) -> list[str]:
    """The hosts that had something of a job when somebody began to delete it."""
    return deleting.hosts_to_ask(parsed(address), job)


def delete_shared(address: str, job: str) -> None:
    """Remove all that such a store has of a job; to be repeated if it was cut off."""
    deleting.delete_nodes(parsed(address), job)


def _folder(address: str) -> Path:
    folder = embedded_folder(address)
    if folder is None:
        raise _unknown(address)
    return folder


def _unknown(address: str) -> StoreError:
    return StoreError(
        "LS0420",
        f'there is no kind of store for the address "{address}"',
        why="an address begins with the kind of store: sqlite:FOLDER or zookeeper://HOST:PORT,.../PATH.",
        hint='write store = "sqlite:.lockstep" in lockstep.toml, or leave it out.',
    )
