"""Whether a job is sound before it runs: compiled against Spark, without reading or writing anything."""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from lockstep.api.loading import LoadedJob
from lockstep.compile.job import Compiled, compile_job
from lockstep.config import STORE_FOLDER, Settings, load_settings
from lockstep.control.start.continuing import PLAN, held_buckets, refuse_pinned
from lockstep.control.start.suspect_code import Suspicion, suspicions
from lockstep.errors import ExpressionError, LockstepError, RunError
from lockstep.plan.encode import function_name
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.plan.loops import LoopEnd
from lockstep.plan.steps import Sink, Step, Union, sources_before, upstream
from lockstep.runtime.booted import source_frames
from lockstep.runtime.epoch.source import LockstepSource
from lockstep.runtime.failures import explained_failure
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spark.environment import RESULT_PINS, environment_hash, open_session
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.opening import absolute, list_jobs, open_store

_WHY = {
    "files": "each epoch becomes visible by one manifest that can be made only once",
    "delta": "rows and the number of their epoch are written in one commit of the table",
    "postgres": "rows and the number of their epoch are written in one transaction",
    "sqlite": "rows and the number of their epoch are written in one transaction",
    "kafka": "rows and the epoch's fence are committed in one transaction",
    "console": "a console cannot be asked what it has printed: after a crash an epoch may be printed again",
}
_AT_MOST_ONCE = "an epoch is noted as taken before it is written: after a crash one may be missing, none comes twice"
_MODES = {
    "append": "each result is given once, when it is final",
    "update": "each epoch gives the results that changed in it",
}


@dataclass(frozen=True)
class StepFound:
    """A step and the columns it gives, with Spark's types."""

    step: str
    kind: str
    schema: str


@dataclass(frozen=True)
class SinkFound:
    """A sink, what it promises, and why it can."""

    sink: str
    place: str
    guarantee: str
    why: str


@dataclass(frozen=True)
class PythonFound:
    """A step that runs Python, and what in its code looks as if replicas could differ."""

    step: str
    function: str
    where: str
    suspicions: tuple[Suspicion, ...]


@dataclass(frozen=True)
class Found:
    """Everything that a check can tell of a sound job."""

    job: str
    output_mode: str
    output_meaning: str
    steps: tuple[StepFound, ...]
    sinks: tuple[SinkFound, ...]
    python: tuple[PythonFound, ...]
    pinned: Mapping[str, str]
    checkpoint_epoch: int | None
    """The newest sealed epoch of the job in this folder, None if it has not run here."""
    advice: tuple[str, ...]
    """What is allowed and yet seldom meant."""
    obstacles: tuple[str, ...]
    """Why what is in this folder cannot go on with this job; empty if it can, or if there is nothing."""


def check_job(loaded: LoadedJob, project: Path, spark_overrides: Mapping[str, Any] | None = None) -> Found:
    """Compile the job with a Spark session of its own and say what was found; raises what makes it unsound."""
    graph = loaded.job.graph()
    settings = load_settings(project, graph.options, spark_overrides=spark_overrides)
    refuse_pinned(settings)
    steps: list[StepFound] = []
    stages = _compiled(loaded, graph, settings, project, steps)
    epoch, obstacles = _existing(graph, absolute(settings.store, project))
    return Found(
        job=graph.name,
        output_mode=", ".join(stage.output_mode for stage in stages),
        output_meaning="; ".join(dict.fromkeys(_MODES[stage.output_mode] for stage in stages)),
        steps=tuple(steps),
        sinks=tuple(_sink(step) for step in graph.sinks if not isinstance(step, LoopEnd)),
        python=tuple(_python(step, loaded.path.parent) for step in graph.python_steps if _function(step)),
        pinned=RESULT_PINS,
        checkpoint_epoch=epoch,
        advice=tuple(advice(graph)),
        obstacles=tuple(obstacles),
    )


def advice(graph: Graph) -> list[str]:
    """What the plan of a job allows and its author seldom means."""
    said = []
    for step in graph.event_times:
        before = [one for one in upstream(step) if one is not step]
        if any(isinstance(one, Union) for one in before) and not any(one.stateful for one in before):
            united = " and ".join(sources_before(step))
            said.append(
                f'event_time "{step.id}" comes after the union of {united}: it follows whichever is ahead, and what '
                "another one brings later is late. Put .event_time(...) before .union(...): then the one that is "
                "behind counts."
            )
    return said


