"""A warm spare: a process that has booted all that a replica needs, and waits to be told which replica it is.

Started by the supervisor as ``python -m lockstep.runtime.start spare SPEC``. The spec names the replica whose settings
it boots with, but until it is told it acts for nobody: it holds no replica's folder, has no incarnation and seals
nothing. It warms up on repetitions of the newest epoch, which leave nothing behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lockstep.runtime.epoch.source import LockstepSource
from lockstep.runtime.orders import Orders
from lockstep.runtime.phases import Phases
from lockstep.runtime.replica import Ready, compiled, load, rehearsed, run_replica
from lockstep.runtime.spark.environment import open_session
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.sqlite_store import open_store

READY = "ready"
"""A file in the spare's folder: it has booted and is warm."""


def main(arguments: list[str]) -> None:
    """The process of one spare, and of the replica that it becomes."""
    path = Path(arguments[0])
    orders = Orders(spare=True)
    orders.start()
    ready = _booted(ReplicaSpec.read(path), path.parent, orders)
    (path.parent / READY).touch()
    orders.told.wait()
    phases = Phases("a spare", orders.told_s)
    phases.mark("boot")
    assert orders.spec_path is not None
    spec = ReplicaSpec.read(orders.spec_path)
    _log_to(spec.folder / "log.txt")
    run_replica(spec, orders, phases, ready)


def _booted(spec: ReplicaSpec, folder: Path, orders: Orders) -> Ready:
    store = open_store(Path(spec.store), spec.job)
    job = load(spec, store)
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    session = open_session(f"lockstep-{spec.job}-spare", spec.parsed_settings().spark_of(spec.replica), scratch)
    session.dataSource.register(LockstepSource)
    flag, tasks = folder / "drain", int(session.sparkContext.defaultParallelism)
    stages = compiled(job, session, spec, flag, tasks)
    warm = False
    if store.head() is not None:
        # Whoever is told while it warms up is waited for, and begins as it is.
        rehearsed(job, session, spec, flag, tasks, scratch / "warm-up", orders.told.is_set)
        warm = True
    store.close()
    return Ready(job, session, stages, flag, warm=warm)


def _log_to(path: Path) -> None:
    """From now on this process writes to the replica's log. Its JVM cannot be told to: the supervisor gathers that."""
    sys.stderr.flush()
    with path.open("ab") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
