"""A job's store in ZooKeeper: its parts put together, and the jobs that have one."""

from __future__ import annotations

from lockstep.clock import Clock, wall_us
from lockstep.faults.switch import switch
from lockstep.store.faulty import with_faults
from lockstep.store.protocols import Store
from lockstep.store.zookeeper.address import parsed
from lockstep.store.zookeeper.client import Call, leave, shared
from lockstep.store.zookeeper.facts import ZookeeperFacts
from lockstep.store.zookeeper.judgements import ZookeeperJudgements
from lockstep.store.zookeeper.ledger import ZookeeperLedger
from lockstep.store.zookeeper.replicas import ZookeeperIncarnations
from lockstep.store.zookeeper.telemetry import ZookeeperTelemetry


class ZookeeperStore(ZookeeperLedger, ZookeeperIncarnations, ZookeeperJudgements, ZookeeperFacts, ZookeeperTelemetry):
    """Implements :class:`lockstep.store.protocols.Store`."""


def open_store(address: str, job: str, clock: Clock = wall_us) -> Store:
    """The store of ``job``; it connects with the first call."""
    store = ZookeeperStore(parsed(address), job, clock)
    return store if switch.folder is None else with_faults(store, switch.folder)


def list_jobs(address: str) -> list[str]:
    """The jobs that have a store at the address, by name."""
    where, user = parsed(address), object()
    try:
        call = Call(shared(where.hosts, id(user)))
        jobs = call.children(f"{where.root}/jobs")
        formats = call.look_all([f"{where.root}/jobs/{job}/format" for job in jobs])
        return sorted(job for job, found in zip(jobs, formats, strict=True) if found is not None)
    finally:
        leave(where.hosts, id(user))
