"""Running a job: check that it may run, say what is to run, and coordinate it, here or wherever its hosts are."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lockstep.agent.leftovers import lock_holder
from lockstep.api.loading import LoadedJob, load_job, save_code
from lockstep.clock import wall_us
from lockstep.config import STORE_FOLDER, Settings, load_settings
from lockstep.connect.protocols import Place, SourceSide
from lockstep.connect.put_back import SOURCES, sources_text
from lockstep.connect.registry import sink_side, source_side, stage_trimmer
from lockstep.connect.remote.paths import location
from lockstep.connect.sinks.delta_tidying import DeltaTidier
from lockstep.connect.specs import DeltaSink, FilesSink
from lockstep.connect.tables import TABLES, Table, copy_tables
from lockstep.control.coordinator.claiming import Claim, claim_anywhere, claim_here, runs_already
from lockstep.control.coordinator.taking_over import TERM, retire, sweep
from lockstep.control.hosts.agents import AgentProcesses, Directory, Found, end_others, sorted_out
from lockstep.control.hosts.host_directory import HostDirectory, bring_state
from lockstep.control.hosts.job_agent import JobAgent
from lockstep.control.operations.changing import Operations
from lockstep.control.policy.adapting import policy_runner
from lockstep.control.start.checkpoints import settle_checkpoints
from lockstep.control.start.continuing import (
    check_end,
    follow_plan,
    forget_removed,
    note_version,
    refuse_pinned,
    settle_buckets,
    settle_generation,
)
from lockstep.control.start.drawing import note_drawing
from lockstep.control.start.journals import settle_journals
from lockstep.control.start.order import settle_order
from lockstep.control.start.shared_places import check_places, probe_places
from lockstep.control.state.savepoints import find
from lockstep.control.state.starting_from import begin_from
from lockstep.control.status.overview import RUN_SETTINGS
from lockstep.control.supervise.aside import Aside
from lockstep.control.supervise.compacting import Compactor
from lockstep.control.supervise.spares import Shape, Spares
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Surroundings
from lockstep.errors import RunError, StoreError
from lockstep.machine import find_java
from lockstep.plan.graph import Graph
from lockstep.plan.joins import TableJoin
from lockstep.plan.loops import loop_journal
from lockstep.runtime.decide.marks import time_steps
from lockstep.runtime.desired_run import RUN_BEGAN, DesiredRun, last_run, note_desired, note_stopped
from lockstep.runtime.spec import replica_names
from lockstep.runtime.state.checkpoints_at_address import standings_at
from lockstep.runtime.state.folders import standings
from lockstep.runtime.state.recovery import VERSION, state_at
from lockstep.runtime.steps import run
from lockstep.runtime.traces import check_traces
from lockstep.store.home import job_folder
from lockstep.store.opening import absolute, announced_hosts, lock_file, open_store
from lockstep.store.protocols import Store

SUBMITTED = "submitted"
"""Fact: which `lockstep serve` keeps the job running (:func:`kept_by`); empty if the agents of hosts do."""
WANTED_LOOK_S = 1.0
"""How often whoever coordinates a job looks whether it is still wanted (`lockstep stop`)."""


class Agents(Directory, Protocol):
    """Those who have the job's processes, for as long as the job lasts."""

    def follow(self, orders: Sequence[DesiredRun]) -> None:
        """The job may have replicas of all these from now on."""

    def leave(self) -> None:
        """The run was refused: nothing is left that was begun for it."""

    def forget(self) -> None:
        """Another one coordinates the job, and has them now."""

    def end(self) -> None:
        """The job is over."""


@dataclass(frozen=True)
class PreparedRun:
    """A job that may run: its store is open, its settings hold, nobody else runs it."""

    graph: Graph
    settings: Settings
    store: Store
    supervisor: Supervisor
    compactor: Compactor
    agents: Agents
    processes: AgentProcesses
    claim: Claim


@dataclass(frozen=True)
class _Claimed:
    """A job that this process may order: its settings hold, and it has the job's lease."""

    loaded: LoadedJob
    graph: Graph
    settings: Settings
    project: Path
    address: str
    on_hosts: bool
    claim: Claim

    def order(self, savepoint: str | None = None, *, paths: bool = True) -> DesiredRun:
        """Say what is to run; a job that has not begun may go on from a savepoint."""
        project, home = self.project.resolve(), (self.project / STORE_FOLDER).resolve()
        if savepoint is not None:
            journals = self.settings.journals
            place = Place(project, home, self.graph.name, address=self.address, journals=journals)
            bring = partial(bring_state, self.address, self.settings.hosts, self.graph.name) if self.on_hosts else None
            begin_from(find(home, savepoint, paths=paths), self.graph, self.claim.store, place, bring=bring)
        return _order(self.loaded, self.graph, self.settings, self.claim.store, home, self.address)


