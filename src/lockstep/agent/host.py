"""`lockstep agent`: a host's own agent, which serves all jobs, says what the host has, and keeps who may coordinate."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.agent import bundles
from lockstep.agent.candidate import DESIRED_FILE, Candidate
from lockstep.agent.hosting import Here, HostedJob
from lockstep.agent.leftovers import end_leftovers
from lockstep.agent.server import BUNDLES, Mount, Request, Route
from lockstep.agent.serving import Agent, free_memory_bytes
from lockstep.agent.spare_processes import MachineProcesses
from lockstep.config import STORE_FOLDER, HostSettings
from lockstep.connect.disk import make_folders
from lockstep.connect.remote.paths import location
from lockstep.errors import LockstepError, ServiceError, StoreError
from lockstep.runtime.desired_run import DESIRED, LEASE
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spec import replica_folder
from lockstep.runtime.state.folders import put_checkpoints, standings
from lockstep.runtime.transfer import serving as transfer
from lockstep.runtime.transfer.offers import Offers, PeersOfStore
from lockstep.store.home import job_folder, list_job_folders, set_job_aside
from lockstep.store.names import checked_name
from lockstep.store.opening import is_being_deleted, list_jobs, open_hosts, open_store
from lockstep.store.protocols import Store

ANNOUNCE_INTERVAL_S = 1.0
_STAGES_MAX = 1000
_STATE = re.compile(r"[0-9a-f]{32}")
_PROBE = re.compile(r"\.lockstep-probe-[0-9a-f]{16}")


@dataclass(frozen=True)
class Host:
    """What a host is told when its agent is started."""

    name: str
    folder: Path
    """What a project folder is elsewhere: relative paths of jobs are below it, and ``.lockstep`` is in it."""
    store: str
    address: str
    """``http://HOST:PORT``, as other hosts reach it."""
    settings: HostSettings

    @property
    def home(self) -> Path:
        """Where Lockstep keeps what it has on this host."""
        return self.folder / STORE_FOLDER


