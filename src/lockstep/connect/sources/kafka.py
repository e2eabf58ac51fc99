"""Reading a Kafka topic: positions are offsets, and only what was committed is in an epoch.

Where a partition begins is sealed like everything else: an epoch takes up the partitions that are new, at their oldest
record, and the next one reads them. So no replica asks the broker where something began, and all have one answer. The
topic's id is sealed with the first partitions: a topic that was deleted and made anew is not read on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lockstep.connect.kafka import avro
from lockstep.connect.kafka.heartbeats import is_heartbeat
from lockstep.connect.kafka.reader import PartitionReader, records_gone
from lockstep.connect.kafka.records import Values, texts, values_table
from lockstep.connect.kafka.specs import KafkaSource
from lockstep.connect.kafka.watch import Topic, TopicWatch
from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.letters import letter_writer
from lockstep.connect.protocols import POSITION, Advance, Place, Slice
from lockstep.connect.sources.ranges import fair_shares, split_range
from lockstep.errors import ConnectError
from lockstep.store.arrow import arrow_schema
from lockstep.store.dead_letters import Letter, raw_bytes, readable
from lockstep.store.protocols import Item, Positions

if TYPE_CHECKING:
    from confluent_kafka import Message

Row = TypeVar("Row")

SHRUNK_S = 30.0
"""How long a partition may end before what was read of it: a new leader needs a moment to know how far its log goes."""


class _Readers(threading.local):
    """Spark makes its workers' sides anew for every task, and a consumer takes longer to make than a task to read."""

    def __init__(self) -> None:
        self.by_spec: dict[KafkaSource, PartitionReader] = {}

    def get(self, spec: KafkaSource) -> PartitionReader:
        if spec not in self.by_spec:
            self.by_spec[spec] = PartitionReader(spec)
        return self.by_spec[spec]

    def close(self, spec: KafkaSource) -> None:
        reader = self.by_spec.pop(spec, None)
        if reader is not None:
            reader.close()


_readers = _Readers()


def shared_reader(spec: KafkaSource) -> PartitionReader:
    """The reader of a topic that this thread has, made if it has none."""
    return _readers.get(spec)


def close_reader(spec: KafkaSource) -> None:
    """Close it if there is one."""
    _readers.close(spec)


@dataclass(frozen=True)
class Extent:
    """How far the next epoch may read."""

    positions: dict[str, int]
    records: int
    new: tuple[str, ...]
    is_all: bool


def next_extent(since: Positions, topic: Topic, records_max: int, *, from_end: bool = False) -> Extent:
    """The next epoch's part of a topic; partitions that are new are taken up without a record.

    >>> next_extent({"0": 5}, Topic("id", {"0": 0, "1": 2}, {"0": 9, "1": 7}), 100)
    Extent(positions={'0': 9, '1': 2}, records=4, new=('1',), is_all=False)
    """
    known = {name: max(0, topic.ends[name] - since[name]) for name in topic.ends if name in since}
    shares = fair_shares(known, records_max)
    new = tuple(name for name in topic.ends if name not in since)
    # A partition that comes later has nothing that was there before the job: it is read from its beginning.
    at_end = from_end and not since
    positions = dict(since)
    positions |= {name: since[name] + count for name, count in shares.items()}
    positions |= {name: topic.ends[name] if at_end else topic.begins[name] for name in new}
    is_all = not new and all(positions[name] >= topic.ends[name] for name in topic.ends)
    return Extent(dict(sorted(positions.items(), key=lambda one: int(one[0]))), sum(shares.values()), new, is_all)


def up_to(topic: Topic, ends: Mapping[str, int] | None) -> Topic:
    """A topic as it was when it had these ends.

    >>> up_to(Topic("id", {"0": 0, "1": 2}, {"0": 9, "1": 7}), {"0": 5})
    Topic(id='id', begins={'0': 0}, ends={'0': 5})
    """
    if ends is None:
        return topic
    begins = {name: begin for name, begin in topic.begins.items() if name in ends}
    return Topic(topic.id, begins, {name: min(end, ends[name]) for name, end in topic.ends.items() if name in ends})