def _compiled(
    loaded: LoadedJob, graph: Graph, settings: Settings, project: Path, steps: list[StepFound]
) -> tuple[Compiled, ...]:
    for name in loaded.module_names:
        # Spark's workers cannot import the job's file, so its functions travel whole.
        cloudpickle.register_pickle_by_value(sys.modules[name])

    def note(step: Step, frame: DataFrame) -> None:
        visible = [field for field in frame.schema.fields if not field.name.startswith("__")]
        text = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in visible)
        steps.append(StepFound(step.id, type(step).__name__, text))

    with tempfile.TemporaryDirectory(prefix="lockstep-check-") as folder:
        spec = ReplicaSpec(
            project=str(project.resolve()),
            home=str((project / STORE_FOLDER).resolve()),
            address=absolute(settings.store, project),
            job=graph.name,
            job_file=str(loaded.path),
            code_hash=loaded.code_hash,
            replica="check",
            seed="auto",
            settings={},
        )
        with _session(graph.name, settings, Path(folder)) as session:
            frames = source_frames(session, spec, Path(folder) / "drain", tasks_max=1)
            stages = compile_job(graph, frames, on_lowered=note)
            for stage in stages:
                _check_streaming(session, stage, graph.name)
            return stages


def _check_streaming(session: SparkSession, compiled: Compiled, job: str) -> None:
    """What Spark would refuse when the query starts: chains of steps that it cannot run in this output mode."""
    jvm = session._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, compiled.output_mode.capitalize())()
    try:
        checker.checkForStreaming(compiled.frame._jdf.queryExecution().analyzed(), mode)
    except AnalysisException as error:
        raise ExpressionError(
            "LS0211",
            f'Spark cannot run the steps of job "{job}" in one query in {compiled.output_mode} mode',
            why=str(error).splitlines()[0],
            hint="make two jobs of it: the first ends in files or a table, the second reads them.",
        ) from None


@contextmanager
def _session(job: str, settings: Settings, folder: Path) -> Iterator[SparkSession]:
    """A quiet local session. What Spark says goes to a file, and into the error if it does not start."""
    log = folder / "spark.log"
    environment = process_environment()
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)
    with _hushed(log):
        try:
            local = settings.spark.model_copy(update={"master": "local[1]"})
            session = open_session(f"lockstep-check-{job}", local, folder)
        except Exception as error:
            raise _not_started(error, log) from None
        try:
            session.dataSource.register(LockstepSource)
            yield session
        except PySparkException as error:
            raise explained_failure(str(error)) from None
        finally:
            session.stop()


@contextmanager
def _hushed(log: Path) -> Iterator[None]:
    """The JVM writes to our standard output and error; meanwhile both lead to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def _not_started(error: Exception, log: Path) -> LockstepError:
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return RunError(
        "LS0612",
        "Spark did not start",
        why=f"{type(error).__name__}: {error}" + "".join(f"\n{line}" for line in said[-5:]),
        hint="`lockstep doctor` looks at Java, memory and disk.",
    )


def _existing(graph: Graph, address: str) -> tuple[int | None, list[str]]:
    """How far the job is in this folder, and what keeps it from going on with this plan."""
    if graph.name not in list_jobs(address):
        return None, []
    store = open_store(address, graph.name)
    try:
        head, plan, environment = store.head(), store.fact(PLAN), store.fact("environment")
        buckets = held_buckets(store) or graph.buckets
    finally:
        store.close()
    obstacles = differences(json.loads(plan), graph.with_buckets(buckets).fingerprint()) if plan is not None else []
    if environment is not None and environment != environment_hash():
        obstacles.append("versions of Python or packages are not those that the job began with (LS0607)")
    return (None if head is None else head.epoch), obstacles


def _sink(step: Sink) -> SinkFound:
    why = _WHY.get(step.spec.kind, "it is what this kind of sink can do")
    if step.given == "at-most-once":
        why = _AT_MOST_ONCE
    elif step.given != step.guarantee:
        why = f"{why} (the job asks only for {step.guarantee}; this costs no more)"
    return SinkFound(step.id, step.spec.describe(), step.given, why)


def _function(step: Step) -> Any:
    """The user's function that a step calls, None where Lockstep's own Python does all the work."""
    return getattr(step, "function", None)


def _python(step: Step, folder: Path) -> PythonFound:
    function = _function(step)
    try:
        file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
        path = Path(str(file)).resolve()
        where = f"{path.relative_to(folder) if path.is_relative_to(folder) else path}:{line}"
    except (TypeError, OSError):
        where = ""
    return PythonFound(step.id, function_name(function), where, tuple(suspicions(function)))
