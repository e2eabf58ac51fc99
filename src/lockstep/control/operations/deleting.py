"""Forgetting a job that has stopped, wherever it has something: on this host, on others, and in the store.

Where hosts share the store, the order is: nobody opens the job any more; the folders on all hosts go; the nodes of the
store go, the job's name last. Whoever is cut off in between repeats it from the beginning.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from lockstep.agent.client import AgentClient
from lockstep.agent.contact import Contact
from lockstep.config import HostSettings
from lockstep.control.hosts.host_directory import contacts_at, hosts_used
from lockstep.errors import LockstepError, ServiceError
from lockstep.runtime.desired_run import LEASE, last_run
from lockstep.runtime.state.recovery import state_at
from lockstep.store.dead_letters import journal_name
from lockstep.store.home import set_job_aside
from lockstep.store.journal import JOURNALS_FOLDER
from lockstep.store.opening import (
    begin_deleting,
    delete_shared,
    embedded_folder,
    hosts_to_ask,
    is_being_deleted,
)
from lockstep.store.protocols import Store

LEASE_S = 10.0


@dataclass(frozen=True)
class Deletion:
    """Of one job. ``open_store`` gives its store, and ``close_store`` gives it back."""

    job: str
    address: str
    home: Path
    hosts: HostSettings
    open_store: Callable[[], Store]
    close_store: Callable[[], None]

    def run(self, *, force: bool = False) -> None:
        """Forget it; LS0763 if it runs, or a host that has state of it cannot be asked, unless that is to be left."""
        if embedded_folder(self.address) is not None:
            self._check_stopped(self.open_store())
            self.close_store()
            self._remove_here()
            return
        if not is_being_deleted(self.address, self.job):
            self._begin(force=force)
        self._remove_elsewhere(force=force)
        delete_shared(self.address, self.job)
        self._remove_here()

    def _check_stopped(self, store: Store) -> None:
        order = last_run(store)
        if store.holder(LEASE) is not None or (order is not None and order.wanted):
            raise job_runs(self.job, "deleted")

    def _begin(self, *, force: bool) -> None:
        """From the end of this on nobody opens it; until then nobody else can begin to coordinate it."""
        store = self.open_store()
        self._check_stopped(store)
        known = _hosts_with_state(store)
        self._check_present(known, contacts_at(self.address, self.hosts), force=force)
        if not store.acquire(LEASE, f"delete.{socket.gethostname()}.{os.getpid()}", LEASE_S):
            raise job_runs(self.job, "deleted")
        self._check_wanted(store)
        begin_deleting(self.address, self.job, known)
        self.close_store()

    def _check_wanted(self, store: Store) -> None:
        """Somebody may have started it between the look and the lease."""
        order = last_run(store)
        if order is not None and order.wanted:
            store.release(LEASE, store.holder(LEASE) or "")
            raise job_runs(self.job, "deleted")

    def _check_present(self, known: Collection[str], there: Collection[str], *, force: bool) -> None:
        absent = set(known) - set(there)
        if absent and not force:
            raise _not_asked(self.job, sorted(absent), "no agent of it is announced")

    def _remove_elsewhere(self, *, force: bool) -> None:
        contacts = contacts_at(self.address, self.hosts)
        self._check_present(hosts_to_ask(self.address, self.job), contacts, force=force)
        for host, contact in contacts.items():
            try:
                self._remove_at(contact)
            except (LockstepError, OSError) as error:
                if not force:
                    raise _not_asked(self.job, [host], str(error).splitlines()[0]) from error

    def _remove_at(self, contact: Contact) -> None:
        client = AgentClient(contact, self.job)
        try:
            client.delete()
        finally:
            client.close()

    def _remove_here(self) -> None:
        shutil.rmtree(set_job_aside(self.home, self.job), ignore_errors=True)
        shutil.rmtree(self.home / JOURNALS_FOLDER / journal_name(self.job), ignore_errors=True)


def _hosts_with_state(store: Store) -> set[str]:
    """Where replicas live, last had their state, or could have lived: each of these has a folder of the job."""
    said = store.progress()
    found = {one.host for one in said} | {store.fact(state_at(one.replica)) or "" for one in said}
    return (found | set(hosts_used(store))) - {""}


def job_runs(job: str, what: str) -> ServiceError:
    """It runs, so something cannot be done with it."""
    return ServiceError(
        "LS0763",
        f'job "{job}" is running, so it cannot be {what}',
        why="it is wanted, or somebody still coordinates it.",
        hint=f"stop it first: lockstep stop {job}.",
    )


def _not_asked(job: str, hosts: list[str], why: str) -> ServiceError:
    return ServiceError(
        "LS0763",
        f'job "{job}" cannot be deleted: {", ".join(hosts)} has a folder of it and does not answer',
        why=f"{why}. A later job of this name would take what is there for its own state.",
        hint="start `lockstep agent` there and repeat this; if that host is gone for good, add --force.",
    )
