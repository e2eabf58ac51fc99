"""Reading a journal inside a job that is a topic: positions are offsets, as the topic's fence says them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lockstep.connect.kafka.client import away, client_settings, kafka_trouble
from lockstep.connect.kafka.fence import FenceReader
from lockstep.connect.kafka.journals import journal_topic, read_as, rows_of
from lockstep.connect.protocols import POSITION, Advance, Place, Slice
from lockstep.connect.sources.kafka import close_reader, shared_reader
from lockstep.connect.sources.stage import PARTITION, StageSide
from lockstep.plan.specs import StageSource
from lockstep.store.protocols import Positions
from lockstep.store.types import arrow_schema

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PAGES_PER_SLICE = 8
"""What one task reads at most: some megabytes, which it has in memory."""
ROW_BITS = 16
"""Records of a page are numbered (offset << 16) + row: a page has at most 10,000 rows."""
SETTLE_S = 3.0
"""How long a published epoch may take until its fence can be read; then whoever seals says so, and tries again."""


class StageTopicSide(StageSide):
    """The working side of :class:`lockstep.plan.specs.StageSource` where journals are topics."""

    def __init__(self, spec: StageSource, place: Place, source: str) -> None:
        del source
        self._topic = journal_topic(place.journals, spec.name)
        self._schema = arrow_schema(spec.schema)
        self._fence: FenceReader | None = None

    def start(self) -> Positions:
        """Before the first record: the topic was made for this job."""
        return {PARTITION: 0}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """Nothing: before its first epoch a job has handed on nothing."""
        del records_max, now_us
        return Advance(since, 0, finished=True)

    def advance_after(self, epoch: int, since: Positions) -> Advance:
        """Everything up to an epoch, once its fence can be read: a moment after it was published."""
        if self._fence is None:
            self._fence = FenceReader(self._topic)
        self._fence.wait(epoch, SETTLE_S)
        fence = self._fence.fence
        held, end = fence.find(epoch), fence.end_of(epoch)
        if held is None or end is None:
            raise away(self._topic, f"that epoch {epoch} is published cannot be read there yet")
        return Advance({PARTITION: end}, held.rows if end > since[PARTITION] else 0, finished=True)

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """The range, in pieces of some pages."""
        first, last = start.get(PARTITION, 0), end[PARTITION]
        begins = range(first, last, PAGES_PER_SLICE)
        ends = [min(last, begin + PAGES_PER_SLICE) for begin in begins]
        return [Slice(PARTITION, begin, end, end - begin) for begin, end in zip(begins, ends, strict=True)]

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """The rows of some pages, with their positions."""
        for found in shared_reader(read_as(self._topic)).batches(0, piece.start, piece.end):
            for message in found:
                rows = rows_of(message.value() or b"", self._schema)
                positions = ((message.offset() or 0) << ROW_BITS) + np.arange(rows.num_rows, dtype=np.int64)
                yield rows.append_column(POSITION, pa.array(positions))

    def trim(self, positions: Positions) -> None:
        """Whoever supervises the job trims (:class:`StageTopicTrimmer`)."""

    def close(self) -> None:
        """Leave."""
        if self._fence is not None:
            self._fence.close()
            self._fence = None
        close_reader(read_as(self._topic))


class StageTopicTrimmer(StageTopicSide):
    """Only forgets: it knows the journal's name but not its columns."""

    def __init__(self, name: str, place: Place) -> None:
        self._topic = journal_topic(place.journals, name)
        self._fence = None
        self._admin: AdminClient | None = None
        self._asked: Future[Any] | None = None

    def trim(self, positions: Positions) -> None:
        """Ask for it, and do not wait: what is not forgotten now is with the next call, which tells why it was not."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        with kafka_trouble(self._topic):
            if self._admin is None:
                # Kept: what was asked for is lost with it.
                self._admin = AdminClient(client_settings(self._topic))
            before, place = self._asked, TopicPartition(self._topic.topic, 0, positions[PARTITION])
            (self._asked,) = self._admin.delete_records([place]).values()
            if before is not None and before.done():
                before.result()

    def close(self) -> None:
        """Leave."""
        self._admin = None
