"""One replica: a process with a Spark session that follows the ledger until it is told to stop.

Started by the supervisor as ``python -m lockstep.runtime.start replica SPEC``, or begun as a spare (``spare.py``). Its
standard input is a pipe from the supervisor (``orders.py``).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from lockstep.api.loading import LoadedJob
from lockstep.clock import wall_us
from lockstep.compile.job import Compiled
from lockstep.compile.partition_times import partition_times
from lockstep.compile.steps import OBSERVED_TIME
from lockstep.config import PARTITIONS, Settings, is_local
from lockstep.connect.protocols import SinkSide, SourceSide
from lockstep.connect.registry import sink_side, source_side
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import LockstepError, RunError, StoreError
from lockstep.plan.graph import Graph
from lockstep.plan.steps import Aggregate, Step
from lockstep.runtime.booted import Ready, compiled, graph_of, load, others_publish, warmed_up
from lockstep.runtime.decide.marks import TimeStep, time_steps
from lockstep.runtime.decide.pacing import is_live
from lockstep.runtime.decide.partitions import by_partition
from lockstep.runtime.decide.seeding import SEEDS_MAX, is_new_seed_cheaper
from lockstep.runtime.deriving import Deriving, deriving
from lockstep.runtime.endings import exit_code, is_job_error
from lockstep.runtime.epoch import gate as gates
from lockstep.runtime.epoch.drain_flag import clear
from lockstep.runtime.epoch.draining import drain
from lockstep.runtime.epoch.epoch_steps import EpochSteps, Part, part_of
from lockstep.runtime.epoch.output import SinkOutput
from lockstep.runtime.epoch.run import EpochRunner
from lockstep.runtime.epoch.sealing import Sealer
from lockstep.runtime.epoch.source import LockstepSource
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.epoch.work import SparkWork
from lockstep.runtime.executor_watch import ExecutorWatch
from lockstep.runtime.failures import explained_failure, failure_of
from lockstep.runtime.measurements import Measuring
from lockstep.runtime.orders import Orders
from lockstep.runtime.phases import KIND, Phases, since_process_start
from lockstep.runtime.replica_environments import note_environment
from lockstep.runtime.reporting import Reporter
from lockstep.runtime.spark.activity import spark_activity
from lockstep.runtime.spark.address import check_address
from lockstep.runtime.spark.environment import environment_hash, open_session, versions
from lockstep.runtime.spark.waiting import Epoch, started
from lockstep.runtime.spec import (
    EXIT_DRAINED,
    EXIT_RETIRED,
    ReplicaSpec,
)
from lockstep.runtime.state.checkpoint import standing
from lockstep.runtime.state.folder_lock import locked
from lockstep.runtime.state.folders import Shape
from lockstep.runtime.state.recovery import prepare
from lockstep.runtime.state.repartition import repartition
from lockstep.runtime.state.state_reports import StateReports
from lockstep.runtime.traces import StageTraces, tracing
from lockstep.store.opening import open_store
from lockstep.store.protocols import Holder, Store

_POLL_S = 0.05


class Replica:
    """The parts of a running replica, wired together."""

    def __init__(
        self,
        spec: ReplicaSpec,
        store: Store,
        holder: Holder,
        phases: Phases | None = None,
        ready: Ready | None = None,
        deriving: Deriving | None = None,
    ) -> None:
        self.spec = spec
        self.store = store if deriving is None else deriving.store
        self._deriving = deriving
        """None for a job whose epochs are agreed on."""
        self.holder = holder
        self.settings: Settings = spec.parsed_settings()
        self.drain = threading.Event()
        self.retired = threading.Event()
        self._ready = ready
        self.drain_flag = spec.folder / "drain" if ready is None else ready.drain_flag
        self.gate = spec.folder / "gate" if ready is None else ready.gate
        lead = self.settings.run.lead_epochs_max
        self.reporter = Reporter(
            self.store,
            holder,
            self.retired.set,
            lead,
            host=spec.host,
            process=spec.process,
            generation=spec.generation,
            results_of=spec.results_of,
        )
        self.runners: list[EpochRunner] = []
        self.stage_progress: StageProgress | None = None
        self.sealer: Sealer | None = None
        self._state_reports: StateReports | None = None
        self.sealing_error: LockstepError | None = None
        self.last_trouble: LockstepError | None = None
        self.steps: Sequence[Step] = ()
        self._tracing = tracing(self.settings.run.traces, spec.job, holder, self.note)
        self._told_phases = False
        self._seeds = 0
        self._seed_from_s = 0.0
        self._seed_s: float | None = None
        """What the newest seed took until its first epoch was computed; None until then."""
        self.phases = phases or Phases("a new process", since_process_start())

    def run(self) -> int:
        """Boot, take a checkpoint, follow the ledger; the exit code says how it ended."""
        clear(self.drain_flag)
        self.reporter.start()
        if self._ready is not None:
            return self._follow(self._begin(self._ready))
        gates.clear(self.gate)
        job = load(self.spec, self.store)
        self.phases.mark("job")
        session = self._boot()
        self.phases.mark("session")
        if not is_local(session.sparkContext.master):
            self._watch_executors(graph_of(job, self.spec), session)
        if self._is_stopping():
            self.reporter.stop("stopped")
            return EXIT_DRAINED
        return self._follow(self.begin(job, session))

    def begin(self, job: LoadedJob, session: SparkSession) -> list[StreamingQuery]:
        """Compile the job, put checkpoints in place and start a query for each stage: they follow the ledger."""
        stages = compiled(job, session, self.spec, self.drain_flag, self._tasks_max(session), self.gate)
        self.phases.mark("compile")
        return self._begin(Ready(job, session, stages, self.drain_flag, self.gate, warm=False))

    def _begin(self, ready: Ready) -> list[StreamingQuery]:
        """Whatever can be done before the seed is done before it: the others go on meanwhile."""
        if not ready.warm and self._others_publish():
            ready = warmed_up(ready, self.spec, self.spec.folder, self._tasks_max(ready.session), self._is_stopping)
            self.phases.mark("warm-up")
        return self._seeded(ready)

    def _seeded(self, ready: Ready) -> list[StreamingQuery]:
        self._ready, self._seeds, self._seed_s, self._seed_from_s = ready, self._seeds + 1, None, time.monotonic()
        graph = graph_of(ready.job, self.spec)
        checkpoints = self._prepare(graph)
        self.phases.mark("seed")
        return self._start(graph, ready, checkpoints)

    def _is_new_seed_due(self) -> bool:
        """Asked once after each seed: when its first epoch has shown how far behind that is, and what it took."""
        if self._seed_s is not None or self.stage_progress is None or not self.stage_progress.at.done_us:
            return False
        assert self._ready is not None
        self._seed_s = time.monotonic() - self._seed_from_s + self._ready.queries_s
        try:
            head, progress = self.store.head(), self.store.progress()
        except StoreError:
            return False  # it goes on with the seed that it has
        peers = [one for one in progress if one.replica != self.spec.replica and is_live(one, wall_us())]
        if head is None or not peers or self._seeds >= SEEDS_MAX:
            return False
        # What an epoch takes here is not known yet: the first is slow by far. The others know.
        epoch_s, lag = max(one.epoch_s for one in peers), head.epoch - self.stage_progress.at.epoch
        return lag > self.settings.run.seed_beyond_epochs and is_new_seed_cheaper(lag, epoch_s, self._seed_s)

    def seed_again(self, queries: list[StreamingQuery]) -> list[StreamingQuery]:
        """Finish the epoch under way, and go on from a newer seed."""
        assert self._ready is not None and self.sealer is not None and self.stage_progress is not None
        self.note("seed-again", f"at epoch {self.stage_progress.at.epoch}; the last one took {self._seed_s or 0:.1f} s")
        self.sealer.stop()
        if self._state_reports is not None:
            self._state_reports.stop()
        drain(self.drain_flag, queries, self.stage_progress, time.monotonic() + self.settings.run.stop_timeout_s)
        for query in queries:
            query.stop()
        clear(self.drain_flag)
        self.runners.clear()
        # The queries are started within what the seed takes this time.
        return self._seeded(replace(self._ready, waiting=None, queries_s=0.0))

    def _boot(self) -> SparkSession:
        scratch = self.spec.folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        name = f"lockstep-{self.spec.job}-{self.holder}"
        spark, address = self.settings.spark_of(self.spec.replica), self.settings.checkpoints
        session = open_session(name, spark, scratch, self.settings.run.replicas, address)
        session.dataSource.register(LockstepSource)
        return session

    def _watch_executors(self, graph: Graph, session: SparkSession) -> None:
        """Nothing is computed by an executor that does not see what it has to."""
        fail = partial(setattr, self, "sealing_error")
        watch = ExecutorWatch(session, self.spec, graph, self.note, self.reporter.report, fail)
        self.reporter.executors = lambda: watch.counts
        self.reporter.note = f"waits for executors of {session.sparkContext.master}"
        watch.begin(self.settings.run.start_timeout_s / 2, self._is_stopping)
        self.reporter.note = ""
        self.phases.mark("executors")

    def _tasks_max(self, session: SparkSession) -> int:
        return int(session.sparkContext.defaultParallelism)

    def _others_publish(self) -> bool:
        return others_publish(self.store, self.spec.replica)

    def _is_stopping(self) -> bool:
        return self.drain.is_set() or self.retired.is_set()

    def _prepare(self, graph: Graph) -> tuple[AnyPath, ...]:
        self.reporter.state = "seeding"
        assert self._ready is not None
        check_address(self._ready.session, self.settings.checkpoints)
        version = graph.version(self.spec.code_hash)
        again = self._seeds > 1
        shape = self._shape()
        return prepare(self.spec, self.store, self.holder, graph, version, self.settings.run, again=again, shape=shape)

    def _shape(self) -> Shape:
        """In how many partitions each stage keeps its state."""
        assert self._ready is not None
        session = self._ready.session
        shared = int(session.conf.get(PARTITIONS) or 1)
        own = [stage.partitions or shared for stage in self._ready.stages]
        return Shape(dict(enumerate(own)), partial(repartition, session))

    def _start(self, graph: Graph, ready: Ready, checkpoints: tuple[AnyPath, ...]) -> list[StreamingQuery]:
        stages, self.steps = ready.stages, graph.steps
        sides = [self._open_sinks(stage) for stage in stages]
        sources = self._sources(graph, stages)
        at = {stage.stage.number: _epoch_of(folder) for stage, folder in zip(stages, checkpoints, strict=True)}
        run = self.settings.run
        if self._deriving is None:
            self.sealer = self._new_sealer(sources, time_steps(graph))
        else:
            self.sealer = self._deriving.sealer(graph, min(at.values()), run, self._sealing_failed)
        self.stage_progress = StageProgress(self.store, self.holder, at, run, self.sealer, self._epoch_done)
        session = stages[0].frame.sparkSession
        self.reporter.activity = lambda: spark_activity(session)
        self._report_from(self.stage_progress)
        self._state_reports = self._new_state_reports(graph, stages, checkpoints, self.stage_progress)
        self.stage_progress.take_up()
        places = {stage.stage.number: place for stage, place in zip(stages, checkpoints, strict=True)}
        queries: dict[int, StreamingQuery] = ready.waiting.queries.copy() if ready.waiting is not None else {}
        epochs = {
            stage.stage.number: self._epochs_of(graph, stage, sinks, places[stage.stage.number], queries)
            for stage, sinks in zip(stages, sides, strict=True)
        }
        if ready.waiting is not None:
            ready.waiting.go_on(epochs, places)
        else:
            for stage in stages:
                number = stage.stage.number
                queries[number] = started(stage, places[number], epochs[number])
        self.sealer.start()
        if self._state_reports is not None:
            self._report_state(self._state_reports)
        self.phases.mark("query")
        return list(queries.values())

    def _new_state_reports(
        self,
        graph: Graph,
        stages: tuple[Compiled, ...],
        checkpoints: tuple[AnyPath, ...],
        stage_progress: StageProgress,
    ) -> StateReports | None:
        """Whoever reports digests of this replica's state, None if there is nothing to compare."""
        run = self.settings.run
        if not run.state_digest_every_epochs or not any(step.stateful for step in graph.steps):
            return None
        return StateReports(
            session=stages[0].frame.sparkSession,
            store=self.store,
            holder=self.holder,
            version=graph.version(self.spec.code_hash),
            checkpoints={stage.stage.number: folder for stage, folder in zip(stages, checkpoints, strict=True)},
            stage_progress=stage_progress,
            every_epochs=run.state_digest_every_epochs,
            exact_floats=not any(isinstance(step, Aggregate) and not step.exact_floats for step in graph.steps),
            is_stopping=self._is_stopping,
        )

    def _report_state(self, reports: StateReports) -> None:
        reports.start()

    def _epoch_done(self) -> None:
        self.reporter.report()
        if not self._told_phases:
            self._told_phases = True
            self.phases.mark("epoch")
            self.note(KIND, self.phases.text)

    def _open_sinks(self, stage: Compiled) -> dict[str, SinkSide]:
        sinks: dict[str, SinkSide] = {}
        for part in stage.sinks:
            side = sink_side(part.step.spec, part.step.id, self.spec.place, part.step.given)
            side.open(part.schema)
            self._check_not_ahead(part.step.id, side)
            sinks[part.step.id] = side
        return sinks

    def _sources(self, graph: Graph, stages: tuple[Compiled, ...]) -> dict[str, SourceSide]:
        """Everything that a cut has positions of: the job's sources, and the journals inside it."""
        inside = {source.id: source for stage in stages for source in stage.journals}
        steps = [*graph.sources, *inside.values()]
        return {step.id: source_side(step.spec, self.spec.place, step.id) for step in steps}

    def _epochs_of(
        self,
        graph: Graph,
        stage: Compiled,
        sinks: Mapping[str, SinkSide],
        checkpoint: AnyPath,
        queries: Mapping[int, StreamingQuery],
    ) -> Epoch:
        """What one stage does with every epoch."""
        assert self.stage_progress is not None
        version = graph.version(self.spec.code_hash)
        number = stage.stage.number
        machine: EpochSteps[SinkOutput] = EpochSteps(
            self.store, self.holder, number, version, self.stage_progress, self._is_stopping, part=self._part()
        )
        work = SparkWork(
            store=self.store,
            holder=self.holder,
            compiled=stage,
            sinks=sinks,
            place=self.spec.place,
            python_steps=[step.id for step in graph.python_steps],
            settings=self.settings.run,
            observed=lambda: observed_times(queries[number], stage.event_times),
        )
        traces = StageTraces(self._tracing, number, checkpoint)
        runner = EpochRunner(self.store, self.holder, sinks, checkpoint, machine, work, traces)
        self.runners.append(runner)

        def epoch(frame: DataFrame, batch: int) -> None:
            # Until the first call Spark's planner starts, and a Python process for each source with it.
            self.phases.mark("planner")
            runner(frame, batch)

        return epoch

    def _part(self) -> Part:
        """Which part it plays: the first of a new kind proves itself before it publishes, if others can."""
        patience_s = self.settings.run.lag_timeout_s
        return part_of(self.store, self.spec, patience_s, others_publish=self._others_publish())

    def _report_from(self, stage_progress: StageProgress) -> None:
        self.reporter.standpoint = lambda: stage_progress.at
        self.reporter.diverged = lambda: any(runner.diverged for runner in self.runners)
        self.reporter.state = "running"
        self.reporter.report()

    def _check_not_ahead(self, sink: str, side: SinkSide) -> None:
        """An epoch is sealed before it is published: a sink beyond the ledger belongs to another history."""
        last, head = side.last_published(), self.store.head()
        head_epoch = head.epoch if head else -1
        # Whoever derives is not told at once what the others have derived, and published.
        newest = head_epoch if self._deriving is None else max(head_epoch, self._deriving.newest_due())
        if last is not None and last > newest:
            raise RunError(
                "LS0613",
                f'sink "{sink}" holds epoch {last}, but the ledger ends at {head_epoch}',
                why="the store's folder was removed or replaced by an older one while the output stayed: new epochs "
                "would be taken for published ones and dropped.",
                hint="give the sink another place (or remove its folder), or put the store's folder back.",
            )

    def _new_sealer(self, sources: Mapping[str, SourceSide], steps: tuple[TimeStep, ...]) -> Sealer:
        run, results_of = self.settings.run, self.spec.results_of
        return Sealer(self.store, self.holder, sources, steps, run, self._sealing_failed, results_of=results_of)

    def _sealing_failed(self, error: LockstepError) -> None:
        if error.code == "LS0405":
            self.retired.set()
        elif is_job_error(error):
            self.sealing_error = error
        elif str(error) != str(self.last_trouble):
            self.last_trouble = error
            print(error, file=sys.stderr, flush=True)
            self.note("sealing-failed", str(error))

    def note(self, kind: str, text: str) -> None:
        """Tell people, if the store can take it: the trouble may be the store itself."""
        try:
            self.store.add_event(kind, text, self.holder.replica)
        except StoreError as error:
            print(f"not noted: {error}", file=sys.stderr, flush=True)

    def _follow(self, queries: list[StreamingQuery]) -> int:
        assert self.sealer is not None
        measuring = Measuring(self.store, self.holder.replica)
        while all(query.isActive for query in queries):
            if self.retired.is_set():
                return EXIT_RETIRED
            if self.sealing_error is not None:
                raise self.sealing_error
            if not self.sealer.is_alive():
                raise RunError("LS0601", f"sealing failed: {self.sealer.crash!r}", hint="see the replica's log.")
            if self.drain.is_set():
                return self._drained(queries)
            if self._is_new_seed_due():
                queries = self.seed_again(queries)
            measuring.look(queries)
            time.sleep(_POLL_S)
        raise self.failure(queries)

    def failure(self, queries: list[StreamingQuery]) -> LockstepError:
        """What ended the first query that ended."""
        own = next((runner.failure for runner in self.runners if runner.failure is not None), None)
        return own or failure_of(next(query for query in queries if not query.isActive), self.steps)

    def end_traces(self) -> None:
        """Send what is known of the newest epochs, if somebody wants it and listens."""
        for runner in self.runners:
            runner.traces.send()
        if self._tracing is not None:
            self._tracing.close()

    def _drained(self, queries: list[StreamingQuery]) -> int:
        """Finish the epoch under way in all stages, then stop: stopping inside a batch would leave it uncommitted."""
        assert self.sealer is not None and self.stage_progress is not None
        self.reporter.state = "draining"
        self.sealer.stop()
        deadline_s = time.monotonic() + self.settings.run.stop_timeout_s
        drain(self.drain_flag, queries, self.stage_progress, deadline_s)
        for query in queries:
            query.stop()
        self.reporter.stop("stopped")
        return EXIT_DRAINED