class HostAgent(Agent):
    """Serves until it is stopped, whatever becomes of its jobs."""

    lives_on = True

    def __init__(self, host: Host) -> None:
        super().__init__({})
        self._host = host
        self._here = Here(host.folder, host.home, host.name, host.settings.model_dump(mode="json"))
        self._candidates: dict[str, Candidate] = {}
        self._stores: dict[str, Store] = {}
        self._stores_lock = threading.Lock()
        self._ended = threading.Event()
        self.instance = secrets.token_hex(8)

    def prepare(self) -> list[str]:
        """End what an earlier agent left here, and take up the jobs that are still wanted; their names."""
        process_environment()
        taken_up = []
        for name in list_job_folders(self._host.home):
            folder = job_folder(self._host.home, name)
            end_leftovers(folder)
            order = self._kept_order(name, folder / DESIRED_FILE)
            if order is not None:
                self._candidate(name).take_up(order)
                taken_up.append(name)
        return taken_up

    def serve_host(self, listening: socket.socket, token: str | None, tls: ssl.SSLContext | None) -> None:
        """Announce this host and answer until it is stopped."""
        announcer = threading.Thread(target=self._announce, name="announcer", daemon=True)
        announcer.start()
        offers = Offers(self._host.home / "offers", PeersOfStore(self._host.home, self._store))
        mounts: dict[str, Mount] = {
            BUNDLES: partial(bundles.take, self._host.home),
            transfer.PREFIX: partial(transfer.answer, offers, None),
        }
        try:
            self.serve(listening, token, mounts=mounts, tls=tls)
        finally:
            for one in self._candidates.values():
                one.end()
            self._ended.set()
            announcer.join()
            offers.close()

    def routes(self) -> list[Route]:
        """Those of every agent, and what only a host is asked for."""
        return [
            Route("PUT", "/jobs/{job}", self._take_up),
            Route("DELETE", "/jobs/{job}", self._delete),
            Route("POST", "/jobs/{job}/begin", self._begin_with),
            Route("GET", "/jobs/{job}/bundles/{name}", self._has_bundle),
            Route("GET", "/jobs/{job}/standings/{stages}", self._standings),
            Route("POST", "/jobs/{job}/probe", self._probe),
            Route("POST", "/jobs/{job}/end", self.commanded(self._end_job)),
            *super().routes(),
        ]

    def _tend(self) -> float:
        again_s = super()._tend()
        return min([again_s, *(one.tend() for one in self._candidates.values())])

    def _take_up(self, request: Request) -> Mapping[str, Any]:
        name, order = checked_name("job", request.parameters["job"]), request.body["order"]
        run = order["settings"].get("run", {})

        def take_up() -> Mapping[str, Any]:
            job = self._jobs.get(name) or self._new_job(name)
            job.admit(request.term)
            job.orphan_timeout_s = float(run.get("orphan_timeout_s", job.orphan_timeout_s))
            job.stop_timeout_s = float(run.get("stop_timeout_s", job.stop_timeout_s))
            self._candidate(name).take_up(order)
            return {}

        return self.in_main_thread(take_up)

    def _new_job(self, name: str) -> HostedJob:
        folder = job_folder(self._host.home, name)
        folder.mkdir(parents=True, exist_ok=True)
        self._jobs[name] = HostedJob(name, MachineProcesses(folder), self._here)
        return self._jobs[name]

    def _end_job(self, job: HostedJob, request: Request) -> None:
        del request
        if job.job in self._candidates:
            self._candidates.pop(job.job).forget()
        job.end_at_once()

    def _delete(self, request: Request) -> Mapping[str, Any]:
        """Remove all that this host has of a job that runs nowhere; nothing happens if it has nothing."""
        name = checked_name("job", request.parameters["job"])
        is_given_up = is_being_deleted(self._host.store, name)

        def give_up() -> Mapping[str, Any]:
            if name in self._jobs:
                if not is_given_up:
                    raise ServiceError("LS0763", f'processes of job "{name}" still run on {self._host.name}')
                # Nobody can supervise it any more: what is left is what its last coordinator did not come to end.
                self._jobs.pop(name).end_at_once()
            if name in self._candidates:
                self._candidates.pop(name).forget()
            with self._stores_lock:
                store = self._stores.pop(name, None)
            if store is not None:
                store.close()
            return {"aside": set_job_aside(self._host.home, name)}

        # Removing takes long, and the thread that has the processes is not to wait for it.
        shutil.rmtree(self.in_main_thread(give_up)["aside"], ignore_errors=True)
        return {}

    def _begin_with(self, request: Request) -> Mapping[str, Any]:
        """Put state that came in a bundle in the place of a replica's checkpoints, of a job that does not run here."""
        name = checked_name("job", request.parameters["job"])
        replica, state = checked_name("replica", request.body["replica"]), str(request.body["state"])
        came = job_folder(self._host.home, name) / bundles.STATES / state
        if not _STATE.fullmatch(state) or not came.is_dir():
            raise ValueError("no state of that name has come")

        def put() -> Mapping[str, Any]:
            if name in self._jobs:
                raise ServiceError("LS0763", f'job "{name}" runs on {self._host.name} already')
            put_checkpoints(came, replica_folder(self._host.home, name, replica))
            return {}

        return self.in_main_thread(put)

    def _candidate(self, name: str) -> Candidate:
        if name not in self._candidates:
            folder = job_folder(self._host.home, name)
            on_death = partial(self._release, name)
            self._candidates[name] = Candidate(folder, self._host.folder, self._host.name, on_death)
        return self._candidates[name]

    def _release(self, name: str, identity: str) -> None:
        """Give back the lease of a coordinator of this host that was killed, so that another host goes on at once."""
        store = self._store(name)
        try:
            if store is not None:
                store.release(LEASE, identity)
        except StoreError as error:
            print(f"the lease of {identity} runs out by itself: {error}", file=sys.stderr, flush=True)

    def _has_bundle(self, request: Request) -> Mapping[str, Any]:
        folder = job_folder(self._host.home, request.parameters["job"])
        return {"there": bundles.is_there(folder, request.parameters["name"])}

    def _standings(self, request: Request) -> Mapping[str, Any]:
        folder = job_folder(self._host.home, request.parameters["job"])
        return {"standings": standings(folder, min(int(request.parameters["stages"]), _STAGES_MAX))}

    def _probe(self, request: Request) -> Mapping[str, Any]:
        """Whether hosts see each other's files: one writes, the others look."""
        body = request.body
        if not _PROBE.fullmatch(body["name"]):
            raise ValueError("no name of a probe")
        file = location(body["place"], self._host.folder) / body["name"]
        if body["act"] == "write":
            make_folders(file.parent)
            file.write_bytes(b"")
        elif body["act"] == "remove":
            file.unlink(missing_ok=True)
        return {"there": file.exists()}

    def _store(self, job: str) -> Store | None:
        with self._stores_lock:
            if job not in self._stores and job_folder(self._host.home, job).is_dir():
                self._stores[job] = open_store(self._host.store, job)
            return self._stores.get(job)

    def _kept_order(self, name: str, path: Path) -> dict[str, Any] | None:
        """What this host was told to run before its agent ended, if it is still wanted."""
        address = self._host.store
        # Opening the store of a job that was deleted meanwhile would make it anew.
        if not path.exists() or name not in list_jobs(address) or is_being_deleted(address, name):
            return None
        store = self._store(name)
        wanted = store.fact(DESIRED) if store is not None else None
        order: dict[str, Any] = json.loads(wanted) if wanted else {}
        return order if order and order["wanted"] and order == json.loads(path.read_text(encoding="utf-8")) else None

    def _announce(self) -> None:
        """Say again and again that this host is there; whoever announced it is cut off loses it, and says it anew."""
        registry = open_hosts(self._host.store)
        about = {**self.about(), "address": self._host.address, "instance": self.instance, "log": "its standard error"}
        del about["jobs"]
        while not self._ended.is_set():
            try:
                registry.announce(self._host.name, {**about, "memory_free_bytes": free_memory_bytes()})
            except StoreError as error:
                print(f"not announced: {error}", file=sys.stderr, flush=True)
            self._ended.wait(ANNOUNCE_INTERVAL_S)
        try:
            registry.withdraw(self._host.name)
            registry.close()
        except LockstepError as error:
            print(f"not withdrawn: {error}", file=sys.stderr, flush=True)
