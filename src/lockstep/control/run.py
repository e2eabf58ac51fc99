"""Running a job: check that it may run here, then supervise it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from lockstep.agent.client import AgentClient
from lockstep.agent.leftovers import end_blocker, lock_holder
from lockstep.api.loading import LoadedJob, save_code
from lockstep.clock import wall_us
from lockstep.config import STORE_FOLDER, Settings, load_settings
from lockstep.connect.protocols import Place, SourceSide
from lockstep.connect.put_back import SOURCES, sources_text
from lockstep.connect.registry import sink_side, source_side
from lockstep.connect.sinks.delta_tidying import DeltaTidier
from lockstep.connect.sources.stage import StageTrimmer
from lockstep.connect.specs import DeltaSink, FilesSink
from lockstep.connect.tables import TABLES, Table, copy_tables
from lockstep.control.agents import AgentProcesses
from lockstep.control.compacting import Compactor
from lockstep.control.job_agent import Found, JobAgent, sorted_out
from lockstep.control.order import settle_order
from lockstep.control.overview import RUN_BEGAN, RUN_SETTINGS
from lockstep.control.spares import Shape, Spares
from lockstep.control.supervisor import Supervisor, replica_names
from lockstep.control.surroundings import Surroundings
from lockstep.control.taking_over import LEASE, LEASE_S, TERM, retire, sweep, take_over
from lockstep.errors import RunError
from lockstep.machine import find_java
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.plan.joins import TableJoin
from lockstep.plan.loops import loop_journal
from lockstep.runtime.decide.marks import time_steps
from lockstep.runtime.spark.environment import refused_settings
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.state.checkpoint import standing
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.recovery import VERSION, VERSION_FROM
from lockstep.runtime.steps import run
from lockstep.store.home import job_folder
from lockstep.store.opening import absolute, lock_file, open_store
from lockstep.store.protocols import Store

_LOCK = "supervisor.lock"
_LEASE_POLL_S = 0.1


@dataclass(frozen=True)
class PreparedRun:
    """A job that may run: its store is open, its settings hold, nobody else runs it."""

    graph: Graph
    settings: Settings
    store: Store
    supervisor: Supervisor
    compactor: Compactor
    agent: JobAgent
    lock: IO[str]


def prepare_run(
    loaded: LoadedJob,
    project: Path,
    run_overrides: Mapping[str, Any] | None = None,
    spark_overrides: Mapping[str, Any] | None = None,
    *,
    replace_supervisor: bool = False,
) -> PreparedRun:
    """Refuse what cannot work before anything runs; take the job's lease, from whoever has it if that is wanted."""
    graph = loaded.job.graph()
    settings = load_settings(project, graph.options, run_overrides, spark_overrides)
    refuse_pinned(settings)
    find_java()
    folder = (project / STORE_FOLDER).resolve()
    address = absolute(settings.store, project)
    store = open_store(address, graph.name)
    shared = lock_file(address, graph.name) is None
    identity = f"{os.getpid()}@{socket.gethostname()}" if shared else str(os.getpid())
    replaced = _supervisor_pid(folder, graph.name) if replace_supervisor else None
    lock = _locked(folder, store, graph.name, replace=replace_supervisor)
    agent: JobAgent | None = None
    try:
        if shared:
            _only_here(store, identity, graph.name, replace=replace_supervisor)
        here = job_folder(folder, graph.name)
        blocker = partial(end_blocker, lock_file(address, graph.name), here, replaced)
        term = run(take_over(store, identity, blocker))
        agent = JobAgent(graph.name, here, project.resolve(), settings.run, term)
        supervisor = _ready(loaded, graph, settings, store, project, identity, agent)
    except BaseException:
        if agent is not None:
            agent.leave()
        store.release(LEASE, identity)
        lock.close()
        raise
    folders = [project / step.spec.path for step in graph.sinks if isinstance(step.spec, FilesSink)]
    tables = [DeltaTidier(step.spec, project) for step in graph.sinks if isinstance(step.spec, DeltaSink)]
    compactor = Compactor(folders, settings.run, store, tables)
    return PreparedRun(graph, settings, store, supervisor, compactor, agent, lock)