def _epoch_of(checkpoint: AnyPath) -> int:
    """The newest epoch that a checkpoint has committed."""
    at = standing(checkpoint)
    return at.epoch if at is not None else -1


def observed_times(query: StreamingQuery, event_times: tuple[str, ...]) -> dict[str, int | None]:
    """The highest event time of the batch that just ran, per ``event_time`` step; by partition too where it goes by it.

    Spark hands observed metrics out with its progress report, which is too late: the next epoch is sealed before that.
    """
    if not event_times:
        return {}
    metrics = query._jsq.streamingQuery().lastExecution().observedMetrics()
    found: dict[str, int | None] = {}
    for step in event_times:
        row = json.loads(metrics.apply(step).json())
        found[step] = row.get(OBSERVED_TIME)
        found |= by_partition(step, partition_times(row))
    return found


def main(arguments: list[str]) -> None:
    """The process of one replica."""
    phases = Phases("a new process", since_process_start())
    phases.mark("imports")
    orders = Orders(spare=False)
    orders.start()
    run_replica(ReplicaSpec.read(Path(arguments[0])), orders, phases)


def run_replica(spec: ReplicaSpec, orders: Orders, phases: Phases, ready: Ready | None = None) -> None:
    """Be this replica until the end of the process."""
    spec.folder.mkdir(parents=True, exist_ok=True)
    lock = locked(spec.folder / "lock", orders.drain)
    if lock is None:
        os._exit(EXIT_DRAINED)
    store = open_store(spec.store, spec.job)
    holder = store.begin(spec.replica, os.getpid())
    flags = spec.folder if ready is None else ready.drain_flag.parent
    derives = deriving(spec, store, holder, flags)
    replica = Replica(spec, store, holder, phases, ready, derives)
    replica.drain = orders.drain
    code = _guarded(replica, store)
    replica.end_traces()
    if derives is not None:
        derives.derived.close()
    lock.close()
    sys.stdout.flush()
    # No interpreter shutdown: it would wait for threads that wait for Spark. The JVM ends with our end of its pipe.
    os._exit(code)


