"""The two sides of a connector: a *spec* (plain data, part of the plan) and its *working side* (opens things).

Specs import no Spark and open nothing. Working sides are made from a spec where the work happens: a source's in the
driver (to find out what is new) and in Spark's Python workers (to read), a sink's in the driver (to publish) and in
the workers (to stage).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

from lockstep.plan.schema import CHANGED
from lockstep.plan.specs import Guarantee
from lockstep.store.opening import address_in
from lockstep.store.protocols import Entry, Holder, Item, Positions

StageFormat = Literal["parquet", "jsonl", "arrow"]

ORDER = "__order"
"""The hidden column that says which of two rows is newer: text that compares byte by byte."""

POSITION = "__position"
"""A column that a source may give beside its schema's: the positions of the records, where some of them are skipped."""

JOURNALS = "journals"
"""Fact: where the job's own journals are: the address of their topics, or :data:`FILES`."""
FILES = "files"


@dataclass(frozen=True)
class Advance:
    """What a source has beyond some positions, up to a limit: the source's part of the next cut."""

    positions: Positions
    records: int
    items: Sequence[Item] = ()
    ingested_oldest_us: int | None = None
    ingested_newest_us: int | None = None
    finished: bool = False
    """Whether this is all there is now: a run until done ends when every source says so."""


ROWS_PER_CHUNK_BITS = 32
"""Records of a file are numbered (chunk << 32) + row: a chunk never has four thousand million rows."""


@dataclass(frozen=True)
class Slice:
    """A part of an epoch's input that one task reads. Plain data: it travels to Spark's workers as JSON."""

    partition: str
    start: int
    end: int
    records: int
    detail: dict[str, Any] = field(default_factory=dict)


class SourceSide(Protocol):
    """The working side of a source."""

    def start(self) -> Positions:
        """The positions before the first epoch (every partition at its oldest kept record)."""

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """How far the next epoch may read: everything new after ``since``, at most about ``records_max`` records.

        Never fewer than one record if there is one. Only called by a replica that is ready to seal.
        """

    def stop_here(self, now_us: int) -> None:
        """From now on :meth:`advance` goes no further than to what is there now, and says there that it is finished."""

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """The input between two sealed positions, in pieces for Spark's tasks, in position order."""

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """The records of one piece in position order, in the spec's schema, batches of bounded size.

        The same piece gives the same records in every process for as long as the epoch is kept. Positions are counted
        from the piece's start, unless a last column :data:`POSITION` says them.
        """

    def trim(self, positions: Positions) -> None:
        """Nobody will read below ``positions`` again."""

    def close(self) -> None:
        """Give back what is open."""


@dataclass(frozen=True)
class Publication:
    """The fence of one epoch in one sink: what was published, by whom."""

    epoch: int
    digest: str
    rows: int
    by: str
    """``replica.incarnation`` of whoever published it."""
    version: str
    """Version of the job's code that computed it."""
    published_us: int = 0
    epoch_time_us: int = 0
    ingested_oldest_us: int | None = None
    ingested_newest_us: int | None = None


@dataclass(frozen=True)
class StagedFile:
    """A file that a worker wrote for an epoch; nobody sees it until a publication names it."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Output:
    """An epoch's rows for one sink: in memory if few, else in staged files (never both).

    For a sink with a key (and for journals inside a job) rows are in order: of two with one key the later one is the
    newer. Those in memory stand in it; staged ones carry it in a column :data:`ORDER`, and each file is sorted by it.

    Of a stream of changes such a sink takes those rows too that are taken back, and a last column :data:`CHANGED` says
    which they are. A key has at most one such row in an epoch, and then at most one that takes its place.
    """

    schema: pa.Schema
    table: pa.Table | None = None
    files: tuple[StagedFile, ...] = ()


class Stager(Protocol):
    """Writes one task's share of an epoch's rows into a staged file (in a Spark Python worker)."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of one batch."""

    def finish(self) -> StagedFile | None:
        """None if no row came."""

    def abandon(self) -> None:
        """Remove what was written: the task failed."""


class SinkSide(Protocol):
    """The working side of a sink."""

    def open(self, schema: pa.Schema) -> None:
        """Prepare (create, check the owner and the schema). Idempotent. LS0503 if another job owns the place."""

    def last_published(self) -> int | None:
        """The newest published epoch, None if there is none."""

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``, or None if nobody published it."""

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """Where one task writes its share of a large epoch."""

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Make the epoch visible unless it is already; one atomic act inside the sink.

        Returns the publication that holds: equal to ``wanted`` apart from times if this call published it, the other
        replica's if it came second (then everything this call wrote or was given as staged files is removed).
        """

    def rows(self, epoch: int) -> pa.Table | None:
        """The published rows of one epoch, or None if the sink cannot say (compacted, upserted, console)."""

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what these holders (``replica.incarnation``) staged and never published; returns how many files."""

    def close(self) -> None:
        """Give back what is open."""


@dataclass(frozen=True)
class Place:
    """Where a working side works: the project folder, and for whom."""

    project: Path
    home: Path
    """Where Lockstep keeps what it has on this host: journals, staged files, checkpoints (".lockstep")."""
    job: str
    publications_kept: int = 55
    """How many publications a sink without a fence of its own remembers, to compare with those who come second: as far
    as one may be behind (``behind_epochs_max``; its default stands here, for those who only read or stage)."""
    address: str = ""
    """Where the job's store is; empty: in ``home``."""
    journals: str = ""
    """Where the topics are that hold the job's own journals (:mod:`lockstep.connect.kafka.journals`); empty: they are
    files in ``home``."""

    shared: str = ""
    """Where executors and the driver both reach what they hand to each other, an address of the job's own; empty: in
    ``home``."""

    @property
    def store(self) -> str:
        """The address of the job's store."""
        return self.address or address_in(self.home)


__all__ = [
    "CHANGED",
    "ORDER",
    "POSITION",
    "ROWS_PER_CHUNK_BITS",
    "Advance",
    "Entry",
    "Guarantee",
    "Output",
    "Place",
    "Publication",
    "SinkSide",
    "Slice",
    "SourceSide",
    "StageFormat",
    "StagedFile",
    "Stager",
]