def _ready(
    loaded: LoadedJob,
    graph: Graph,
    settings: Settings,
    store: Store,
    project: Path,
    identity: str,
    agent: JobAgent,
) -> Supervisor:
    """Bring the job's folder into order and make its supervisor."""
    folder = (project / STORE_FOLDER).resolve()
    _follow_plan(store, graph)
    _check_end(store, graph, settings)
    settle_order(store, graph, settings.run)
    tables = [s.table for s in graph.steps if isinstance(s, TableJoin) and isinstance(s.table, Table)]
    copies = copy_tables(tables, store, job_folder(folder, graph.name) / TABLES)
    code_hash = copies.with_code(loaded.code_hash)
    job_file = save_code(loaded, job_folder(folder, graph.name) / "code" / loaded.code_hash[:16])
    template = ReplicaSpec(
        project=str(project.resolve()),
        home=str(folder),
        address=absolute(settings.store, project),
        job=graph.name,
        job_file=f"{job_file}:{loaded.variable}",
        code_hash=code_hash,
        replica="",
        seed="auto",
        settings=settings.model_dump(mode="json"),
    )
    found = sorted_out(agent.listed(), template.likeness, replica_names(settings.run.replicas))
    agent.end_others(found.others, store)
    run(retire(store, found.replicas))
    note_version(store, folder, graph.name, graph.version(code_hash), len(graph.stages))
    _forget_removed(store, settings)
    store.set_fact(RUN_SETTINGS, settings.run.model_dump_json())
    store.set_fact(SOURCES, sources_text((source.id, source.spec) for source in graph.sources))
    store.set_fact(RUN_BEGAN, str(wall_us()))
    return _supervisor(graph, settings, store, template, identity, agent, found)


def _supervisor(
    graph: Graph,
    settings: Settings,
    store: Store,
    template: ReplicaSpec,
    identity: str,
    agent: JobAgent,
    found: Found,
) -> Supervisor:
    place = Place(Path(template.project), Path(template.home), template.job, address=template.address)
    sources: dict[str, SourceSide] = {step.id: source_side(step.spec, place, step.id) for step in graph.sources}
    inside = [*(boundary.name for boundary in graph.boundaries), *(loop_journal(head) for head in graph.loops)]
    sources |= {name: StageTrimmer(name, place) for name in inside}
    ends = [*graph.sinks, *(boundary.sink for boundary in graph.boundaries)]
    sinks = {step.id: sink_side(step.spec, step.id, place, step.given) for step in ends}
    run(sweep(store, sinks.values(), found.replicas))
    for side in sources.values():
        # A source that others read too learns here, before the first epoch, that this job will read it.
        side.start()
    processes = AgentProcesses(agent.client, settings, partial(_next_agent, store, agent, graph.name))
    adopted = {name: processes.adopt(one) for name, one in found.replicas.items()}
    spares = Spares(store, template, settings, replica_names(settings.run.replicas), processes)
    spares.adopt(adopted, [(processes.adopt(one), Shape.from_json(one.shape)) for one in found.spares])
    around = Surroundings(
        start=spares,
        adopted=adopted,
        look=processes.look,
        reserve=spares,
        lock_holder=partial(lock_holder, lock_file(place.store, place.job)),
    )
    return Supervisor(store, template, settings, sources, sinks, identity, time_steps(graph), around=around)


def _next_agent(store: Store, agent: JobAgent, job: str) -> AgentClient:
    """An agent for one that is gone; not if somebody else supervises by now: it would end the other's replicas."""
    if store.fact(TERM) != str(agent.term):
        raise _runs_already(store, f'job "{job}" is supervised by another process now')
    return agent.start()


def run_job(prepared: PreparedRun, on_tick: Callable[[], None]) -> None:
    """Run until stopped by a signal (once: gracefully, twice: at once). Raises what made the job impossible."""
    supervisor = prepared.supervisor
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: supervisor.stop())

    prepared.compactor.start()
    try:
        supervisor.run(on_tick)
    finally:
        prepared.compactor.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
        if not supervisor.replaced:
            prepared.agent.end()
        prepared.lock.close()
    if supervisor.failure is not None:
        raise supervisor.failure


def refuse_pinned(settings: Settings) -> None:
    """Refuse a Spark setting that would change results."""
    for replica in replica_names(settings.run.replicas):
        if pinned := refused_settings(settings.spark_of(replica)):
            raise RunError(
                "LS0611",
                f"these Spark settings are pinned and cannot be changed: {', '.join(pinned)}",
                why="they change results, and replicas must not differ.",
                hint="take them out of lockstep.toml or --spark-conf.",
            )


