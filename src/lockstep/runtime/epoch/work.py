"""The work of an epoch: Spark runs it, the sinks publish it, rows are compared where digests differ."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from lockstep.compile.job import Compiled
from lockstep.config import RunSettings
from lockstep.connect.disk import remove_files
from lockstep.connect.kafka.client import AWAY
from lockstep.connect.letters import dead_letters
from lockstep.connect.protocols import Output, Place, Publication, SinkSide
from lockstep.connect.remote.paths import location, on_disk
from lockstep.connect.sinks.staging import read_batches
from lockstep.errors import ConnectError
from lockstep.runtime.decide.fence import disagrees
from lockstep.runtime.epoch.divergence import Row, contrast, describe, differing_rows
from lockstep.runtime.epoch.output import DriverRoom, SinkOutput, through_driver, through_executors
from lockstep.store.dead_letters import too_many
from lockstep.store.protocols import Entry, Holder, Store

COMPARED_ROWS_MAX = 200_000
"""Rows of an epoch that are compared one by one, as Python values, when replicas disagree."""


class SparkWork:
    """The work of one stage's epochs, one after the other; ``frame`` is the micro-batch under way."""

    frame: DataFrame

    def __init__(
        self,
        store: Store,
        holder: Holder,
        compiled: Compiled,
        sinks: Mapping[str, SinkSide],
        place: Place,
        python_steps: Sequence[str],
        settings: RunSettings,
        observed: Callable[[], Mapping[str, int | None]],
    ) -> None:
        self._store = store
        self._holder = holder
        self._compiled = compiled
        self._sinks = sinks
        self._place = place
        self._python_steps = python_steps
        self._settings = settings
        self.observed = observed
        self._dead_letters = dead_letters(place.home, place.job, store)
        self._room = DriverRoom(settings.rows_through_driver_max)
        self._rows_last = 0
        self._copies: list[Path] = []
        """The staged files of the output that was published last, if another one was there already."""

    def compute(self, entry: Entry) -> list[SinkOutput]:
        """Run the micro-batch, and see to it that what it set aside is not too much."""
        outputs = self._run(entry)
        self._rows_last = sum(output.rows for output in outputs)
        self._room.learn(outputs)
        self._check_dead_letters()
        return outputs

    def _run(self, entry: Entry) -> list[SinkOutput]:
        rows_max = self._room.rows_max()
        # Only a guess, to save the attempt where it would fail: what there is decides.
        if self._rows_last + entry.records <= rows_max:
            found = through_driver(self.frame, self._compiled, rows_max)
            if found is not None:
                return found
        return through_executors(self.frame, self._compiled, self._place, self._holder, entry.epoch)

    def _check_dead_letters(self) -> None:
        """Beyond the limit nobody publishes the epoch: all who computed it have set the same records aside."""
        most = self._settings.dead_letters_max
        try:
            waiting = self._dead_letters.open()
        except ConnectError as error:
            if error.code != AWAY:
                raise
            return  # it is only a limit: the next epoch asks again
        if waiting > most:
            raise too_many(self._place.job, waiting, most, next(self._dead_letters.letters()))

    def publish(self, wanted: Publication, output: SinkOutput) -> Publication:
        """Publish to one sink; what holds there, from here or from another."""
        side = self._sinks[output.sink]
        there = side.publication(wanted.epoch) if output.output.files else None
        # Publishing removes the files of whoever comes second, so a copy to compare has to be taken before.
        is_other = there is not None and disagrees(wanted, there)
        self._copies = self._copied(wanted.epoch, output) if is_other else []
        return side.publish(wanted, output.output, self._holder)

    def publication(self, epoch: int, output: SinkOutput) -> Publication | None:
        """What somebody has published of this; None if nobody has, or the sink cannot tell."""
        return self._sinks[output.sink].publication(epoch)

    def drop(self, output: SinkOutput) -> None:
        """Remove the staged files of what nobody publishes."""
        for file in output.output.files:
            location(file.path).unlink(missing_ok=True)

    def contrast(self, held: Publication, output: SinkOutput) -> str | None:
        """What differs from other results that were published, in words; None if no row really does."""
        only_ours, only_theirs = self._only(held, output)
        if only_ours == only_theirs == []:
            return None
        return "\n".join(contrast(only_ours, only_theirs))

    def _only(self, held: Publication, output: SinkOutput) -> tuple[list[Row] | None, list[Row] | None]:
        """The rows that only one side has; None where they cannot be compared one by one."""
        # More rows than fit into memory are not compared one by one: digests say that they differ, copies are kept.
        few = max(output.rows, held.rows) <= COMPARED_ROWS_MAX
        theirs = self._sinks[output.sink].rows(held.epoch) if few else None
        ours = _read(self._copies, output.output) if few else None
        if theirs is None or ours is None:
            return None, None
        return differing_rows(ours, theirs)

    def difference(self, held: Publication, output: SinkOutput) -> str | None:
        """The digests differ: look at the rows, and keep ours if they are really different."""
        only_ours, only_theirs = self._only(held, output)
        if only_ours == only_theirs == []:
            where = f'epoch {held.epoch}, sink "{output.sink}"'
            self._store.add_event("float-noise", f"{where}: floats differ in the last digits")
            remove_files(self._copies)
            return None
        if not self._copies:
            self._keep_copy(held.epoch, output.sink, output.output.table)
        return describe(held.epoch, output.sink, only_ours, only_theirs, self._python_steps)

    def _copied(self, epoch: int, output: SinkOutput) -> list[Path]:
        """The staged files of a large epoch under names that stay."""
        folder = self._divergences()
        stem = f"{epoch:012d}-{output.sink}-{self._holder}"
        kept = [folder / f"{stem}-{location(file.path).name}" for file in output.output.files]
        for path, file in zip(kept, output.output.files, strict=True):
            with on_disk(location(file.path)) as staged:
                shutil.copyfile(staged, path)
        return kept

    def _keep_copy(self, epoch: int, sink: str, ours: pa.Table | None) -> None:
        """Keep the copy that was not published: with it a person can find out who was right."""
        if ours is None:
            return
        import pyarrow.parquet as pq

        pq.write_table(ours, self._divergences() / f"{epoch:012d}-{sink}-{self._holder}.parquet")

    def _divergences(self) -> Path:
        folder = self._place.home / "jobs" / self._place.job / "divergences"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _read(copies: Sequence[Path], output: Output) -> pa.Table | None:
    """Our rows: as they are here, or from the copies of staged files."""
    if output.table is not None or not copies:
        return output.table
    batches = [batch for path in copies for batch in read_batches(path, path.suffix.lstrip("."), output.schema)]
    return pa.Table.from_batches(batches, output.schema)