def prepare_run(
    loaded: LoadedJob,
    project: Path,
    run_overrides: Mapping[str, Any] | None = None,
    spark_overrides: Mapping[str, Any] | None = None,
    *,
    replace_supervisor: bool = False,
    savepoint: str | None = None,
) -> PreparedRun:
    """Refuse what cannot work before anything runs; take the job's lease, from whoever has it if that is wanted.

    With ``savepoint`` (a name, JOB/NAME or a folder) a job that has not begun goes on from there.
    """
    claimed = _claimed(loaded, project, run_overrides, spark_overrides, replace_supervisor=replace_supervisor)
    try:
        with claimed.claim.renewed():
            order = claimed.order(savepoint)
            return coordinated(claimed.graph, order, project.resolve(), claimed.claim, on_hosts=claimed.on_hosts)
    except BaseException:
        claimed.claim.give_back()
        raise


def order_run(
    loaded: LoadedJob,
    project: Path,
    run_overrides: Mapping[str, Any] | None = None,
    spark_overrides: Mapping[str, Any] | None = None,
    *,
    savepoint: str | None = None,
) -> str:
    """Say that a job is to run, and leave it to others to coordinate it; the job's name.

    Where there are hosts, their agents do. Where there are none, `lockstep serve` starts a process for it. With
    ``savepoint`` (JOB/NAME) a job that has not begun goes on from there.
    """
    claimed = _claimed(loaded, project, run_overrides, spark_overrides, replace_supervisor=False)
    store = claimed.claim.store
    try:
        with claimed.claim.renewed():
            order = claimed.order(savepoint, paths=False)
            store.set_fact(SUBMITTED, "" if claimed.on_hosts else kept_by(project))
            if claimed.on_hosts:
                prepared = coordinated(claimed.graph, order, project.resolve(), claimed.claim, on_hosts=True)
    except BaseException:
        claimed.claim.give_back()
        raise
    if claimed.on_hosts:
        hand_over(prepared)
    else:
        claimed.claim.give_back()
    store.close()
    return claimed.graph.name


def _claimed(
    loaded: LoadedJob,
    project: Path,
    run_overrides: Mapping[str, Any] | None,
    spark_overrides: Mapping[str, Any] | None,
    *,
    replace_supervisor: bool,
) -> _Claimed:
    graph = loaded.job.graph()
    settings = load_settings(project, graph.options, run_overrides, spark_overrides)
    refuse_pinned(settings)
    check_traces(settings.run.traces)
    find_java()
    address = absolute(settings.store, project)
    store = open_store(address, graph.name)
    is_shared = lock_file(address, graph.name) is None
    hosts = announced_hosts(address) if is_shared else {}
    check_places(graph, hosts, settings.journals)
    claim = claim_job(store, address, project, graph.name, replace=replace_supervisor)
    return _Claimed(loaded, graph, settings, project, address, bool(hosts), claim)


def claim_job(store: Store, address: str, project: Path, job: str, *, replace: bool) -> Claim:
    """The right to supervise a job from here, whatever kind of store it has. LS0610 if somebody else has it."""
    if lock_file(address, job) is None:
        return claim_anywhere(store, job, replace=replace)
    return claim_here(store, address, (project / STORE_FOLDER).resolve(), job, replace=replace)


def _order(loaded: LoadedJob, graph: Graph, settings: Settings, store: Store, home: Path, address: str) -> DesiredRun:
    """Say what is to run, once it may: code and tables are copied, so that nobody's edits change a running job."""
    settings = settings.model_copy(update={"run": settle_buckets(store, settings.run)})
    graph = graph.with_buckets(settings.run.buckets)
    follow_plan(store, graph)
    check_end(store, graph, settings)
    settle_order(store, graph, settings.run)
    settled = {
        "journals": settle_journals(store, graph.name, settings.journals),
        "checkpoints": settle_checkpoints(store, graph.name, settings.checkpoints),
    }
    settings = settings.model_copy(update=settled)
    folder = job_folder(home, graph.name)
    tables = [s.table for s in graph.steps if isinstance(s, TableJoin) and isinstance(s.table, Table)]
    copies = copy_tables(tables, store, folder / TABLES)
    job_file = save_code(loaded, folder / "code" / loaded.code_hash[:16])
    order = DesiredRun(
        job=graph.name,
        job_file=f"{job_file.relative_to(folder)}:{loaded.variable}",
        code_hash=copies.with_code(loaded.code_hash),
        store=address,
        settings=settings.model_dump(mode="json"),
    )
    order = settle_generation(store, order)
    note_desired(store, order)
    store.set_fact(RUN_SETTINGS, settings.run.model_dump_json())
    note_drawing(store, graph)
    store.set_fact(SOURCES, sources_text((source.id, source.spec) for source in graph.sources))
    store.set_fact(RUN_BEGAN, str(wall_us()))
    return order


