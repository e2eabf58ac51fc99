"""What a replica does with each micro-batch: the steps of its epoch, with Spark and the sinks doing the work."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import DataFrame

from lockstep.connect.protocols import SinkSide
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import LockstepError, RunError
from lockstep.faults.windows import Window, reached
from lockstep.runtime.decide.fence import is_any_ours
from lockstep.runtime.epoch.epoch_steps import DIGEST, FINISH, PUBLISH, EpochSteps
from lockstep.runtime.epoch.output import SinkOutput
from lockstep.runtime.epoch.work import SparkWork
from lockstep.runtime.state.checkpoint import batch_epoch
from lockstep.runtime.steps import run
from lockstep.runtime.traces import StageTraces
from lockstep.store.protocols import Holder, Store


class EpochRunner:
    """The function that Spark calls with every micro-batch (``foreachBatch``)."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        sinks: Mapping[str, SinkSide],
        checkpoint: AnyPath,
        machine: EpochSteps[SinkOutput],
        work: SparkWork,
        traces: StageTraces,
    ) -> None:
        self._store = store
        self._holder = holder
        self._sinks = sinks
        self._checkpoint = checkpoint
        self._machine = machine
        self._work = work
        self.traces = traces
        self.failure: LockstepError | None = None

    @property
    def diverged(self) -> bool:
        """Whether it disagrees with what was published, and waits for a verdict."""
        return self._machine.diverged

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Compute and publish one epoch."""
        try:
            self._run(frame, batch)
        except LockstepError as error:
            self.failure = error
            raise

    def _run(self, frame: DataFrame, batch: int) -> None:
        epoch = batch_epoch(self._checkpoint, batch)
        entry = self._store.entry(epoch)
        if entry is None:
            raise RunError(
                "LS0605",
                f"epoch {epoch} is not in the ledger any more",
                why="this replica is further behind than anything that is kept.",
                hint="it is seeded from a peer at its next start.",
            )
        self._work.frame = frame
        self.traces.begin(entry, batch)
        run(self._machine.steps(entry, self._work), before=partial(self._before, epoch))
        self.traces.done(published=self._is_ours)
        self._reached(Window.PUBLISHED_NOT_COMMITTED, epoch, published_here=self._is_ours)

    def _before(self, epoch: int, step: str) -> None:
        """Between two steps is a crash window."""
        self.traces.step(step)
        if step == DIGEST:
            self._reached(Window.RUN_NO_DIGEST, epoch)
        elif step.startswith(PUBLISH) and not self._machine.held:
            self._reached(Window.DIGEST_NOT_PUBLISHED, epoch)
        elif step.startswith(PUBLISH):
            self._reached(Window.BETWEEN_TWO_SINKS, epoch, published_here=self._is_ours)
        elif step == FINISH:
            self._reached(Window.PUBLISHED_NOT_NOTED, epoch, published_here=self._is_ours)

    @property
    def _is_ours(self) -> bool:
        return is_any_ours(self._machine.held, self._holder)

    def _reached(self, window: Window, epoch: int, published_here: bool | None = None) -> None:
        """A crash window; whoever publishes leads there, or if nobody has yet, whoever is about to."""

        def leading() -> bool:
            if published_here is not None:
                return published_here
            return all(side.publication(epoch) is None for side in self._sinks.values())

        reached(window, self._holder.replica, epoch, leading)
