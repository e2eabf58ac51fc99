"""A warm spare: a process that has booted all that a replica needs, and waits to be told which replica it is.

Started by the supervisor as ``python -m lockstep.runtime.start spare SPEC``. The spec names the replica whose settings
it boots with, but until it is told it acts for nobody: it holds no replica's folder, has no incarnation and seals
nothing. It warms up on repetitions of the newest epoch, which leave nothing behind, and starts the queries, which wait
for a checkpoint.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lockstep.runtime.booted import Ready, compiled, load, others_publish, warmed_up
from lockstep.runtime.epoch.source import LockstepSource
from lockstep.runtime.orders import READY, Orders
from lockstep.runtime.phases import Phases
from lockstep.runtime.replica import run_replica
from lockstep.runtime.spark.boot import booting_pid, outlive_parent
from lockstep.runtime.spark.duty_cycle import DutyCycle
from lockstep.runtime.spark.environment import open_session
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.opening import open_store
from lockstep.store.protocols import Store


def main(arguments: list[str]) -> None:
    """The process of one spare, and of the replica that it becomes."""
    path = Path(arguments[0])
    orders = Orders(spare=True)
    orders.start()
    spec = ReplicaSpec.read(path)
    slowed = _slowed_down(spec, orders)
    ready = _booted(spec, path.parent, orders)
    if slowed is not None:
        slowed.end()
    (path.parent / READY).touch()
    orders.told.wait()
    outlive_parent()
    phases = Phases("a spare", orders.told_s)
    phases.mark("boot")
    assert orders.spec_path is not None
    spec = ReplicaSpec.read(orders.spec_path)
    _log_to(spec.folder / "log.txt")
    run_replica(spec, orders, phases, ready)


def _slowed_down(spec: ReplicaSpec, orders: Orders) -> DutyCycle | None:
    """Let the JVM run a part of the time only, until it has booted or somebody waits for this spare."""
    pid = booting_pid()
    if spec.parsed_settings().run.boot_share != "duty" or pid is None or sys.platform != "linux":
        return None
    cycle = DutyCycle(pid, orders.told)
    cycle.start()
    return cycle


def _booted(spec: ReplicaSpec, folder: Path, orders: Orders) -> Ready:
    store = open_store(spec.store, spec.job)
    job = load(spec, store)
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    settings = spec.parsed_settings()
    spark, checkpoints = settings.spark_of(spec.replica), settings.checkpoints
    session = open_session(f"lockstep-{spec.job}-spare", spark, scratch, checkpoints=checkpoints)
    session.dataSource.register(LockstepSource)
    flag, gate, tasks = folder / "drain", folder / "gate", int(session.sparkContext.defaultParallelism)
    ready = Ready(job, session, compiled(job, session, spec, flag, tasks, gate), flag, gate, warm=False)
    if store.head() is not None:
        ready = warmed_up(ready, spec, folder, tasks, lambda: _is_urgent(orders, store), orders.told.is_set)
    store.close()
    return ready


def _is_urgent(orders: Orders, store: Store) -> bool:
    """Whether a spare that is told while it warms up begins as it is: if nobody publishes, everybody waits for it."""
    if not orders.told.is_set():
        return False
    assert orders.spec_path is not None
    return not others_publish(store, ReplicaSpec.read(orders.spec_path).replica)


def _log_to(path: Path) -> None:
    """From now on this process writes to the replica's log. Its JVM cannot be told to: the supervisor gathers that."""
    sys.stderr.flush()
    with path.open("ab") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
