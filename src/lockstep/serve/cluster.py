"""What the jobs of a project run on: whether the store answers, who coordinates each job, hosts, executors."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from lockstep import __version__
from lockstep.agent.serving import free_memory_bytes
from lockstep.control.coordinator.taking_over import TERM
from lockstep.control.status.overview import spares
from lockstep.credentials import without_secrets
from lockstep.errors import LockstepError
from lockstep.runtime.desired_run import LEASE, DesiredRun, last_run
from lockstep.serve import models
from lockstep.serve.service import Service
from lockstep.store.opening import announced_hosts, embedded_folder, members_at
from lockstep.store.patience import patience
from lockstep.store.protocols import BOOTING, COMPUTING, NO_EXECUTORS, Progress

PATIENCE_S = 2.0
"""Of one call: a page about a store that does not answer has to say so soon."""
JOBS_MAX = 200
_LOCAL_CORES = re.compile(r"local\[(\d+)")
_LIVING = COMPUTING | BOOTING | {"draining"}


@dataclass(frozen=True)
class _Seen:
    """What the store says of one job."""

    coordinated: models.Coordinated
    master: str = ""
    replicas: Sequence[Progress] = ()
    spares: Sequence[Mapping[str, Any]] = ()


def cluster(service: Service) -> models.Cluster:
    """All of it. While the store does not answer, that is what is said."""
    with patience(PATIENCE_S):
        begun_s = time.monotonic()
        hosts: Mapping[str, Mapping[str, Any]] = {}
        seen: list[_Seen] = []
        trouble = ""
        try:
            hosts = announced_hosts(service.address)
            took_ms = (time.monotonic() - begun_s) * 1000
            seen = [_seen(service, job) for job in service.jobs()[:JOBS_MAX]]
        except LockstepError as error:
            took_ms = (time.monotonic() - begun_s) * 1000
            trouble = f"{error.code} {error.fact}"
    return models.Cluster(
        store=_store(service.address, took_ms, trouble),
        coordinators=[one.coordinated for one in seen],
        hosts=rooms(hosts, seen),
        executors=[_executors(one, replica) for one in seen for replica in one.replicas if _has_executors(replica)],
    )


def _store(address: str, took_ms: float, trouble: str) -> models.StoreState:
    members = [
        models.StoreMember(
            address=one.address,
            mode=one.mode,
            version=one.version,
            took_ms=round(one.took_ms, 1),
            trouble=without_secrets(one.trouble),
        )
        for one in members_at(address)
    ]
    return models.StoreState(
        kind="zookeeper" if embedded_folder(address) is None else "sqlite",
        address=without_secrets(address),
        answers=not trouble,
        took_ms=round(took_ms, 1),
        trouble=without_secrets(trouble),
        members=members,
    )


def _seen(service: Service, job: str) -> _Seen:
    """One job; its trouble, where it cannot be read, hides no other."""
    try:
        store = service.store(job)
        order = last_run(store)
        coordinated = models.Coordinated(
            job=job,
            wanted=order is not None and order.wanted,
            coordinator=store.holder(LEASE),
            term=int(store.fact(TERM) or 0),
        )
        living = [one for one in store.progress() if one.state in _LIVING] if coordinated.wanted else []
        return _Seen(coordinated, _master(order), living, spares(store))
    except LockstepError as error:
        said = f"{error.code} {error.fact}"
        return _Seen(models.Coordinated(job=job, wanted=False, coordinator=None, term=0, trouble=said))


def _master(order: DesiredRun | None) -> str:
    return str(dict(order.settings.get("spark") or {}).get("master", "")) if order is not None else ""


def _has_executors(said: Progress) -> bool:
    return said.executors != NO_EXECUTORS


def _executors(seen: _Seen, said: Progress) -> models.ReplicaExecutors:
    return models.ReplicaExecutors(
        job=seen.coordinated.job,
        replica=said.replica,
        master=without_secrets(seen.master),
        executors=said.executors,
        lost=said.executors_lost,
    )


def rooms(hosts: Mapping[str, Mapping[str, Any]], seen: Sequence[_Seen]) -> list[models.HostRoom]:
    """Each host and what it has free; the one of the service where no agent is announced."""
    if not hosts:
        return [_room(platform.node(), _here(), seen, {"", platform.node()})]
    return [_room(name, said, seen, {name}) for name, said in sorted(hosts.items())]


def _here() -> dict[str, Any]:
    memory = psutil.virtual_memory()
    return {
        "cores": os.cpu_count() or 1,
        "memory_bytes": memory.total,
        "memory_free_bytes": free_memory_bytes(),
        "version": __version__,
    }


def _room(name: str, said: Mapping[str, Any], seen: Sequence[_Seen], names: set[str]) -> models.HostRoom:
    there = [(one, replica) for one in seen for replica in one.replicas if replica.host in names]
    cores = int(said.get("cores", 0))
    free = said.get("memory_free_bytes")
    return models.HostRoom(
        host=name,
        address=str(said.get("address", "")),
        version=str(said.get("version", "")),
        cores=cores,
        cores_free=cores - sum(cores_of(one.master) for one, _ in there),
        memory_bytes=int(said.get("memory_bytes", 0)),
        memory_free_bytes=None if free is None else int(free),
        replicas=[f"{one.coordinated.job}/{replica.replica}" for one, replica in there],
        spares=sum(str(spare.get("host", "")) in names for one in seen for spare in one.spares),
    )


def cores_of(master: str) -> int:
    """With how many cores a replica computes on its own host.

    >>> cores_of("local[4]"), cores_of("local"), cores_of("spark://h1:7077")
    (4, 1, 1)
    """
    found = _LOCAL_CORES.match(master)
    return int(found[1]) if found else 1