def kept_by(project: Path) -> str:
    """The service of a project on this host, as jobs that it keeps running know it."""
    return f"{socket.gethostname()}:{project.resolve()}"


def coordinated(
    graph: Graph, order: DesiredRun, project: Path, claim: Claim, *, on_hosts: bool, is_first: bool = True
) -> PreparedRun:
    """Find the agents and what they run already, and make the supervisor that goes on with it.

    Unless ``is_first``, somebody has found before that the job can run on these hosts, and there is no time to lose.
    """
    store, settings, home = claim.store, order.parsed_settings(), project / STORE_FOLDER
    folder = job_folder(home, graph.name)
    agents: Agents
    if on_hosts:
        agents = HostDirectory(order, claim.term, folder, store)
    else:
        agents = JobAgent(
            graph.name, folder, project, settings.run, claim.term, partial(_refuse_replaced, claim, order)
        )
    try:
        if isinstance(agents, HostDirectory):
            agents.wait()
            if is_first:
                probe_places(graph, agents.clients())
        processes = AgentProcesses(agents, graph.name, claim.term, partial(_last_host, store))
        supervisor = _supervisor(graph, order, settings, project, claim, agents, processes)
    except BaseException:
        agents.leave()
        raise
    folders = [location(step.spec.path, project) for step in graph.sinks if isinstance(step.spec, FilesSink)]
    tables = [DeltaTidier(step.spec, project) for step in graph.sinks if isinstance(step.spec, DeltaSink)]
    compactor = Compactor(folders, settings.run, store, tables)
    return PreparedRun(graph, settings, store, supervisor, compactor, agents, processes, claim)


def _supervisor(
    graph: Graph,
    order: DesiredRun,
    settings: Settings,
    project: Path,
    claim: Claim,
    agents: Agents,
    processes: AgentProcesses,
) -> Supervisor:
    store, template = claim.store, order.template()
    changes = Operations(store, order, time.monotonic, version_of=partial(_version, graph, order, project))
    agents.follow(changes.orders)
    is_new = isinstance(agents, JobAgent) and agents.is_new
    running = [] if is_new else processes.running()
    speaking = {one.replica: one.process for one in store.progress()}
    roster = {name: wanted.template.likeness for name, wanted in changes.roster().items()}
    found = sorted_out(running, template.likeness, roster, speaking, changes.kinds)
    run(end_others(found.others, processes.running, store))
    run(retire(store, found.replicas))
    if store.fact(VERSION) != (version := graph.version(order.code_hash)):
        at = _standings(graph, settings, project, agents, processes)
        note_version(store, version, [epochs for replica, epochs in at if not replica or replica in roster])
    forget_removed(store, {*roster, *found.replicas})
    home = project / STORE_FOLDER
    shared = settings.checkpoints
    place = Place(project, home, graph.name, address=order.store, journals=settings.journals, shared=shared)
    sources, sinks = _sides(graph, place)
    run(sweep(store, sinks.values(), found.replicas))
    for side in sources.values():
        # A source that others read too learns here, before the first epoch, that this job will read it.
        side.start()
    spares = Spares(store, template, settings, replica_names(settings.run.replicas), processes)
    around = _surroundings(processes, found, place, spares)

    def follow(orders: Sequence[DesiredRun]) -> None:
        agents.follow(orders)
        spares.follow(orders[0].template(), orders[0].parsed_settings())

    changes.on_change = follow
    steps = time_steps(graph)
    return Supervisor(store, template, settings, sources, sinks, claim.identity, steps, around=around, changes=changes)


def _version(graph: Graph, current: DesiredRun, project: Path, order: DesiredRun) -> str:
    """The version of the code that an order runs."""
    if order.job_file != current.job_file:
        folder = job_folder(project / STORE_FOLDER, order.job)
        graph = load_job(str(folder / order.job_file)).job.graph()
    return graph.version(order.code_hash)


