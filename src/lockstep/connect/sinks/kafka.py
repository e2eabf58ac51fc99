"""Publishing epochs to a Kafka topic: rows and fence in one transaction, by whoever holds the topic's transactional id.

In steady state that is one replica, and the others see its fence appear. If an epoch does not appear in time, another
one takes the id. The one that held it finds out when it writes, looks at the fence again, and goes on beside it.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.formats import json_lines, json_values
from lockstep.connect.kafka.client import (
    AWAY_S,
    CALL_S,
    Settings,
    away,
    cause,
    client_settings,
    explained,
    is_fenced,
    library,
    make_topics,
    patiently,
)
from lockstep.connect.kafka.fence import (
    FENCE_CONFIG,
    FORMAT_VERSION,
    Act,
    Fence,
    FenceReader,
    Lateness,
    epoch_record,
    fence_topic,
    next_act,
    owner_record,
    patience,
)
from lockstep.connect.kafka.specs import KafkaSink
from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.protocols import Output, Place, Publication, Stager
from lockstep.connect.sinks.arrow_stage import ArrowStage
from lockstep.connect.sinks.order import Owner, check_order, check_owner, run_name, schema_text
from lockstep.connect.sinks.publication_memory import comparable
from lockstep.connect.sinks.schemas import check_key, without_nullability
from lockstep.errors import ConnectError, StoreError
from lockstep.store.patience import patience as patience_of_store
from lockstep.store.protocols import Holder
from lockstep.store.sealing_rules import may_not_seal

if TYPE_CHECKING:
    from confluent_kafka import Producer

Result = TypeVar("Result")
MakeProducer = Callable[[Settings], "Producer"]

TRANSACTION_S = 60.0
"""The broker ends a transaction that takes longer; that of a killed producer is ended sooner, by whoever is next."""
_LIVE_LOOK_S = 1.0
_STANDBY_S = 1.0
_ASK_S = 0.01
_AGAIN_S = 0.1


class KafkaSinkSide:
    """The working side of :func:`lockstep.connect.kafka.specs.kafka` as a sink."""

    _partitions: ClassVar[int] = -1
    """Of a topic that is made; -1: as the brokers choose."""
    _topic_config: ClassVar[dict[str, str]] = {}
    _more_settings: ClassVar[Settings] = {}
    """Settings of the producer beside those of every client."""

    def __init__(
        self,
        spec: KafkaSink,
        sink_id: str,
        place: Place,
        clock: Clock = wall_us,
        make_producer: MakeProducer | None = None,
    ) -> None:
        self._spec = spec
        self._sink = sink_id
        self._job = place.job
        self._stage = ArrowStage(place, sink_id)
        self._store = LazyStore(place)
        self._clock = clock
        self._make_producer = make_producer or quiet_producer
        self._reader: FenceReader | None = None
        self._producer: Producer | None = None
        """There while the topic is ours to write."""
        self._standby: Producer | None = None
        """Connected, for the moment when the topic has to be taken: connecting takes longer than taking it."""
        self._is_fenced = False
        """Whether another took the topic from us."""
        self._lateness = Lateness()

    def open(self, schema: pa.Schema) -> None:
        """Make the topics, or recognise them as ours."""
        columns = without_nullability(schema)
        check_key(f"topic {self._spec.topic}", self._spec.key, columns)
        self._stage.open(schema)
        if self._reader is None:
            patiently(self._spec, self._make_topics, AWAY_S)
            self._reader = FenceReader(self._spec)
        if self._reader.catch_up().owner is None:
            self._patiently(lambda _: self._claim(columns))
        self._check_owner(columns)

    def last_published(self) -> int | None:
        """The newest published epoch."""
        last = self._fence().last
        return last.epoch if last is not None else None

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``. Of an epoch published long ago only that is known: its digest is empty."""
        return self._fence().find(epoch)

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """An Arrow file beside the store: the rows go out in the driver's one transaction."""
        return self._stage.stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Send the rows and the fence, or nothing if the fence is there."""
        held = self._patiently(lambda attempts: self._published(wanted, output, holder, attempts))
        self._stage.remove(output)
        return comparable(held, wanted)

    def rows(self, epoch: int) -> pa.Table | None:
        """Always None: a topic has no index of epochs."""
        del epoch
        return None

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        return self._stage.sweep(dead)

    def close(self) -> None:
        """Leave; a transaction that is open is ended by whoever comes next."""
        self._give_up()
        self._standby = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._store.close()

    def _opened(self) -> FenceReader:
        if self._reader is None:
            self._reader = FenceReader(self._spec)
        return self._reader

    def _fence(self) -> Fence:
        return self._opened().catch_up()

    def _published(self, wanted: Publication, output: Output, holder: Holder, attempts: int) -> Publication:
        """What holds for the epoch in the end, from here or from another."""
        reader, computed_s = self._opened(), time.monotonic()
        until_s = computed_s + patience(wanted.rows, attempts, self._lateness)
        if self._producer is None and self._standby is None and attempts == 0:
            # The first one since the start, which may have taken long: others may have taken the topic meanwhile.
            reader.catch_up()
        while True:
            left_s, holds = until_s - time.monotonic(), self._producer is not None
            act = next_act(
                reader.fence, wanted.epoch, holder, is_over=left_s <= 0, holds=holds, is_fenced=self._is_fenced
            )
            if act is Act.WAIT:
                reader.wait(wanted.epoch, left_s)
            elif act is Act.TAKE_OVER:
                self._refuse_retired(holder)
                self._take_over()
                reader.catch_up()
                self._note_taking(wanted.epoch, holder)
            elif act is Act.PUBLISH:
                return self._send(wanted, output)
            else:
                late_s = time.monotonic() - computed_s
                return self._found(wanted.epoch, late_s if attempts == 0 else None)

    def _found(self, epoch: int, late_s: float | None) -> Publication:
        """What another published; and, if it is the newest, how late that one was."""
        fence = self._opened().fence
        held = fence.find(epoch)
        assert held is not None, "that is what the act says"
        # An epoch that is followed by others says only that this replica is behind.
        if late_s is not None and fence.last is not None and fence.last.epoch == epoch:
            self._lateness = self._lateness.after(held.by, late_s)
        self._stand_by()
        return held

    def _send(self, wanted: Publication, output: Output) -> Publication:
        fence = self._opened().fence
        check_order(f"topic {self._spec.topic}", wanted.epoch, fence.last.epoch if fence.last else None)
        published = replace(wanted, published_us=self._clock())
        fence.take(*self._commit(self._messages(output), lambda: self._record(published)))
        return published

    def _record(self, published: Publication) -> tuple[bytes, bytes]:
        """What the fence gets, once all rows are on their way."""
        return epoch_record(published)

    def _messages(self, output: Output) -> Iterator[tuple[bytes | None, bytes]]:
        for batch in self._stage.batches(output):
            values = json_lines(pa.Table.from_batches([batch])).split(b"\n")[:-1]
            keys: Sequence[bytes | None] = message_keys(batch, self._spec.key) or [None] * len(values)
            yield from zip(keys, values, strict=True)

    def _commit(
        self, messages: Iterator[tuple[bytes | None, bytes]], fence_record: Callable[[], tuple[bytes, bytes]]
    ) -> tuple[bytes, bytes]:
        """One transaction: everything, and the fence's record, or nothing."""
        producer = self._producer
        assert producer is not None
        producer.begin_transaction()
        for key, value in messages:
            self._when_there_is_room(producer, partial(self._produce, producer, key, value))
        record = fence_record()
        topic, (key, value) = fence_topic(self._spec.topic), record
        self._when_there_is_room(producer, partial(producer.produce, topic, value, key, partition=0))
        producer.commit_transaction(TRANSACTION_S)
        return record

    def _produce(self, producer: Producer, key: bytes | None, value: bytes) -> None:
        producer.produce(self._spec.topic, value, key)

    def _when_there_is_room(self, producer: Producer, produce: Callable[[], None]) -> None:
        deadline_s = time.monotonic() + AWAY_S
        while True:
            try:
                produce()
                return
            except BufferError:
                # More than the client takes at once: let it send some.
                producer.poll(_AGAIN_S)
                if time.monotonic() > deadline_s:
                    raise away(self._spec, "the client's buffer stays full") from None

    def _refuse_retired(self, holder: Holder) -> None:
        """Whoever was cut off and is back sees epochs missing that it has not read yet: it must not shut out others.

        If the store does not tell now, the fence alone decides: no epoch comes twice either way.
        """
        try:
            with patience_of_store(_LIVE_LOOK_S):
                is_live = self._store.get().is_live(holder)
        except StoreError:
            return
        if not is_live:
            raise may_not_seal(holder)

    def _take_over(self) -> None:
        """Take the transactional id: whoever had it can commit nothing from here on."""
        self._give_up()
        producer, self._standby = self._standby or self._new_producer(), None
        deadline_s = time.monotonic() + CALL_S
        while not self._is_taken(producer, deadline_s):
            pass
        # Whoever has it after us is watched anew.
        self._producer, self._is_fenced, self._lateness = producer, False, Lateness()

    def _is_taken(self, producer: Producer, deadline_s: float) -> bool:
        """Ask for the id, and soon again: if its holder left a transaction open, that has to be ended first.

        The broker does so at once, and has to be asked again. The client by itself asks after half a second, as good as
        all of a hand-over's time (measured); a call that follows one that timed out has it ask now.
        """
        try:
            producer.init_transactions(_ASK_S)
        except library().KafkaException as error:
            told = cause(error)
            if told is None or not told.retriable() or time.monotonic() > deadline_s:
                raise
            return False
        return True

    def _new_producer(self) -> Producer:
        return self._make_producer(
            {
                "linger.ms": 5,
                "compression.type": "lz4",
                # As Java's clients choose: other writers of the topic may be such.
                "partitioner": "murmur2_random",
                **self._more_settings,
                **client_settings(self._spec),
                # By the topic alone, not by job and sink: whoever else writes there has to be shut out, too.
                "transactional.id": f"lockstep.{self._spec.topic}",
                "transaction.timeout.ms": int(TRANSACTION_S * 1000),
            }
        )

    def _stand_by(self) -> None:
        """Have a producer that is connected. It shuts nobody out: only taking the id does."""
        if self._producer is None and self._standby is None:
            self._standby = self._new_producer()
            with suppress(library().KafkaException):
                self._standby.list_topics(self._spec.topic, timeout=_STANDBY_S)

    def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(library().KafkaException):
                producer.purge()

    def _patiently(self, act: Callable[[int], Result]) -> Result:
        """Do it until it is done; it is told how often it was tried. What the client raises means: look again, at most
        for as long as brokers may be away.
        """
        deadline_s = time.monotonic() + AWAY_S
        for attempts in itertools.count():
            try:
                return act(attempts)
            except library().KafkaException as error:
                self._after(error)
                if time.monotonic() > deadline_s:
                    raise explained(self._spec, error) from error
                if not is_fenced(error):
                    time.sleep(_AGAIN_S)
        raise AssertionError("counting does not end")

    def _after(self, error: Exception) -> None:
        """A producer that failed is given up, a fenced one too: the next one finds out what became of its transaction.

        Also if only this transaction had to be aborted: that is what the next one does first.
        """
        self._give_up()
        self._is_fenced = self._is_fenced or is_fenced(error)
        told = cause(error)
        if told is not None and told.code() == library().KafkaError.MSG_SIZE_TOO_LARGE:
            raise ConnectError(
                "LS0515",
                f"a row does not fit topic {self._spec.topic}",
                why=f"Kafka says: {told.str()}. Nothing of this epoch became visible.",
                hint="raise the topic's max.message.bytes and message.max.bytes in options=, or make rows smaller.",
            ) from error

    def _note_taking(self, epoch: int, holder: Holder) -> None:
        text = f"{self._sink}: {holder} writes topic {self._spec.topic} from epoch {epoch} on"
        self._store.get().add_event("kafka-writer", text)

    def _make_topics(self) -> None:
        fence = fence_topic(self._spec.topic)
        make_topics(self._spec, {self._spec.topic: (self._partitions, self._topic_config), fence: (1, FENCE_CONFIG)})

    def _claim(self, columns: pa.Schema) -> None:
        """Write down whose topic it is, unless somebody has; under the transactional id nobody can be in between."""
        self._take_over()
        fence = self._fence()
        if fence.owner is None:
            owner = self._owner(columns)
            self._commit(iter(()), lambda: owner_record(owner))
            fence.owner = owner

    def _owner(self, columns: pa.Schema) -> Owner:
        run = run_name(self._store.get(), f"kafka-run:{self._sink}")
        return Owner(self._job, self._sink, schema_text(columns), self._spec.key, FORMAT_VERSION, run)

    def _check_owner(self, columns: pa.Schema) -> None:
        held = self._opened().fence.owner
        assert held is not None
        anew = f"delete the topic {fence_topic(self._spec.topic)} while no job runs"
        check_owner(f"topic {self._spec.topic}", held, self._owner(columns), anew)


def quiet_producer(settings: Settings) -> Producer:
    """A producer that writes nothing to stderr: to be fenced is nothing special here, and it would call it fatal."""
    producer: Producer = library().Producer(settings, logger=_quiet)
    return producer


_quiet = logging.getLogger("lockstep.kafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def message_keys(batch: pa.RecordBatch, key: tuple[str, ...]) -> list[bytes | None]:
    """The keys of messages: the text of one column, JSON of a column that is no text, an object of several.

    >>> batch = pa.record_batch({"user": ["ann", None], "n": [1, 2]})
    >>> message_keys(batch, ("user",)), message_keys(batch, ("n",))
    ([b'ann', None], [b'1', b'2'])
    >>> message_keys(batch, ("user", "n"))
    [b'{"user":"ann","n":1}', b'{"user":null,"n":2}']
    """
    if not key:
        return []
    if len(key) > 1:
        return list[bytes | None](json_lines(pa.Table.from_batches([batch]).select(list(key))).split(b"\n")[:-1])
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    values = json_values(batch.column(key[0]))
    return [
        None if value is None else (value if isinstance(value, str) else encode(value)).encode() for value in values
    ]
