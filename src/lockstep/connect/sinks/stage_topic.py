"""Publishing epochs into a journal inside a job that is a topic: pages of rows, and the fence in one transaction.

The fence says where the topic ended after each epoch, so a reader needs no other: the marks of transactions, which take
offsets too, are never asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.kafka.client import Settings, away, flushed, library
from lockstep.connect.kafka.fence import FenceReader, epoch_record, fence_topic
from lockstep.connect.kafka.journals import (
    KEPT_CONFIG,
    MESSAGE_BYTES_MAX,
    ensure_topics,
    gone,
    journal_topic,
    pages,
    read_as,
    rows_of,
)
from lockstep.connect.kafka.reader import PartitionReader
from lockstep.connect.protocols import Output, Place, Publication
from lockstep.connect.sinks.kafka import TRANSACTION_S, KafkaSinkSide, MakeProducer
from lockstep.connect.sinks.stage import kept_rows, say_given_up
from lockstep.plan.specs import StageJournal

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


class StageTopicSinkSide(KafkaSinkSide):
    """The working side of :class:`lockstep.plan.specs.StageJournal` where journals are topics."""

    # One: rows have one order for all replicas.
    _partitions: ClassVar[int] = 1
    _topic_config: ClassVar[dict[str, str]] = KEPT_CONFIG
    _more_settings: ClassVar[Settings] = {"message.max.bytes": MESSAGE_BYTES_MAX}

    def __init__(
        self,
        spec: StageJournal,
        sink_id: str,
        place: Place,
        clock: Clock = wall_us,
        make_producer: MakeProducer | None = None,
    ) -> None:
        super().__init__(journal_topic(place.journals, spec.name), sink_id, place, clock, make_producer)
        self._journal = spec
        self._end = 0
        """One past the offset of the newest record of the transaction under way."""
        self._begin = 0
        """Where the newest transaction before it ended."""
        self._failed: KafkaError | None = None
        self._given_up: list[int] = []

    def open(self, schema: pa.Schema) -> None:
        """Only what tasks need, which open it too, and may be on other machines: see :meth:`_opened`."""
        self._stage.open(schema)

    def _opened(self) -> FenceReader:
        """The fence, once the topics are made, or recognised as ours."""
        if self._reader is None:
            super().open(self._stage.schema())
        return super()._opened()

    def rows(self, epoch: int) -> pa.Table | None:
        """The records of one epoch; None for a loop, which does not keep those that it gave up."""
        fence = self._fence()
        end, start = fence.end_of(epoch), 0 if epoch == 0 else fence.end_of(epoch - 1)
        if end is None or start is None or self._journal.rounds_max is not None:
            return None
        schema = self._stage.schema()
        reader = PartitionReader(read_as(self._spec))
        try:
            found = [one for some in reader.batches(0, start, end) for one in some]
            return pa.Table.from_batches([rows_of(one.value() or b"", schema) for one in found], schema)
        finally:
            reader.close()

    def _make_topics(self) -> None:
        names = [self._spec.topic, fence_topic(self._spec.topic)]
        ensure_topics(self._store.get(), self._spec, names, super()._make_topics)

    def _messages(self, output: Output) -> Iterator[tuple[bytes | None, bytes]]:
        self._given_up = []
        for batch in kept_rows(self._stage.batches(output), self._journal.rounds_max, self._given_up):
            yield from ((None, page) for page in pages(pa.Table.from_batches([batch])))

    def _send(self, wanted: Publication, output: Output) -> Publication:
        fence = self._opened().fence
        self._begin = (fence.end_of(fence.last.epoch) or 0) if fence.last is not None else 0
        self._end, self._failed = self._begin, None
        published = super()._send(wanted, output)
        if sum(self._given_up):
            say_given_up(self._store.get(), self._journal, wanted.epoch, sum(self._given_up))
        return published

    def _produce(self, producer: Producer, key: bytes | None, value: bytes) -> None:
        producer.produce(self._spec.topic, value, key, partition=0, on_delivery=self._delivered)

    def _record(self, published: Publication) -> tuple[bytes, bytes]:
        """The fence says where the rows end, so these have to be there before it is written."""
        producer = self._producer
        assert producer is not None
        left = flushed(producer, TRANSACTION_S)
        if self._failed is not None:
            raise library().KafkaException(self._failed)
        if left:
            raise away(self._spec, f"{left} pages of epoch {published.epoch} are not acknowledged")
        if self._end < self._begin:
            raise gone(self._spec, f"it ended at {self._begin:,}, and a page that was just written is at {self._end:,}")
        return epoch_record(published, self._end)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error
            return
        offset = message.offset()
        assert offset is not None, "it was delivered"
        # Whoever deletes the topic, or makes it shorter, has it begin anew: what was in it is nowhere else.
        self._end = max(self._end, offset + 1) if offset >= self._begin else offset