def _standings(
    graph: Graph, settings: Settings, project: Path, agents: Agents, processes: AgentProcesses
) -> list[tuple[str, tuple[int, ...]]]:
    """Each replica and the newest epoch that each of its stages has computed, wherever its checkpoint is."""
    stages = len(graph.stages)
    if settings.checkpoints:
        return [("", epochs) for epochs in standings_at(settings.checkpoints, stages)]
    if isinstance(agents, JobAgent):
        return list(standings(job_folder(project / STORE_FOLDER, graph.name), stages).items())
    return processes.standings(stages)


def _sides(graph: Graph, place: Place) -> tuple[dict[str, SourceSide], dict[str, Any]]:
    sources: dict[str, SourceSide] = {step.id: source_side(step.spec, place, step.id) for step in graph.sources}
    inside = [*(boundary.name for boundary in graph.boundaries), *(loop_journal(head) for head in graph.loops)]
    sources |= {name: stage_trimmer(name, place) for name in inside}
    ends = [*graph.sinks, *(boundary.sink for boundary in graph.boundaries)]
    return sources, {step.id: sink_side(step.spec, step.id, place, step.given) for step in ends}


def _surroundings(processes: AgentProcesses, found: Found, place: Place, spares: Spares) -> Surroundings:
    adopted = {name: processes.adopt(one) for name, one in found.replicas.items()}
    spares.adopt(adopted, [(processes.adopt(one), Shape.from_json(one.listed.shape)) for one in found.spares])
    return Surroundings(
        start=spares,
        adopted=adopted,
        kinds={name: one.listed.likeness for name, one in found.replicas.items()},
        look=processes.look,
        crowded=processes.crowded,
        aside=Aside(),
        reserve=spares,
        lock_holder=partial(lock_holder, lock_file(place.store, place.job)),
    )


def _last_host(store: Store, replica: str) -> str:
    """Where a replica lived last: its state is there."""
    try:
        return store.fact(state_at(replica)) or ""
    except StoreError:
        return ""  # anywhere is better than nowhere


def _refuse_replaced(claim: Claim, order: DesiredRun) -> None:
    """Refuse to start an agent if somebody else supervises by now: it would end the other's replicas."""
    if claim.store.fact(TERM) != str(claim.term):
        raise runs_already(claim.store, f'job "{order.job}" is supervised by another process now')


def run_job(prepared: PreparedRun, on_tick: Callable[[], None]) -> None:
    """Run until stopped by a signal (once: gracefully, twice: at once). Raises what made the job impossible."""
    supervisor = prepared.supervisor
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: supervisor.stop())

    prepared.compactor.start()
    wanted, order = _Wanted(prepared), last_run(prepared.store)
    assert order is not None, "what runs was ordered"
    policy = policy_runner(prepared.store, order, prepared.processes.host_names)

    def tick() -> None:
        wanted.look()
        if not supervisor.stops:
            policy.look()
        on_tick()

    try:
        supervisor.run(tick)
    finally:
        prepared.compactor.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
        if supervisor.replaced:
            prepared.agents.forget()
        else:
            prepared.agents.end()
        prepared.processes.close()
        prepared.claim.close()
    note_stopped(prepared.store)
    if supervisor.failure is not None:
        raise supervisor.failure


def hand_over(prepared: PreparedRun) -> None:
    """End here without stopping the job: whoever waits on one of its hosts coordinates it. LS0689 without hosts."""
    is_elsewhere = isinstance(prepared.agents, HostDirectory)
    if is_elsewhere:
        prepared.agents.forget()
    else:
        prepared.agents.leave()
    prepared.processes.close()
    prepared.claim.give_back()
    if not is_elsewhere:
        note_stopped(prepared.store)
        raise RunError(
            "LS0689",
            "there is no host to hand the job over to",
            why="without agents on other hosts, the job is coordinated by `lockstep run` itself.",
            hint="start `lockstep agent` on the hosts, with a store that all of them reach; or leave out --detach.",
        )


class _Wanted:
    """Stops the supervisor once somebody has said that the job is to stop."""

    def __init__(self, prepared: PreparedRun) -> None:
        self._prepared = prepared
        self._next_s = 0.0

    def look(self) -> None:
        """Once a second; a store that does not answer now is asked again."""
        if time.monotonic() < self._next_s or self._prepared.supervisor.stops > 1:
            return
        self._next_s = time.monotonic() + WANTED_LOOK_S
        try:
            last = last_run(self._prepared.store)
            if last is None or not last.wanted:
                self._prepared.supervisor.stop()
                if last is not None and last.at_once:
                    self._prepared.supervisor.stop()
        except StoreError:
            return
