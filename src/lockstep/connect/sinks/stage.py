"""Publishing epochs into a journal inside a job: what a stage hands on, or what a loop sends back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.clock import Clock, wall_us
from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.protocols import Output, Place, Publication, Stager
from lockstep.connect.sinks.arrow_stage import ArrowStage
from lockstep.connect.sinks.order import check_order
from lockstep.plan.loops import ROUND
from lockstep.plan.schema import Schema, parse_schema
from lockstep.plan.specs import StageJournal
from lockstep.store.home import job_folder
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.protocols import Holder, Store
from lockstep.store.types import spark_type


class StageSinkSide:
    """The working side of :class:`lockstep.plan.specs.StageJournal`."""

    def __init__(self, spec: StageJournal, sink_id: str, place: Place, clock: Clock = wall_us) -> None:
        self._spec = spec
        self._folder = job_folder(place.home, place.job)
        self._stage = ArrowStage(place, sink_id)
        self._store = LazyStore(place)
        self._clock = clock
        self._journal: SqliteJournal | None = None

    def open(self, schema: pa.Schema) -> None:
        """Make the journal, or recognise it (LS0409 if its columns have changed)."""
        self._stage.open(schema)
        self._opened()

    def last_published(self) -> int | None:
        """The newest epoch in the journal."""
        return self._opened().last_fence()

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``, None if nobody published it."""
        fence = self._opened().fence(epoch)
        return Publication(**json.loads(fence[0])) if fence is not None else None

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """An Arrow file beside the store."""
        return self._stage.stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Append the records and the fence, or nothing if the fence is there."""
        del holder
        # The newest one first: whoever publishes between the two reads has then published this very epoch.
        last = self._opened().last_fence()
        held = self.publication(wanted.epoch)
        if held is None:
            check_order(f"journal {self._spec.name}", wanted.epoch, last)
            held = self._append(wanted, output)
        self._stage.remove(output)
        return held

    def _append(self, wanted: Publication, output: Output) -> Publication:
        body = json.dumps(asdict(replace(wanted, published_us=self._clock())))
        given_up: list[int] = []
        kept = kept_rows(self._stage.batches(output), self._spec.rounds_max, given_up)
        held = Publication(**json.loads(self._opened().publish(wanted.epoch, body, kept)))
        if sum(given_up) and held.by == wanted.by:
            say_given_up(self._store.get(), self._spec, wanted.epoch, sum(given_up))
        return held

    def rows(self, epoch: int) -> pa.Table | None:
        """The records of one epoch; None for a loop, which does not keep those that it gave up."""
        fence = self._opened().fence(epoch)
        if fence is None or self._spec.rounds_max is not None:
            return None
        journal = self._opened()
        return pa.Table.from_batches(journal.read(0, fence[1], fence[2]), journal.schema)

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        return self._stage.sweep(dead)

    def close(self) -> None:
        """Close the journal's file."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._store.close()

    def _opened(self) -> SqliteJournal:
        if self._journal is None:
            self._journal = open_journal(self._folder, self._spec.name, journal_schema(self._stage.schema()))
        return self._journal


def kept_rows(
    batches: Iterable[pa.RecordBatch], rounds_max: int | None, given_up: list[int]
) -> Iterator[pa.RecordBatch]:
    """All records but those that went round too often, whose numbers are added to a list."""
    for batch in batches:
        kept = batch if rounds_max is None else batch.filter(pc.less_equal(batch.column(ROUND), rounds_max))
        given_up.append(batch.num_rows - kept.num_rows)
        yield kept


def say_given_up(store: Store, spec: StageJournal, epoch: int, records: int) -> None:
    """Tell people of records that a loop does not send back any more."""
    text = f"{spec.name}: {records} records of epoch {epoch} were still going after {spec.rounds_max} rounds"
    store.add_event("loop-gave-up", text)


def journal_schema(schema: pa.Schema) -> Schema:
    """How a journal of such rows is declared."""
    return parse_schema(", ".join(f"`{field.name}` {spark_type(field.type)}" for field in schema))
