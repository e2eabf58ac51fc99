"""A replica in this process, and a sealer that seals when it is told to: the rest is what runs in production."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from lockstep.api.loading import LoadedJob
from lockstep.connect.protocols import SourceSide
from lockstep.errors import LockstepError
from lockstep.runtime.decide.marks import TimeStep, is_over
from lockstep.runtime.epoch.sealing import Sealer
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.replica import Replica
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.state.checkpoint import standing
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.state_reports import StateReports
from lockstep.store.protocols import Entry, Holder, Store

RECORDS_MAX = 1_000_000
"""What one epoch of a test may hold: everything that was put, unless someone tests with more than this."""


class SealerByHand(Sealer):
    """Never runs as a thread; seals one epoch when asked to."""

    def start(self) -> None:
        """The test seals."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done after the end of the input."""
        return is_over(self._store.head(), self._time_steps)

    @property
    def sources(self) -> Mapping[str, SourceSide]:
        """Everything that it seals positions of."""
        return self._sources

    def adopt(self, other: Sealer) -> None:
        """Use the sources of another one: it knows the journals inside the job."""
        self._sources = other._sources

    def seal(self, epoch_time_us: int, observed: Mapping[str, int | None], *, ending: bool = False) -> Entry:
        """Seal the next epoch with everything that its sources have; with ``ending`` nothing comes after that."""
        previous = self._store.head()
        epoch = previous.epoch + 1 if previous else 0
        self._clock, self._observed = (lambda: epoch_time_us), observed
        self._limit = min(RECORDS_MAX, self._settings.records_per_epoch_max)
        advances = self._advances(previous, epoch_time_us)
        has_data = any(self._moved(previous, name, advance) for name, advance in advances.items())
        ended = self._quiet_epochs(previous, advances, has_data=has_data) if ending else 0
        self.put(self._proposal(epoch, previous, advances, ended, epoch_time_us=self._epoch_time_us(previous)))
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
        self.crashed = False
        self.queries: list[StreamingQuery] = []

    def start(self, job: LoadedJob, session: SparkSession) -> None:
        """Begin to follow the ledger, from its checkpoint if it has one."""
        self.drain_flag.unlink(missing_ok=True)
        self.queries = self.begin(job, session)

    def stop(self) -> None:
        """Stop the queries. Between epochs that is all a drain does; within one it is as good as a crash."""
        # Whoever disagrees with another replica waits for a verdict until it is told to stop.
        self.drain.set()
        for query in self.queries:
            query.stop()

    def drain_and_stop(self) -> None:
        """Stop as `lockstep stop` does: all stages after the same epoch, which is committed."""
        self.drain.set()
        self._drained(self.queries)

    def crash_in_next_epoch(self) -> None:
        """Die after publishing the next epoch."""
        self._crash_after = lambda epoch: True  # noqa: ARG005

    @property
    def has_diverged(self) -> bool:
        """Whether it disagrees with another replica, and waits for a verdict."""
        return any(runner.diverged for runner in self.runners)

    @property
    def is_running(self) -> bool:
        """Whether all its queries run."""
        return bool(self.queries) and all(query.isActive for query in self.queries)

    @property
    def committed(self) -> int:
        """The newest epoch that Spark has committed, in every stage."""
        folders = checkpoint_folders(self.spec.folder, max(1, len(self.queries)))
        found = [standing(folder) for folder in folders]
        return min(at.epoch if at is not None else -1 for at in found)

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps the state of the first stage."""
        return self.spec.folder / "checkpoint"

    @property
    def watermark_ms(self) -> int:
        """The watermark that the newest epoch was computed with, as Spark wrote it into the offset log."""
        at = standing(self.checkpoint)
        assert at is not None
        lines = (self.checkpoint / "offsets" / str(at.batch)).read_text(encoding="utf-8").splitlines()
        return int(json.loads(lines[1])["batchWatermarkMs"])

    def ended_by(self) -> LockstepError:
        """What ended it."""
        return self.failure(self.queries)

    def _report_from(self, stage_progress: StageProgress) -> None:
        super()._report_from(stage_progress)
        report = stage_progress.on_done
        stage_progress.on_done = lambda: self._after_publishing(report)

    def _after_publishing(self, report: Callable[[], None]) -> None:
        report()
        assert self.stage_progress is not None
        if self._crash_after(self.stage_progress.at.epoch):
            self.crashed = True
            raise RuntimeError("the replica crashes here, its epoch published and not committed")

    def _tasks_max(self, session: SparkSession) -> int:  # noqa: ARG002
        return self._tasks

    def _report_state(self, reports: StateReports) -> None:
        """The test says when: :meth:`report_state`."""
        reports.announce()

    def report_state(self) -> bool:
        """Report a digest of the state at an epoch at which one is due: where a replica joined, or every so many.

        The newest epoch is not among them: Spark may not have committed it yet. False if none is due any more.
        """
        return self._state_reports is not None and self._state_reports.look()

    def _others_publish(self) -> bool:
        """No warm-up: the JVM is shared and warm."""
        return False

    def _new_sealer(self, sources: Mapping[str, SourceSide], steps: tuple[TimeStep, ...]) -> Sealer:
        return SealerByHand(self.store, self.holder, sources, steps, self.settings.run, raised)


def raised(error: LockstepError) -> None:
    """In a test an error of sealing is an error of the test."""
    raise error
