"""Reading a journal: positions are its own, one partition of the source for each of its partitions.

Several jobs may read one journal. Each notes on this host down to where it still needs it, and the journal is
trimmed to the lowest of these floors. While the note of some job cannot be read, nothing is trimmed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.protocols import Advance, Place, Slice
from lockstep.connect.sources.ranges import BATCH_ROWS, fair_shares, split_range
from lockstep.connect.specs import JournalSource
from lockstep.errors import StoreError
from lockstep.store.dead_letters import SUFFIX as DEAD_LETTERS
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.journal_readers import JournalReaders
from lockstep.store.protocols import Positions
from lockstep.store.types import arrow_schema


class JournalSide:
    """The working side of :func:`lockstep.connect.specs.journal`."""

    def __init__(self, spec: JournalSource, place: Place, source: str) -> None:
        del source  # a journal's positions need no items in the ledger
        self._store = LazyStore(place)
        self._name = f"journal {spec.name}"
        self._readers = JournalReaders(place.home, place.job, spec.name)
        self._warned: set[str] = set()
        self._schema = arrow_schema(spec.values)
        self._home, self._spec = place.home, spec
        self._opened: SqliteJournal | None = None
        self._stop_at: dict[int, int] | None = None

    def start(self) -> Positions:
        """Every partition at its oldest kept record."""
        self._readers.begin(self._begins())
        return self._begins()  # again: from the moment it was noted, nobody trims beyond it

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """What was appended after ``since``, the limit shared fairly between the partitions."""
        del now_us
        last = self._stop_at
        ends = {str(p): end if last is None else min(end, last[p]) for p, end in self._journal().ends().items()}
        since = {partition: since.get(partition, 0) for partition in ends}
        shares = fair_shares({name: max(0, ends[name] - since[name]) for name in ends}, records_max)
        until = {name: since[name] + shares[name] for name in ends}
        times = [
            span
            for name, count in shares.items()
            if count and (span := self._journal().ingested(int(name), since[name], until[name]))
        ]
        return Advance(
            until,
            sum(shares.values()),
            ingested_oldest_us=min((oldest for oldest, _ in times), default=None),
            ingested_newest_us=max((newest for _, newest in times), default=None),
            finished=all(until[name] >= ends[name] for name in ends),
        )

    def stop_here(self, now_us: int) -> None:
        """What is in the journal now is all."""
        del now_us
        self._stop_at = self._journal().ends()

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """The range of each partition, large ones in several pieces."""
        return [
            piece
            for partition in sorted(end, key=int)
            for piece in split_range(partition, start.get(partition, 0), end[partition])
        ]

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """The records of one piece. Whoever only reads makes no journal: an executor's disk may not be the driver's."""
        at = piece.start
        for batch in self._journal(may_make=False).read(int(piece.partition), piece.start, piece.end):
            fitting = batch if batch.schema.equals(self._schema) else batch.cast(self._schema)
            if self._spec.timestamp_column:
                times = self._journal().arrivals(int(piece.partition), at, at + batch.num_rows)
                fitting = fitting.append_column(self._spec.timestamp_column, times)
            at += batch.num_rows
            for offset in range(0, fitting.num_rows, BATCH_ROWS):
                yield fitting.slice(offset, BATCH_ROWS)

    def trim(self, positions: Positions) -> None:
        """Let the journal forget what neither this job nor any other one needs."""
        if self._spec.name.endswith(DEAD_LETTERS):
            return  # whoever reads them, they stay until a person has handled them
        self._readers.move(positions)
        try:
            floors = self._readers.floors()
        except StoreError as error:
            self._warn(error)
            return
        self._journal().trim({int(each): min(floor.get(each, 0) for floor in floors) for each in positions})

    def close(self) -> None:
        """Close the journal's files."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._readers.close()
        self._store.close()

    def _journal(self, *, may_make: bool = True) -> SqliteJournal:
        if self._opened is None:
            schema = self._spec.values if may_make else None
            self._opened = open_journal(self._home, self._spec.name, schema, self._spec.partitions)
        return self._opened

    def _begins(self) -> dict[str, int]:
        return {str(partition): begin for partition, begin in self._journal().begins().items()}

    def _warn(self, error: StoreError) -> None:
        """Say once what trimming waits for: it is tried again and again."""
        text = f"{self._name} is not trimmed while another job's store cannot be read: {error}"
        if text not in self._warned:
            self._warned.add(text)
            self._store.get().add_event("retention-waits", text)
