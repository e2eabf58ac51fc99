"""What a replica does with each micro-batch: run it, take digests, publish it unless someone has, tell the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from lockstep.clock import wall_us
from lockstep.compile.job import Compiled
from lockstep.config import RunSettings
from lockstep.connect.protocols import Output, Place, Publication, SinkSide
from lockstep.connect.sinks.staging import read_batches
from lockstep.errors import LockstepError, RunError
from lockstep.faults.windows import Window, reached
from lockstep.runtime.decide.epoch_steps import BEGIN, DIGEST, EPOCH_STEPS, FINISH, PUBLISH, RUN
from lockstep.runtime.decide.fence import disagrees, goes_on, is_any_ours, judged_divergence
from lockstep.runtime.epoch.divergence import describe, differing_rows
from lockstep.runtime.epoch.output import SinkOutput, through_driver, through_executors
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.state.checkpoint import batch_epoch
from lockstep.store.dead_letters import DeadLetters, too_many
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Store

_VERDICT_POLL_S = 0.05


@dataclass
class _Epoch:
    """An epoch under way."""

    frame: DataFrame
    entry: Entry
    outputs: list[SinkOutput] = field(default_factory=list)
    held: list[Publication] = field(default_factory=list)
    """What holds in the sinks so far, from here or from another."""


class EpochRunner:
    """The function that Spark calls with every micro-batch (``foreachBatch``)."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        compiled: Compiled,
        sinks: Mapping[str, SinkSide],
        place: Place,
        checkpoint: Path,
        version: str,
        python_steps: Sequence[str],
        settings: RunSettings,
        stage_progress: StageProgress,
        observed: Callable[[], dict[str, int | None]],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._holder = holder
        self._compiled = compiled
        self._sinks = sinks
        self._place = place
        self._checkpoint = checkpoint
        self._version = version
        self._python_steps = python_steps
        self._settings = settings
        self._stage_progress = stage_progress
        self._observed = observed
        self._is_stopping = is_stopping
        self._dead_letters = DeadLetters(place.store, place.job, store)
        self._rows_last = 0
        self.failure: LockstepError | None = None
        self.diverged = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Compute and publish one epoch."""
        try:
            self._run(frame, batch_epoch(self._checkpoint, batch))
        except LockstepError as error:
            self.failure = error
            raise

    def _run(self, frame: DataFrame, epoch: int) -> None:
        entry = self._store.entry(epoch)
        if entry is None:
            raise RunError(
                "LS0605",
                f"epoch {epoch} is not in the ledger any more",
                why="this replica is further behind than anything that is kept.",
                hint="it is seeded from a peer at its next start.",
            )
        one = _Epoch(frame, entry)
        steps = {
            BEGIN: self._begin,
            RUN: self._compute_all,
            DIGEST: self._add_digests,
            PUBLISH: self._publish_all,
            FINISH: self._finish,
        }
        for step in EPOCH_STEPS:
            steps[step](one)

    def _begin(self, one: _Epoch) -> None:
        self._stage_progress.begun(one.entry.epoch)

    def _compute_all(self, one: _Epoch) -> None:
        one.outputs = self._compute(one.frame, one.entry)
        self._rows_last = sum(output.rows for output in one.outputs)
        self._reached(Window.RUN_NO_DIGEST, one.entry.epoch)

    def _add_digests(self, one: _Epoch) -> None:
        self._store.add_digests([self._digest(one.entry.epoch, output) for output in one.outputs])
        self._reached(Window.DIGEST_NOT_PUBLISHED, one.entry.epoch)

    def _publish_all(self, one: _Epoch) -> None:
        """Publish to the sinks in their fixed order, and keep what holds in each of them."""
        self._check_dead_letters()
        for output in one.outputs:
            if one.held:
                self._reached(Window.BETWEEN_TWO_SINKS, one.entry.epoch, published_here=self._is_ours(one))
            one.held.append(self._publish(one.entry, output))
        self._reached(Window.PUBLISHED_NOT_NOTED, one.entry.epoch, published_here=self._is_ours(one))

    def _check_dead_letters(self) -> None:
        """Beyond the limit nobody publishes the epoch: all who computed it have set the same records aside."""
        most = self._settings.dead_letters_max
        waiting = self._dead_letters.open()
        if waiting > most:
            raise too_many(self._place.job, waiting, most, next(self._dead_letters.letters()))

    def _finish(self, one: _Epoch) -> None:
        self._store.add_observed(one.entry.epoch, self._observed())
        self._stage_progress.done(self._compiled.stage.number, one.entry, one.held)
        self._reached(Window.PUBLISHED_NOT_COMMITTED, one.entry.epoch, published_here=self._is_ours(one))

    def _is_ours(self, one: _Epoch) -> bool:
        return is_any_ours(one.held, self._holder)

    def _reached(self, window: Window, epoch: int, published_here: bool | None = None) -> None:
        """A crash window; whoever publishes leads there, or if nobody has yet, whoever is about to."""

        def leading() -> bool:
            if published_here is not None:
                return published_here
            return all(side.publication(epoch) is None for side in self._sinks.values())

        reached(window, self._holder.replica, epoch, leading)

    def _compute(self, frame: DataFrame, entry: Entry) -> list[SinkOutput]:
        if self._rows_last + entry.records <= self._settings.rows_through_driver_max:
            return through_driver(frame, self._compiled)
        return through_executors(frame, self._compiled, self._place, self._holder, entry.epoch)

    def _digest(self, epoch: int, output: SinkOutput) -> Digest:
        return Digest(
            epoch=epoch,
            sink=output.part.step.id,
            replica=self._holder.replica,
            incarnation=self._holder.incarnation,
            digest=output.digest,
            rows=output.rows,
            version=self._version,
        )

    def _publish(self, entry: Entry, output: SinkOutput) -> Publication:
        """Publish to one sink; what holds there, from here or from another."""
        wanted = Publication(
            epoch=entry.epoch,
            digest=output.digest,
            rows=output.rows,
            by=str(self._holder),
            version=self._version,
            epoch_time_us=entry.epoch_time_us,
            ingested_oldest_us=entry.ingested_oldest_us,
            ingested_newest_us=entry.ingested_newest_us,
        )
        side = self._sinks[output.part.step.id]
        there = side.publication(entry.epoch) if output.output.files else None
        differs = there is not None and there.version == self._version and there.digest != output.digest
        # Publishing removes the files of whoever comes second, so a copy to compare has to be read before.
        copy = _staged_table(output.output) if differs else None
        held = side.publish(wanted, output.output, self._holder)
        if disagrees(wanted, held):
            self._compare(entry.epoch, output, held, copy)
        return held

    def _compare(self, epoch: int, output: SinkOutput, held: Publication, copy: pa.Table | None) -> None:
        """The digests differ: look at the rows; if they are really different, say so and wait for the verdict."""
        sink = output.part.step.id
        theirs = self._sinks[sink].rows(epoch)
        ours = copy if copy is not None else output.output.table
        only_ours = only_theirs = None
        if theirs is not None and ours is not None:
            only_ours, only_theirs = differing_rows(ours, theirs)
            if not only_ours and not only_theirs:
                self._store.add_event("float-noise", f'epoch {epoch}, sink "{sink}": floats differ in the last digits')
                return
        self._keep_copy(epoch, sink, ours)
        self._store.add_divergence(
            Divergence(
                epoch=epoch,
                sink=sink,
                replica=self._holder.replica,
                incarnation=self._holder.incarnation,
                published_by=held.by,
                digest=output.digest,
                published_digest=held.digest,
                detail=describe(epoch, sink, only_ours, only_theirs, self._python_steps),
                at_us=wall_us(),
            )
        )
        self._await_verdict(epoch, sink)

    def _keep_copy(self, epoch: int, sink: str, ours: pa.Table | None) -> None:
        """Keep the copy that was not published: with it a person can find out who was right."""
        if ours is None:
            return
        import pyarrow.parquet as pq

        folder = self._place.store / "jobs" / self._place.job / "divergences"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(ours, folder / f"{epoch:012d}-{sink}-{self._holder}.parquet")

    def _await_verdict(self, epoch: int, sink: str) -> None:
        self.diverged = True
        while not self._is_stopping():
            judged = judged_divergence(self._store.divergences(), epoch, sink, self._holder)
            if judged is not None:
                self.diverged = False
                if goes_on(judged):
                    return
                raise RunError("LS0603", f'replicas disagree about epoch {epoch} of sink "{sink}"', why=judged.detail)
            time.sleep(_VERDICT_POLL_S)
        raise RunError("LS0603", f'replicas disagree about epoch {epoch} of sink "{sink}"', why="not judged yet.")


def _staged_table(output: Output) -> pa.Table:
    """A large epoch's rows, read back before its files go: whoever comes second may have to compare them."""
    batches = [
        batch
        for file in output.files
        for batch in read_batches(Path(file.path), Path(file.path).suffix.lstrip("."), output.schema)
    ]
    return pa.Table.from_batches(batches, output.schema)
