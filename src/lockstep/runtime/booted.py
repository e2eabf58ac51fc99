"""What a process of a job has that has booted: the job, a session, compiled stages, and queries that wait.

A spare has it before it knows which replica it is.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from lockstep.api.loading import LoadedJob, load_job
from lockstep.clock import wall_us
from lockstep.compile.hidden_columns import Hidden, ddl_with_hidden
from lockstep.compile.job import Compiled, SourceFrame, compile_job
from lockstep.compile.python_steps import DeadLetters
from lockstep.compile.tasks import is_one_task
from lockstep.config import PARTITIONS, is_local
from lockstep.connect.letters import letter_writer
from lockstep.connect.put_back import readings
from lockstep.connect.remote.paths import AnyPath
from lockstep.connect.tables import copies_in, look_in
from lockstep.plan.graph import Graph
from lockstep.plan.steps import Source
from lockstep.runtime.decide.pacing import is_live
from lockstep.runtime.epoch.source import FORMAT, SourceOptions
from lockstep.runtime.spark.waiting import WaitingQueries
from lockstep.runtime.spark.warm_up import EPOCHS_MAX, nowhere, warm_up
from lockstep.runtime.spec import (
    ReplicaSpec,
)
from lockstep.runtime.state.checkpoints_at_address import rehearsal_place
from lockstep.store.derived import LEDGER_FILE
from lockstep.store.protocols import Store


@dataclass(frozen=True)
class Ready:
    """What a process has that has booted; a spare has it before it knows which replica it is."""

    job: LoadedJob
    session: SparkSession
    stages: tuple[Compiled, ...]
    drain_flag: Path
    gate: Path
    warm: bool
    """Whether it has computed some epochs for practice."""
    waiting: WaitingQueries | None = None
    """The queries, if they have been started already and wait for their checkpoints."""
    queries_s: float = 0.0
    """What starting them took."""


def load(spec: ReplicaSpec, store: Store) -> LoadedJob:
    """The job, which finds its tables as they were copied at its start, whatever became of the files."""
    look_in(Path(spec.project), copies_in(store, spec.tables))
    return load_job(spec.job_file)


def graph_of(job: LoadedJob, spec: ReplicaSpec) -> Graph:
    """The job as it runs: its keys are divided as they were at its first start."""
    return job.job.graph().with_buckets(spec.parsed_settings().run.buckets)


def others_publish(store: Store, replica: str) -> bool:
    """Whether others than ``replica`` compute epochs now, as far as the store tells."""
    others = [one for one in store.progress() if one.replica != replica]
    return store.head() is not None and any(is_live(one, wall_us()) for one in others)


def compiled(
    job: LoadedJob, session: SparkSession, spec: ReplicaSpec, drain_flag: Path, tasks_max: int, gate: Path
) -> tuple[Compiled, ...]:
    """The job's stages, reading what the ledger says."""
    for name in job.module_names:
        # Spark's workers cannot import the job's file, so its functions travel whole.
        cloudpickle.register_pickle_by_value(sys.modules[name])
    frames = source_frames(session, spec, drain_flag, tasks_max, gate)
    graph = graph_of(job, spec)
    dead_letters = letter_writer(spec.place, readings((one.id, one.spec) for one in graph.sources))
    return _stages(graph, frames, dead_letters, spec, session, tasks_max)


def _stages(
    graph: Graph, frames: SourceFrame, letters: DeadLetters, spec: ReplicaSpec, session: SparkSession, tasks_max: int
) -> tuple[Compiled, ...]:
    own = spec.parsed_settings().run.stage_partitions
    # Stages with partitions of their own set the session's number, one after the other: then each needs one.
    shared = int(session.conf.get(PARTITIONS) or 1)
    one_task = is_one_task(session, tasks_max) and not own
    stages = compile_job(graph, frames, letters, one_task=one_task)
    if not own:
        return stages
    return tuple(replace(one, partitions=own.get(str(one.stage.number), shared)) for one in stages)


def warmed_up(
    ready: Ready,
    spec: ReplicaSpec,
    folder: Path,
    tasks_max: int,
    should_stop: Callable[[], bool],
    is_missed: Callable[[], bool] = lambda: True,
) -> Ready:
    """Compute the newest epoch some times, stage by stage, into nowhere; then start the queries, which wait.

    Afterwards this JVM is warm, and nothing but a checkpoint is missing.
    """
    session, checkpoints = ready.session, spec.parsed_settings().checkpoints
    waiting_folder = folder / "waiting"
    shutil.rmtree(waiting_folder, ignore_errors=True)
    frames = source_frames(session, spec, ready.drain_flag, tasks_max, warm_up_epochs=EPOCHS_MAX)
    stages = _stages(graph_of(ready.job, spec), frames, nowhere, spec, session, tasks_max)
    logs = {stage.stage.number: waiting_folder / str(stage.stage.number) for stage in stages}
    if checkpoints:
        # Such queries know the address of their checkpoint from the start: they cannot wait for it.
        for stage in stages:
            warm_up(stage, _rehearsal_place(spec, session, logs[stage.stage.number]), should_stop, is_missed)
        return replace(ready, warm=True)
    rehearsed = [warm_up(stage, logs[stage.stage.number], should_stop, is_missed) for stage in stages]
    if not all(rehearsed) or should_stop():
        return replace(ready, warm=True)
    begun_s = time.monotonic()
    waiting = WaitingQueries(ready.stages, logs, ready.gate)
    if not waiting.come(should_stop):
        return replace(ready, warm=True)
    return replace(ready, warm=True, waiting=waiting, queries_s=time.monotonic() - begun_s)


def _rehearsal_place(spec: ReplicaSpec, session: SparkSession, folder: Path) -> AnyPath:
    """Where state of a rehearsal goes: executors of other machines have no such folder."""
    if is_local(session.sparkContext.master):
        return folder
    return rehearsal_place(spec.parsed_settings().checkpoints, spec.replica)


def source_frames(
    session: SparkSession,
    spec: ReplicaSpec,
    drain_flag: Path,
    tasks_max: int,
    gate: Path | None = None,
    warm_up_epochs: int = 0,
) -> Any:
    """How the compiler gets the DataFrame of a source."""
    settings = spec.parsed_settings()
    derives = settings.run.order == "derived"

    def frame(step: Source, hidden: Hidden, stage: int) -> DataFrame:
        ddl = step.spec.schema.ddl()
        options = SourceOptions(
            project=spec.project,
            home=spec.home,
            address=spec.address,
            job=spec.job,
            source=step.id,
            spec={"kind": step.spec.kind, **step.spec.to_json()},
            ddl=ddl,
            hidden=asdict(hidden),
            tasks_max=tasks_max,
            drain_flag=str(drain_flag),
            gate=str(gate) if gate is not None else "",
            stage=stage,
            warm_up_epochs=warm_up_epochs,
            journals=settings.journals,
            ledger=str(drain_flag.parent / LEDGER_FILE) if derives and not warm_up_epochs else "",
        )
        schema = ddl_with_hidden(ddl, hidden.columns)
        return session.readStream.format(FORMAT).schema(schema).option("lockstep", options.to_json()).load()

    return frame
