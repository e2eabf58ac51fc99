"""The hosts that a job may use: their agents are announced at the store, and have the job's code and its order.

A thread follows the registry and brings new hosts what they need, so that the supervisor waits for nobody.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep import __version__
from lockstep.agent.bundles import STATES, bundle_id, pack
from lockstep.agent.client import AgentClient
from lockstep.agent.contact import Contact
from lockstep.config import HostSettings
from lockstep.connect.tables import TABLES
from lockstep.errors import LockstepError, RunError, ServiceError, StoreError
from lockstep.runtime.desired_run import DesiredRun
from lockstep.runtime.spark.environment import environment_hash
from lockstep.runtime.transfer.snapshots import host_token, tls_files
from lockstep.security import TlsFiles
from lockstep.store.opening import announced_hosts, open_hosts
from lockstep.store.protocols import Store

INTERVAL_S = 0.5
FIRST_S_MAX = 30.0
"""How long a run waits for the first host that can take it."""
HOSTS = "hosts"
"""Fact: all hosts that have taken the job up, those too that are gone since. Each may have state of it."""


class HostDirectory:
    """Implements :class:`lockstep.control.hosts.agents.Directory` for all hosts that share a store."""

    def __init__(self, order: DesiredRun, term: int, folder: Path, store: Store) -> None:
        self._order, self._term, self._folder, self._store = order, term, folder, store
        self._code: tuple[str, ...] = (order.job_file,)
        self._brought: dict[str, tuple[str, ...]] = {}
        """The code that a host has been brought, by its name."""
        hosts = order.parsed_settings().hosts
        self._token = host_token(hosts) or ""
        self._tls = tls_files(hosts)
        self._registry = open_hosts(order.store)
        self._ready: dict[str, Contact] = {}
        self._unfit: dict[str, str] = {}
        """Why a host is not used, by its name."""
        self._looked = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="hosts", daemon=True)
        self._thread.start()

    def contacts(self) -> Mapping[str, Contact]:
        """Those that have what the job needs."""
        return self._ready.copy()

    def lost(self, host: str, why: str) -> str:
        """It does not answer, or has forgotten the job: it is used again once it has taken it up anew."""
        self._ready.pop(host, None)
        return why

    def follow(self, orders: Sequence[DesiredRun]) -> None:
        """The job may have replicas of all these from now on: hosts are brought the code of each."""
        self._code = tuple(dict.fromkeys(order.job_file for order in orders))

    def wait(self) -> None:
        """Until a host can take the job, and every other one was looked at. LS0685 if none can."""
        deadline_s = time.monotonic() + FIRST_S_MAX
        while not (self._looked.wait(INTERVAL_S) and self._ready):
            if time.monotonic() > deadline_s:
                raise _nobody(self._unfit)

    def end(self) -> None:
        """Tell all hosts that the job is over, and follow no more."""
        self._ended.set()
        self._thread.join()
        for contact in self._ready.values():
            client = AgentClient(contact, self._order.job, self._term)
            try:
                client.end()
            except (LockstepError, OSError) as error:
                # One that does not hear it finds out that nobody supervises any more.
                self._store.add_event("host-not-told", f"{contact.host}: {error}")
            finally:
                client.close()
        self._registry.close()

    def clients(self) -> dict[str, AgentClient]:
        """A client for each host."""
        return {name: AgentClient(one, self._order.job, self._term) for name, one in self.contacts().items()}

    def leave(self) -> None:
        """The run was refused: the hosts forget it."""
        self.end()

    def forget(self) -> None:
        """Follow no more: another one supervises."""
        self._ended.set()
        self._thread.join()
        self._registry.close()

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                self._look(self._registry.hosts())
                self._looked.set()
            except StoreError as error:
                # Whoever was there is taken to be there still; the supervisor sees for itself who answers.
                self._unfit["(store)"] = str(error)
            self._ended.wait(INTERVAL_S)

    def _look(self, said: Mapping[str, Mapping[str, Any]]) -> None:
        for name in self._ready.keys() - said.keys():
            del self._ready[name]
        for name, about in said.items():
            if name in self._ready and self._ready[name].instance == about["instance"]:
                if self._brought.get(name) == self._code:
                    continue
            else:
                self._ready.pop(name, None)
            trouble = _misfit(about)
            if trouble is None:
                trouble = self._outfit(name, about)
            if trouble is not None and self._unfit.get(name) != trouble:
                self._store.add_event("host-not-used", f"{name}: {trouble}")
            self._unfit |= {name: trouble or ""}

    def _outfit(self, name: str, about: Mapping[str, Any]) -> str | None:
        """Bring one host what the job needs; why that did not work."""
        contact = contact_of(name, about, self._token, self._tls)
        client = AgentClient(contact, self._order.job, self._term)
        code, is_new = self._code, name not in self._ready
        try:
            if is_new:
                _note_used(self._store, name)
            for file in code:
                bring_code(client, self._store, self._folder, file)
            # A host that has taken it up goes by what the store says: told again, it would end who coordinates there.
            if is_new:
                client.take_up(self._order.to_json())
            self._brought[name] = code
        except (LockstepError, OSError) as error:
            return str(error)
        finally:
            client.close()
        self._ready[name] = contact
        return None


def hosts_used(store: Store) -> list[str]:
    """All hosts that may have something of a job, now or not any more."""
    return list(json.loads(store.fact(HOSTS) or "[]"))


def _note_used(store: Store, host: str) -> None:
    """Before the host has anything: deleting the job asks it, even if no replica lives there any more."""
    while host not in json.loads((held := store.fact(HOSTS)) or "[]"):
        store.swap_fact(HOSTS, held, json.dumps(sorted({*json.loads(held or "[]"), host})))


def contact_of(name: str, about: Mapping[str, Any], token: str, tls: TlsFiles | None) -> Contact:
    """How an announced agent is reached."""
    used = tls if str(about["address"]).startswith("https:") else None
    return Contact(str(about["address"]), token, str(about["log"]), name, str(about["instance"]), used)


def contacts_at(address: str, hosts: HostSettings) -> dict[str, Contact]:
    """How all agents that are announced at a store's address are reached, by host."""
    token, tls = host_token(hosts) or "", tls_files(hosts)
    return {name: contact_of(name, about, token, tls) for name, about in announced_hosts(address).items()}


