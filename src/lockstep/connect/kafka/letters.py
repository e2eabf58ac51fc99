"""Dead letters in a topic: one record for each letter, under a key that follows from the position of what was bad.

Every replica meets the same bad record, and again after a crash. Whoever sets it aside reads the topic to its end first
and writes what is not there. Two may do that at the same time, so whoever reads takes the first of each key: in the
order of the log that is the same one for everybody, for ever, since nothing is removed from the topic.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from lockstep.connect.kafka.client import (
    AWAY,
    AWAY_S,
    away,
    client_settings,
    flushed,
    kafka_trouble,
    library,
    make_topics,
    patiently,
)
from lockstep.connect.kafka.journals import (
    DEAD_LETTERS,
    KEPT_CONFIG,
    MESSAGE_BYTES_MAX,
    ensure_topics,
    journal_topic,
    read_as,
)
from lockstep.connect.kafka.reader import PartitionReader
from lockstep.connect.kafka.specs import KafkaSink
from lockstep.connect.kafka.watch import END, TopicWatch
from lockstep.errors import ConnectError
from lockstep.store.dead_letters import DeadLetterWriter, Letter
from lockstep.store.protocols import Store

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_AGAIN_S = 0.2
_READ_TOGETHER = 100
"""Letters that are in memory at a time: one may have a megabyte."""


def make_letters(store: Store, address: str) -> None:
    """Make the topic of dead letters if the job begins; LS0530 if it was deleted since."""
    topic = journal_topic(address, DEAD_LETTERS)
    make = partial(make_topics, topic, {topic.topic: (1, KEPT_CONFIG)})
    patiently(topic, lambda: ensure_topics(store, topic, [topic.topic], make), AWAY_S)


class TopicLetters:
    """Implements :class:`lockstep.store.dead_letters.LetterBook`."""

    def __init__(self, address: str) -> None:
        self.topic = journal_topic(address, DEAD_LETTERS)
        self._watch: TopicWatch | None = None
        self._reader: PartitionReader | None = None
        self._keys: set[bytes] = set()
        self._position = 0

    def kept(self) -> int:
        """How many there are."""
        return len(self.keys())

    def keys(self) -> set[bytes]:
        """The keys of all that are there now."""
        end = self._end()
        for message in self._messages(self._position, end):
            self._keys.add(message.key() or b"")
        self._position = end
        return self._keys

    def letters(self) -> Iterator[Letter]:
        """All of them in order, each once, with their numbers."""
        seen: set[bytes] = set()
        for message in self._messages(0, self._end()):
            key = message.key() or b""
            if key not in seen:
                yield Letter(**json.loads(message.value() or b"{}"), number=len(seen))
                seen.add(key)

    def close(self) -> None:
        """Leave."""
        if self._watch is not None:
            self._watch.close()
        if self._reader is not None:
            self._reader.close()
        self._watch = self._reader = None

    def _end(self) -> int:
        if self._watch is None:
            self._watch = TopicWatch(read_as(self.topic))
        return self._watch.offsets([0], END)["0"]

    def _messages(self, start: int, end: int) -> Iterator[Message]:
        if start < end and self._reader is None:
            self._reader = PartitionReader(read_as(self.topic))
        for first in range(start, end, _READ_TOGETHER):
            assert self._reader is not None
            for some in self._reader.batches(0, first, min(end, first + _READ_TOGETHER)):
                yield from some


class _Desk:
    """Where one process writes letters: rare, so one after the other."""

    def __init__(self, address: str) -> None:
        self._book = TopicLetters(address)
        self._lock = threading.Lock()
        self._producer: Producer = library().Producer(
            {
                "message.max.bytes": MESSAGE_BYTES_MAX,
                **client_settings(self._book.topic),
                "enable.idempotence": True,
            }
        )
        self._failed: list[KafkaError] = []

    def write(self, letters: dict[bytes, bytes]) -> bool:
        """Write those that are not there; whether there was one. They are safe when this returns."""
        with self._lock:
            known = self._known()
            new = {key: value for key, value in letters.items() if key not in known}
            with kafka_trouble(self._book.topic):
                for key, value in new.items():
                    self._put(self._book.topic, key, value)
                left = flushed(self._producer, AWAY_S)
                if self._failed:
                    raise library().KafkaException(self._failed[0])
        if left:
            raise away(self._book.topic, f"{left} dead letters are not acknowledged")
        return bool(new)

    def _known(self) -> set[bytes]:
        """The keys that are there; asked for as long as a broker may take to be replaced."""
        deadline_s = time.monotonic() + AWAY_S
        while True:
            try:
                return self._book.keys()
            except ConnectError as error:
                if error.code != AWAY or time.monotonic() > deadline_s:
                    raise
                time.sleep(_AGAIN_S)

    def _put(self, topic: KafkaSink, key: bytes, value: bytes) -> None:
        try:
            self._producer.produce(topic.topic, value, key, partition=0, on_delivery=self._delivered)
        except BufferError:
            flushed(self._producer, AWAY_S)
            self._producer.produce(topic.topic, value, key, partition=0, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self._failed.append(error)


_desks: dict[tuple[int, str], _Desk] = {}
"""By process and address: Spark's workers are forked, and a client does not live on in a child."""


def _desk(address: str) -> _Desk:
    at = os.getpid(), address
    if at not in _desks:
        _desks[at] = _Desk(address)
    return _desks[at]


@dataclass(frozen=True)
class TopicLetterWriter(DeadLetterWriter):
    """Keeps letters in a topic. Plain data until a worker calls it."""

    journals: str = ""

    def keep(self, key: str, letters: Sequence[Letter]) -> bool:
        """Keep letters that belong together, each once: whether one of them was new."""
        try:
            return _desk(self.journals).write({f"{key}@{one.offset}".encode(): _value(one) for one in letters})
        except ConnectError:
            # Its client may be of no use any more.
            _desks.pop((os.getpid(), self.journals), None)
            raise


def _value(letter: Letter) -> bytes:
    row = {name: value for name, value in asdict(letter).items() if name != "number"}
    return json.dumps(row, ensure_ascii=False).encode(errors="surrogatepass")