def _guarded(replica: Replica, store: Store) -> int:
    try:
        _check_environment(store, replica.spec)
        return replica.run()
    except LockstepError as error:
        failure = error
    except PySparkException as error:
        failure = explained_failure(str(error), replica.steps)
    except Exception as error:
        import traceback

        traceback.print_exc()
        failure = RunError("LS0601", f"the replica failed: {type(error).__name__}: {error}", hint="see its log.")
    with suppress(OSError):
        print(failure, file=sys.stderr, flush=True)
    if replica.drain.is_set() and failure.code == "LS0601":
        return EXIT_DRAINED
    _last_words(replica, failure)
    return exit_code(failure)


def _last_words(replica: Replica, failure: LockstepError) -> None:
    """Say what happened, as far as disk and store take it: they may be what failed, and the end waits for neither."""
    with suppress(OSError):
        (replica.spec.folder / "error.json").write_text(json.dumps({"error": failure.to_wire()}), encoding="utf-8")
    with suppress(OSError, StoreError):
        replica.store.add_event("replica-failed", str(failure), replica.holder.replica)
    with suppress(OSError, StoreError):
        replica.reporter.stop("failed")


def _check_environment(store: Store, spec: ReplicaSpec) -> None:
    mine = environment_hash()
    # Replicas of one environment are alike; whether two environments agree is seen by their digests.
    named = hashlib.sha256(json.dumps(spec.environment, sort_keys=True).encode()).hexdigest()[:16]
    held = store.put_fact_if_absent(f"environment-{named}" if spec.environment else "environment", mine)
    note_environment(store, spec.replica, os.getpid(), versions())
    if held != mine:
        raise RunError(
            "LS0607",
            "this replica's environment differs from the one the job began with",
            why=f"versions or pinned settings changed: {held} then, {mine} now; results could differ.",
            hint="run with the same Python, Java and packages; `lockstep upgrade --environment PYTHON` brings a job "
            "that runs into another environment, and compares.",
        )