def bring_state(address: str, hosts: HostSettings, job: str, state: State) -> str:
    """Have one host take the state that a replica begins with; which. LS0730 if none does."""
    troubles = []
    for name, about in sorted(announced_hosts(address).items()):
        client = AgentClient(contact_of(name, about, host_token(hosts) or "", tls_files(hosts)), job)
        try:
            if (trouble := _misfit(about)) is None:
                state.send(client)
                return name
            troubles.append(f"{name}: {trouble}")
        except (LockstepError, OSError) as error:
            troubles.append(f"{name}: {str(error).splitlines()[0]}")
        finally:
            client.close()
    raise ServiceError(
        "LS0730",
        f'no host can take the state that job "{job}" begins with',
        why=("; ".join(troubles) or "no agent is announced at the store") + ".",
        hint="start `lockstep agent` on hosts with the same packages and token; nothing has begun, so repeat this.",
    )


@dataclass(frozen=True)
class State:
    """Checkpoints in a folder of this host, one for each stage, for a replica."""

    replica: str
    folder: Path
    stages: Sequence[str]
    id: str
    """32 hexadecimal digits: what is sent is known by it."""

    def send(self, client: AgentClient) -> None:
        """Send all of it, and have it put in place."""
        with tempfile.TemporaryDirectory(prefix="lockstep-state-") as scratch:
            file = Path(scratch) / "state.zip"
            digest = pack(self.folder, self.stages, file, f"{STATES}/{self.id}/")
            client.put_bundle(bundle_id([f"{STATES}/{self.id}"]), file, digest)
        client.begin_with(self.replica, self.id)


def bring_code(client: AgentClient, store: Store, folder: Path, job_file: str) -> None:
    """Bring a host the code of a job, and its tables, if it does not have them."""
    hashes = json.loads(store.fact(TABLES) or "{}").values()
    parts = ["/".join(job_file.split("/")[:2]), *(f"{TABLES}/{one}" for one in hashes)]
    if client.has_bundle(bundle_id(parts)):
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-bundle-") as scratch:
        file = Path(scratch) / "bundle.zip"
        client.put_bundle(bundle_id(parts), file, pack(folder, parts, file))


def _misfit(about: Mapping[str, Any]) -> str | None:
    """Why replicas of this job cannot live on a host beside others."""
    if about["version"] != __version__:
        return f"it has Lockstep {about['version']}, and this is {__version__}"
    if about["environment"] != environment_hash():
        return "its Python, Spark or packages differ from those here, and results could differ"
    return None


def _nobody(unfit: Mapping[str, str]) -> RunError:
    reasons = "; ".join(f"{name}: {why}" for name, why in sorted(unfit.items()) if why)
    return RunError(
        "LS0685",
        "no host can take the job",
        why=(reasons or "no agent is announced at the store") + ".",
        hint="start `lockstep agent --store ADDRESS --listen HOST:PORT` on hosts with the same packages and token.",
    )
