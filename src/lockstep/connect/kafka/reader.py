"""Reading a range of offsets of one partition: every record that was committed in it, in order.

Records of aborted transactions and the transactions' own marks leave holes in the offsets. So a range ends when the
position has reached its end, never after a count.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lockstep.connect.kafka.client import (
    AWAY_S,
    CALL_S,
    Settings,
    away,
    consumer_settings,
    kafka_trouble,
    library,
    patiently,
)
from lockstep.connect.kafka.specs import KafkaSource
from lockstep.errors import ConnectError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

BATCH_RECORDS = 20_000
BATCH_BYTES = 16 << 20
"""Large records come in smaller batches: so much is asked for at once, by the size of those before."""
_READING_AHEAD: Settings = {
    "queued.max.messages.kbytes": 32_768,
    # The next range is often another worker's, and what was read ahead is thrown away: one batch, not 100,000 records.
    "queued.min.messages": BATCH_RECORDS,
    # A client that has read enough ahead looks again after this. After a second, it has been sent elsewhere meanwhile.
    "fetch.queue.backoff.ms": 20,
    "fetch.wait.max.ms": 5,
}
_FIRST_RECORDS = 1_000
_SMALL_RECORDS = 5_000
_WAIT_S = 0.5
_AGAIN_S = 0.1


class PartitionReader:
    """One consumer; a range that begins where the last one ended goes on without asking the broker again."""

    def __init__(self, spec: KafkaSource) -> None:
        self._spec = spec
        self._consumer: Consumer = library().Consumer({**consumer_settings(spec), **_READING_AHEAD})
        self._next: tuple[int, int] | None = None
        self._left: list[Message] = []
        """Taken from the consumer, and beyond the range that was read."""
        self._asked = _FIRST_RECORDS
        self._known: set[int] = set()
        self._trouble = ""
        """What the client said last of what keeps it from reading."""

    def batches(self, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The committed records from ``start`` up to ``end``."""
        if self._next != (partition, start):
            self._go_to(partition, start)
        self._next = None  # whoever stops in between leaves it at an unknown place
        position = start
        gathered: list[Message] = []
        deadline_s = time.monotonic() + AWAY_S
        while position < end:
            messages = self._some(min(self._asked, end - position))
            records = self._records(messages, partition, position)
            reached = _position(messages, position)
            if reached > position:
                deadline_s = time.monotonic() + AWAY_S
            elif time.monotonic() > deadline_s:
                what = f"offsets {position} to {end} of partition {partition} did not come"
                raise away(self._spec, f"{what} {self._trouble}".rstrip())
            position = reached
            gathered += self._up_to(end, records)
            if len(gathered) >= self._asked:
                yield gathered
                self._learn(gathered)
                gathered = []
        if gathered:
            yield gathered
        if end - start < _SMALL_RECORDS:
            # Nothing is gained by reading ahead, and at the log's end the client would ask for more 200 times a second.
            self._consumer.unassign()
        else:
            self._next = (partition, end)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _some(self, count: int) -> list[Message]:
        """What is there, up to a count; waits only for the first."""
        if self._left:
            taken, self._left = self._left[:count], self._left[count:]
            return taken
        first = self._consumer.consume(1, _WAIT_S)
        return [*first, *self._consumer.consume(count - 1, 0)] if first and count > 1 else first

    def _records(self, messages: list[Message], partition: int, position: int) -> list[Message]:
        error_code = library().KafkaError
        records = [one for one in messages if one.error() is None]
        if len(records) != len(messages):
            for one in messages:
                error = one.error()
                if error is None or error.code() == error_code._PARTITION_EOF:
                    continue
                self._look_at(error, partition, _position(records, position))
        return records

    def _look_at(self, error: object, partition: int, position: int) -> None:
        """An error among the records: said by the broker that has lost them, or one that passes."""
        kafka = library()
        code = error.code() if isinstance(error, kafka.KafkaError) else None
        if code in (kafka.KafkaError._AUTO_OFFSET_RESET, kafka.KafkaError.OFFSET_OUT_OF_RANGE):
            place = kafka.TopicPartition(self._spec.topic, partition)
            marks = patiently(self._spec, lambda: self._consumer.get_watermark_offsets(place, timeout=CALL_S), AWAY_S)
            begin = marks[0] if marks is not None else 0
            if begin > position:
                raise records_gone(self._spec, partition, position, begin)
            # A leader that is new may not know yet how far its log goes.
            time.sleep(_AGAIN_S)
            self._go_to(partition, position)
        elif isinstance(error, kafka.KafkaError):
            self._trouble = f"({error.str()})"
            time.sleep(_AGAIN_S)

    def _up_to(self, end: int, records: list[Message]) -> list[Message]:
        offset = records[-1].offset() if records else -1
        if offset is None or offset < end:
            return records
        cut = bisect_left(records, end, key=lambda one: one.offset() or 0)
        self._left = records[cut:] + self._left
        return records[:cut]

    def _go_to(self, partition: int, start: int) -> None:
        self._left = []
        if partition not in self._known:
            # The consumer learns of new partitions only now and then by itself.
            topics = patiently(
                self._spec, lambda: self._consumer.list_topics(self._spec.topic, timeout=CALL_S).topics, AWAY_S
            )
            self._known = set(topics[self._spec.topic].partitions)
        with kafka_trouble(self._spec):
            self._consumer.assign([library().TopicPartition(self._spec.topic, partition, start)])

    def _learn(self, records: list[Message]) -> None:
        size = max(1, sum(len(one) for one in records) // len(records))
        self._asked = max(1, min(BATCH_RECORDS, BATCH_BYTES // size))


def _position(messages: list[Message], position: int) -> int:
    """How far it has been read: behind the last record, or where the broker says that the log ends."""
    for one in reversed(messages):
        error, offset = one.error(), one.offset()
        if offset is not None and offset >= 0 and error is None:
            return max(position, offset + 1)
        if offset is not None and error is not None and error.code() == library().KafkaError._PARTITION_EOF:
            return max(position, offset)
    return position


def records_gone(spec: KafkaSource, partition: int, position: int, begin: int) -> ConnectError:
    """The broker has removed records before they were read."""
    return ConnectError(
        "LS0522",
        f"records of topic {spec.topic} are gone: partition {partition}, offsets {position} to {begin - 1}",
        why="the broker removed them (its retention, or somebody's order) before every replica had read them.",
        hint="raise the topic's retention.ms and retention.bytes; to go on without them, run the job under a new name.",
    )
