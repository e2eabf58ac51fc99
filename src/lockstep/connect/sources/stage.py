"""Reading a journal inside a job: what an earlier stage handed on, or what a loop sent back."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lockstep.connect.protocols import Advance, Place, Slice
from lockstep.connect.sources.ranges import BATCH_ROWS, split_range
from lockstep.plan.specs import StageSource
from lockstep.store.home import job_folder
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.protocols import Positions

PARTITION = "0"
"""The only one: rows of a journal inside a job have one order."""


class StageSide:
    """The working side of :class:`lockstep.plan.specs.StageSource`."""

    def __init__(self, spec: StageSource, place: Place, source: str) -> None:
        del source
        self._folder, self._spec = job_folder(place.home, place.job), spec
        self._opened: SqliteJournal | None = None

    def start(self) -> Positions:
        """Before the first record."""
        return {PARTITION: self._journal().begins()[0]}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """Everything that is there. There is no limit: event time has passed what the earlier stage handed on, and a
        record that stayed behind would be late.
        """
        del records_max, now_us
        end = self._journal().ends()[0]
        return Advance({PARTITION: end}, end - since.get(PARTITION, 0), finished=True)

    def advance_after(self, epoch: int, since: Positions) -> Advance:
        """Everything that was handed on up to ``epoch``, which whoever asks has published or found published."""
        del epoch
        return self.advance(since, 0, 0)

    def stop_here(self, now_us: int) -> None:
        """What is on its way inside the job goes on until nothing moves."""

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """The range, in several pieces if it is large."""
        return split_range(PARTITION, start.get(PARTITION, 0), end[PARTITION])

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """The records of one piece. Whoever only reads makes no journal."""
        for batch in self._journal(may_make=False).read(0, piece.start, piece.end):
            for offset in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(offset, BATCH_ROWS)

    def trim(self, positions: Positions) -> None:
        """Nobody else reads it."""
        self._journal().trim({0: positions[PARTITION]})

    def close(self) -> None:
        """Close the journal's file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _journal(self, *, may_make: bool = True) -> SqliteJournal:
        if self._opened is None:
            self._opened = open_journal(self._folder, self._spec.name, self._spec.schema if may_make else None)
        return self._opened


class StageTrimmer(StageSide):
    """Only forgets: it knows the journal's name but not its columns, and opens it when there is something to forget."""

    def __init__(self, name: str, place: Place) -> None:
        self._name = name
        self._folder = job_folder(place.home, place.job)
        self._opened = None

    def start(self) -> Positions:
        """Nobody asks: whoever seals reads the journal, and has the columns."""
        return {}

    def trim(self, positions: Positions) -> None:
        """Open, forget, close."""
        journal = open_journal(self._folder, self._name)
        try:
            journal.trim({0: positions[PARTITION]})
        finally:
            journal.close()