class KafkaSide:
    """The working side of :func:`lockstep.connect.kafka.specs.kafka` as a source."""

    def __init__(self, spec: KafkaSource, place: Place, source: str) -> None:
        self._spec = spec
        self._source = source
        self._values = arrow_schema(spec.values)
        self._schema = arrow_schema(spec.schema).append(pa.field(POSITION, pa.int64()))
        self._store = LazyStore(place)
        self._dead_letters = letter_writer(place)
        self._watch: TopicWatch | None = None
        self._topic_id = ""
        self._shrunk_s: dict[str, float] = {}
        self._stop_at: dict[str, int] | None = None

    def start(self) -> Positions:
        """No partition is known: the first epoch takes them up."""
        return {}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """What was committed after ``since``, the limit shared fairly between the partitions."""
        watch = self._watched()
        topic = watch.look()
        items = self._checked_id(topic, since)
        if items and watch.is_compacted():
            self._warn_of_compaction()
        self._check_kept(since, topic)
        found = next_extent(since, up_to(topic, self._stop_at), records_max, from_end=self._spec.start == "latest")
        oldest_us, newest_us = self._times(since, found)
        return Advance(
            found.positions,
            found.records,
            items,
            # Producers may give times of their own, also of tomorrow.
            None if oldest_us is None else min(oldest_us, now_us),
            None if newest_us is None else min(newest_us, now_us),
            finished=found.is_all,
        )

    def stop_here(self, now_us: int) -> None:
        """What is committed now, in the partitions that are there now, is all."""
        del now_us
        self._stop_at = dict(self._watched().look().ends)

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """The range of each partition that was known before, large ones in several pieces."""
        return [
            piece
            for partition in sorted(end, key=int)
            if partition in start
            for piece in split_range(partition, start[partition], end[partition])
        ]

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """The records of one piece with their offsets, without those that are bad: these become dead letters."""
        letters: list[Letter] = []
        for found in shared_reader(self._spec).batches(int(piece.partition), piece.start, piece.end):
            # Asked here first: a call for each record would be felt.
            messages = [one for one in found if one.value() is not None or not is_heartbeat(one)]
            if messages:
                # In one piece: Spark pays for each batch.
                yield from self._table(messages, piece, letters).combine_chunks().to_batches()
        if letters:
            self._keep(piece, letters)

    def trim(self, positions: Positions) -> None:
        """What is kept for how long is the topic's own affair."""

    def close(self) -> None:
        """Close what was opened."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        close_reader(self._spec)
        self._store.close()

    def _watched(self) -> TopicWatch:
        if self._watch is None:
            self._watch = TopicWatch(self._spec)
        return self._watch

    def _checked_id(self, topic: Topic, since: Positions) -> tuple[Item, ...]:
        """The topic's id to be sealed with its first partitions; LS0525 if another one was sealed."""
        if not self._topic_id:
            sealed = self._store.get().items(self._source, 0, 1)
            self._topic_id = str(sealed[0].body["topic_id"]) if sealed else ""
        if self._topic_id and self._topic_id != topic.id:
            raise made_anew(self._spec, f"it had the id {self._topic_id} and has {topic.id} now")
        return () if since or self._topic_id else (Item(self._source, 0, {"topic_id": topic.id}),)

    def _warn_of_compaction(self) -> None:
        text = (
            f"{self._source}: topic {self._spec.topic} is compacted: replicas that read it at different times may see "
            "different records, and disagree. Read a topic with cleanup.policy=delete."
        )
        self._store.get().add_event("kafka-compacted", text)

    def _check_kept(self, since: Positions, topic: Topic) -> None:
        now_s = time.monotonic()
        for name, position in since.items():
            if topic.begins.get(name, 0) > position:
                raise records_gone(self._spec, int(name), position, topic.begins[name])
            if topic.ends.get(name, 0) >= position:
                self._shrunk_s.pop(name, None)
            elif now_s - self._shrunk_s.setdefault(name, now_s) > SHRUNK_S:
                end = topic.ends.get(name, 0)
                raise made_anew(self._spec, f"partition {name} was read up to offset {position} and ends at {end}")

    def _times(self, since: Positions, found: Extent) -> tuple[int | None, int | None]:
        """When the oldest and the newest record came. Where the newest is hidden by a transaction's mark, the oldest
        stands for it: rather too early than too late.
        """
        moved = {name: position for name, position in found.positions.items() if position > since.get(name, position)}
        if not moved or self._watch is None:
            return None, None
        first = self._watch.times({name: since[name] for name in moved})
        last = self._watch.times({name: position - 1 for name, position in moved.items()})
        oldest = min(first.values(), default=None)
        return oldest, max([*first.values(), *last.values()], default=None)

    def _table(self, messages: list[Message], piece: Slice, letters: list[Letter]) -> pa.Table:
        bad: dict[int, str] = {}
        keys = self._keys(messages, bad)
        if bad:
            self._note(messages, piece, bad, letters)
            return self._table(_without(messages, bad), piece, letters)
        values = self._parsed([one.value() for one in messages], bad)
        if bad:
            self._note(messages, piece, bad, letters)
            keys = keys.take(_without(range(len(messages)), bad)) if keys is not None else None
        return pa.table([*values.columns, *self._beside(_without(messages, bad), keys)], schema=self._schema)

    def _parsed(self, values: Values, bad: dict[int, str]) -> pa.Table:
        spec = self._spec
        if spec.format != "avro":
            return values_table(values, self._values, spec.format, bad.setdefault)
        return avro.avro_values(spec.avro_schema, spec.avro_header, spec.values).table(values, bad.setdefault)

    def _keys(self, messages: list[Message], bad: dict[int, str]) -> pa.Array | None:
        if not self._spec.key_column:
            return None
        type_ = self._schema.field(len(self._values)).type
        return texts([one.key() for one in messages], type_, "its key", bad.setdefault)

    def _beside(self, messages: list[Message], keys: pa.Array | None) -> list[pa.Array]:
        """The columns that do not come from the value."""
        found = [keys] if keys is not None else []
        if self._spec.timestamp_column:
            times = pa.array([int(one.timestamp()[1]) * 1000 for one in messages], pa.int64())
            found.append(times.cast(pa.timestamp("us", "UTC")))
        if self._spec.headers_column:
            type_ = self._schema.field(self._spec.headers_column).type
            found.append(pa.array([_headers(one) for one in messages], type_))
        return [*found, pa.array([one.offset() for one in messages], pa.int64())]

    def _note(self, messages: list[Message], piece: Slice, bad: Mapping[int, str], letters: list[Letter]) -> None:
        for index, reason in sorted(bad.items()):
            message = messages[index]
            value, offset = message.value() or b"", message.offset() or 0
            where = f"{self._spec.topic}/{piece.partition}"
            if self._spec.on_bad_record == "stop":
                raise ConnectError(
                    "LS0506",
                    f"topic {self._spec.topic}, partition {piece.partition}, offset {offset} cannot be read",
                    why=f"{reason}.",
                    hint='mend the producer; with on_bad_record="skip" such records become dead letters, '
                    "and the job goes on.",
                )
            raw = raw_bytes(value)
            letters.append(Letter(self._source, self._source, where, offset, readable(value), reason, raw=raw))

    def _keep(self, piece: Slice, letters: list[Letter]) -> None:
        """Once, although every replica reads the piece, and again after a crash: pieces follow from sealed cuts."""
        letters = sorted(letters, key=lambda one: one.offset)
        if self._dead_letters.keep(f"{self._source}/{piece.partition}/{piece.start}-{piece.end}", letters):
            first = letters[0]
            more = f", and {len(letters) - 1:,} more of this part" if len(letters) > 1 else ""
            where = f"topic {self._spec.topic}, partition {piece.partition}, offset {first.offset}"
            self._store.get().add_event("dead-letter", f"{self._source}: {where}: {first.error}{more}")


def _without(rows: Sequence[Row], bad: Mapping[int, str]) -> list[Row]:
    return [one for index, one in enumerate(rows) if index not in bad] if bad else list(rows)


def _headers(message: Message) -> list[dict[str, object]]:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [{"name": name, "value": value.encode() if isinstance(value, str) else value} for name, value in pairs]


def made_anew(spec: KafkaSource, what: str) -> ConnectError:
    """The topic is not the one that was read."""
    return ConnectError(
        "LS0525",
        f"topic {spec.topic} is not the one that was read before",
        why=f"{what}: it was deleted and made anew, or its brokers lost records. Offsets mean other records now.",
        hint="run the job under a new name, which reads the topic from its beginning.",
    )
