"""Runs a job over explicit epochs inside this process: real store, real query, real sinks; the test seals.

It is the replica's own code (compile, source, runner, checkpoint) without its process: the session is shared, and the
sealer seals when it is told to, at times that are made up, so that a test decides what every epoch holds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from lockstep.api.job import Job
from lockstep.api.loading import LoadedJob
from lockstep.config import Settings
from lockstep.connect.protocols import Place, SourceSide
from lockstep.connect.reading import read
from lockstep.connect.specs import JournalSource
from lockstep.connect.working import source_side
from lockstep.errors import LockstepError
from lockstep.runtime.checkpoint import standing
from lockstep.runtime.marks import TimeStep
from lockstep.runtime.replica import Replica, explained_failure, time_steps
from lockstep.runtime.sealing import Sealer
from lockstep.runtime.source import LockstepSource
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.journal import open_journal
from lockstep.store.protocols import Entry, Holder, Store
from lockstep.store.sqlite_store import open_store

START_US = 1_700_000_000_000_000
"""Epoch time just before epoch 0; each epoch comes a second later unless the test says otherwise."""
SECOND_US = 1_000_000
RECORDS_MAX = 1_000_000
WAIT_S = 60.0


class SealerByHand(Sealer):
    """Never runs as a thread; seals one epoch when asked to."""

    def start(self) -> None:
        """The test seals."""

    def seal(self, epoch_time_us: int, observed: Mapping[str, int | None]) -> Entry:
        """Seal the next epoch with everything that its sources have."""
        previous = self._store.head()
        epoch = previous.epoch + 1 if previous else 0
        self._clock, self._observed, self._limit = (lambda: epoch_time_us), observed, RECORDS_MAX
        self._seal(epoch, previous, self._advances(previous, epoch_time_us))
        entry = self._store.entry(epoch)
        assert entry is not None
        return entry


class ReplicaHere(Replica):
    """A replica in this process, with its own session settings and number of tasks."""

    def __init__(
        self, spec: ReplicaSpec, store: Store, holder: Holder, tasks: int, crash_after: Callable[[int], bool]
    ) -> None:
        super().__init__(spec, store, holder)
        self._tasks = tasks
        self._crash_after = crash_after
        self.query: StreamingQuery | None = None

    def start(self, job: LoadedJob, session: SparkSession) -> None:
        self.drain_flag.unlink(missing_ok=True)
        self.query = self.begin(job, session)
        assert self.runner is not None
        report = self.runner._on_done
        self.runner._on_done = lambda: self._after_publishing(report)

    def stop(self) -> None:
        """Stop the query. Between epochs that is all a drain does; within one it is as good as a crash."""
        if self.query is not None:
            self.query.stop()

    @property
    def committed(self) -> int:
        """The newest epoch that Spark has committed."""
        at = standing(self.checkpoint)
        return at.epoch if at is not None else -1

    @property
    def checkpoint(self) -> Path:
        return self.spec.folder / "checkpoint"

    @property
    def watermark_ms(self) -> int:
        """The watermark that the newest epoch was computed with, as Spark wrote it into the offset log."""
        at = standing(self.checkpoint)
        assert at is not None
        lines = (self.checkpoint / "offsets" / str(at.batch)).read_text(encoding="utf-8").splitlines()
        return int(json.loads(lines[1])["batchWatermarkMs"])

    def failure(self) -> LockstepError:
        """What ended the query."""
        assert self.query is not None and self.runner is not None
        if self.runner.failure is not None:
            return self.runner.failure
        return explained_failure(str(self.query.exception()))

    def _after_publishing(self, report: Callable[[], None]) -> None:
        report()
        assert self.runner is not None
        if self._crash_after(self.runner.at.epoch):
            raise RuntimeError("the replica crashes here, its epoch published and not committed")

    def _tasks_max(self, session: SparkSession) -> int:
        return self._tasks

    def _others_publish(self) -> bool:
        """No warm-up: the JVM is shared and warm."""
        return False

    def _new_sealer(self, sources: Mapping[str, SourceSide], steps: tuple[TimeStep, ...]) -> Sealer:
        return SealerByHand(self.store, self.holder, sources, steps, self.settings.run, _raise)


class Trial:
    """One job in one project folder, with the replicas that the test starts."""

    def __init__(self, session: SparkSession, job: Job, folder: Path, settings: Mapping[str, object]) -> None:
        folder.mkdir(exist_ok=True)
        self.session = session
        self.graph = job.graph()
        self.folder = folder
        self.replicas: dict[str, ReplicaHere] = {}
        self._settings = Settings.model_validate({"run": {**job.options, **settings}}).model_dump(mode="json")
        self._loaded = LoadedJob(job, folder / "job.py", "job", (), self._modules(), "code")
        self._store_folder = folder / ".lockstep"
        self.store = open_store(self._store_folder, job.name)
        self.place = Place(folder, self._store_folder, job.name)
        holder = self.store.begin("test", os.getpid())
        sources = {step.id: source_side(step.spec, self.place, step.id) for step in self.graph.sources}
        run = Settings.model_validate(self._settings).run
        self._sealer = SealerByHand(self.store, holder, sources, time_steps(self.graph), run, _raise)

    def start(
        self,
        replica: str = "r0",
        *,
        partitions: int = 1,
        tasks: int = 2,
        crash_after: Callable[[int], bool] = lambda epoch: False,
    ) -> ReplicaHere:
        """Start a replica (again, from its checkpoint) with so many shuffle partitions and tasks per source."""
        own = self.session.newSession()
        own.conf.set("spark.sql.shuffle.partitions", str(partitions))
        own.dataSource.register(LockstepSource)
        spec = ReplicaSpec(
            project=str(self.folder),
            store=str(self._store_folder),
            job=self.graph.name,
            job_file="",
            code_hash="code",
            replica=replica,
            seed="auto",
            settings=self._settings,
        )
        spec.folder.mkdir(parents=True, exist_ok=True)
        holder = self.store.begin(replica, os.getpid())
        started = ReplicaHere(spec, self.store, holder, tasks, crash_after)
        self.replicas[replica] = started
        started.start(self._loaded, own)
        return started

    def put(self, journal: str, records: Sequence[Mapping[str, Any]], partition: int | None = None) -> None:
        """Append records to a journal that a source of the job reads."""
        spec = next(step.spec for step in self.graph.sources if step.spec.to_json().get("name") == journal)
        assert isinstance(spec, JournalSource)
        opened = open_journal(self._store_folder, journal, spec.schema, spec.partitions)
        opened.append(batch_from_pylist(records, spec.schema), partition)
        opened.close()

    def epoch(self, seconds: float = 1.0, **journals: Sequence[Mapping[str, Any]]) -> int:
        """Put these records into these journals, and run one epoch over them."""
        for name, records in journals.items():
            self.put(name, records)
        self.run(1, seconds)
        head = self.store.head()
        assert head is not None
        return head.epoch

    def seal(self, seconds: float = 1.0) -> Entry:
        """Seal the next epoch, so many seconds of epoch time after the one before."""
        head = self.store.head()
        before_us = head.epoch_time_us if head else START_US
        observed = self.store.observed(head.epoch) if head else {}
        return self._sealer.seal(before_us + round(seconds * SECOND_US), observed)

    def run(self, epochs: int, seconds: float = 1.0) -> None:
        """Seal so many epochs, each when every replica has committed the one before, and see them committed."""
        for _ in range(epochs):
            self.wait(self.seal(seconds).epoch)

    def wait(self, epoch: int) -> None:
        """Until every replica that was started has committed ``epoch``; raises what ended one before that."""
        deadline_s = time.monotonic() + WAIT_S
        for one in self.replicas.values():
            while one.committed < epoch:
                assert one.query is not None
                if not one.query.isActive and one.committed < epoch:
                    raise one.failure()
                assert time.monotonic() < deadline_s, f"{one.spec.replica} did not reach epoch {epoch}"
                time.sleep(0.01)

    def run_to_failure(self) -> LockstepError:
        """Seal one epoch and return the error that it ends with."""
        epoch = self.seal().epoch
        try:
            self.wait(epoch)
        except LockstepError as error:
            return error
        raise AssertionError(f"epoch {epoch} did not fail")

    def rows(self, path: str = "out", epoch: int | None = None, table: str | None = None) -> list[dict[str, Any]]:
        """What is published in a sink of this trial, of one epoch or of all."""
        rows: list[dict[str, Any]] = self.table(path, epoch, table).to_pylist()
        return rows

    def table(self, path: str = "out", epoch: int | None = None, table: str | None = None) -> pa.Table:
        return read(self.folder / path, None if epoch is None else [epoch], table=table)

    def digests(self, epoch: int) -> dict[tuple[str, str], str]:
        """(replica, sink) -> digest."""
        return {(one.replica, one.sink): one.digest for one in self.store.digests(epoch)}

    def stop(self) -> None:
        """Stop every replica."""
        for one in self.replicas.values():
            one.stop()

    def close(self) -> None:
        self.stop()
        self.store.close()

    def _modules(self) -> tuple[str, ...]:
        """The test modules whose functions the job calls: workers cannot import them."""
        functions = [getattr(step, "function", None) for step in self.graph.python_steps]
        names = {function.__module__ for function in functions if function is not None}
        return tuple(sorted(name for name in names if name in sys.modules))


def optimized_plan(replica: ReplicaHere) -> str:
    """The optimized plan of the newest epoch, as text."""
    assert replica.query is not None
    return str(replica.query._jsq.streamingQuery().lastExecution().optimizedPlan().toString())


def _raise(error: LockstepError) -> None:
    raise error


__all__ = ["SECOND_US", "START_US", "ReplicaHere", "Trial", "optimized_plan"]