def _locked(folder: Path, store: Store, job: str, *, replace: bool) -> IO[str]:
    """Hold the job for as long as this process lives, also while it is suspended and its lease expires.

    Whoever replaces another one locks a new file: the other keeps a lock that nobody asks for any more.
    """
    own = job_folder(folder, job)
    own.mkdir(parents=True, exist_ok=True)
    path = own / _LOCK
    if replace:
        path.unlink(missing_ok=True)
    handle = path.open("a", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise _runs_already(store, f'job "{job}" is already running in this folder') from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _supervisor_pid(folder: Path, job: str) -> int | None:
    """Who locked the job last on this host; its lease may have expired long ago."""
    try:
        return int((job_folder(folder, job) / _LOCK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _only_here(store: Store, identity: str, job: str, *, replace: bool) -> None:
    """Hold the job among all hosts: a lock on a file tells nothing about those that have another disk.

    A supervisor that was killed holds its lease until its session has ended.
    """
    if replace and (holder := store.holder(LEASE)) is not None:
        store.release(LEASE, holder)
    deadline_s = time.monotonic() + LEASE_S
    while not store.acquire(LEASE, identity, LEASE_S):
        if time.monotonic() > deadline_s:
            raise _runs_already(store, f'job "{job}" is already running, perhaps on another host')
        time.sleep(_LEASE_POLL_S)


def _runs_already(store: Store, fact: str) -> RunError:
    return RunError(
        "LS0610",
        fact,
        why=f"process {store.holder(LEASE) or '(unknown)'} supervises it.",
        hint="stop it first (Ctrl-C there), look at it with `lockstep status`, or supervise the job from here, "
        "without a pause, with --take-over.",
    )


def _follow_plan(store: Store, graph: Graph) -> None:
    """A checkpoint holds state by position, not by name: a changed stateful plan would misread it silently."""
    plan = json.dumps(graph.fingerprint(), sort_keys=True)
    held = store.put_fact_if_absent("plan", plan)
    if held == plan:
        return
    changed = differences(json.loads(held), graph.fingerprint())
    if not changed:
        store.set_fact("plan", plan)
        return
    raise RunError(
        "LS0609",
        f'job "{graph.name}" was changed in a way its checkpoint cannot follow',
        why="; ".join(changed) + ".",
        hint="undo the change, or run it as a new job: give Job(...) another name and its sinks other places.",
    )


def _check_end(store: Store, graph: Graph, settings: Settings) -> None:
    """Bounded and unbounded do not mix: a run until done needs an end, and after the end nothing can come."""
    endless = [step for step in graph.sources if step.spec.kind == "rate" and step.spec.to_json()["limit"] is None]
    if settings.run.until_done and endless:
        raise RunError(
            "LS0615",
            f'the source "{endless[0].id}" never ends',
            why=f"{endless[0].spec.describe()} has no limit, so a run until done would never be done.",
            hint=f"ls.rate({endless[0].spec.to_json()['per_second']:g}, limit=10_000), or run without --until-done.",
        )
    head = store.head()
    if head is not None and head.ending and not settings.run.until_done:
        raise RunError(
            "LS0614",
            f'job "{graph.name}" has been run to its end here',
            why="its event time is at the end: every further record would be late.",
            hint="give Job(...) another name and its sinks other places, or remove .lockstep and the output.",
        )


def note_version(store: Store, folder: Path, job: str, version: str, stages: int) -> None:
    """New code takes over where the foremost replica stands with the old code, stage by stage, everywhere."""
    held = store.put_fact_if_absent(VERSION, version)
    if held == version:
        return
    foremost = max(
        (_stage_epochs(replica, stages) for replica in (job_folder(folder, job) / "replicas").glob("*")),
        key=lambda epochs: (min(epochs), sum(epochs)),
        default=(-1,),
    )
    store.set_fact(VERSION_FROM, ",".join(map(str, foremost)))
    store.set_fact(VERSION, version)
    store.add_event("new-code", f"takes over after epoch {min(foremost)}")


def _stage_epochs(replica: Path, stages: int) -> tuple[int, ...]:
    """The newest epoch that each stage of a replica has computed: after a crash they need not be the same."""
    try:
        found = [standing(checkpoint) for checkpoint in checkpoint_folders(replica, stages)]
    except RunError:
        return (-1,)  # damaged: the replica will find out, and be seeded
    return tuple(at.epoch if at is not None else -1 for at in found)


def _forget_removed(store: Store, settings: Settings) -> None:
    names = replica_names(settings.run.replicas)
    for said in store.progress():
        if said.replica not in names:
            store.remove(said.replica)
