"""What there is to read in a topic: its partitions, how far their committed records go, and when these came."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.connect.kafka.client import away, client_settings, consumer_settings, explained, kafka_trouble, library
from lockstep.connect.kafka.heartbeats import is_heartbeat
from lockstep.connect.kafka.specs import KafkaSource
from lockstep.errors import ConnectError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

CALL_S = 3.0
"""How long one request may take here: whoever seals should soon say that it cannot, and try again."""
LOOK_S = 1.0
"""How often partitions, the topic's id and the oldest records are asked for: all change rarely."""
PEEK_S = 0.3
"""How long is waited for the times of records. They are for people: without them the epoch has none."""
BEGIN, END = -2, -1
"""In the place of a time: a partition's oldest record, and the end of its committed ones."""


@dataclass
class Topic:
    """A topic as it is now; partitions by their name in a cut."""

    id: str
    begins: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)


class TopicWatch:
    """Asks the brokers, in the driver."""

    def __init__(self, spec: KafkaSource) -> None:
        self._spec = spec
        self._admin: AdminClient | None = None
        small = {"fetch.message.max.bytes": 1024, "queued.max.messages.kbytes": 1024, "fetch.wait.max.ms": 2}
        self._consumer: Consumer = library().Consumer({**consumer_settings(spec), **small})
        self._topic: Topic | None = None
        self._looked_s = 0.0

    def look(self) -> Topic:
        """The topic now. The ends are asked for each time, what changes rarely once a second."""
        now_s = time.monotonic()
        if self._topic is None or now_s - self._looked_s >= LOOK_S:
            topic_id, partitions = self.described()
            if self._topic is None or len(partitions) != len(self._topic.begins):
                # The consumer learns of new partitions only now and then by itself.
                with kafka_trouble(self._spec):
                    self._consumer.list_topics(self._spec.topic, timeout=CALL_S)
            self._topic, self._looked_s = Topic(topic_id, self.offsets(partitions, BEGIN)), now_s
        self._topic.ends = self.offsets([int(name) for name in self._topic.begins], END)
        return self._topic

    def times(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """The broker's times, in microseconds, of the first records from these offsets on, as far as they come soon."""
        kafka = library()
        places = [kafka.TopicPartition(self._spec.topic, int(name), offset) for name, offset in offsets.items()]
        found: dict[str, int] = {}
        answered: set[str] = set()
        self._consumer.assign(places)
        deadline_s = time.monotonic() + PEEK_S
        while len(answered) < len(places) and time.monotonic() < deadline_s:
            for message in self._consumer.consume(len(places), 0.01):
                name = str(message.partition())
                if message.error() is None and name not in answered:
                    found[name] = int(message.timestamp()[1]) * 1000
                answered.add(name)
        self._consumer.unassign()
        return found

    def first_records(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[str, int]]:
        """By partition, who stamped the first record of each range, and when in ms; heartbeats are no records.

        A partition whose range has no record is left out: none was committed there. LS0521 if that cannot be found out.
        """
        kafka = library()
        if not ranges:
            return {}
        self._consumer.assign([kafka.TopicPartition(self._spec.topic, int(p), at) for p, (at, _) in ranges.items()])
        found: dict[str, tuple[str, int]] = {}
        waiting = {name: end for name, (_, end) in ranges.items()}
        deadline_s = time.monotonic() + CALL_S
        while waiting and time.monotonic() < deadline_s:
            message = self._consumer.poll(0.05)
            name = str(message.partition()) if message is not None else ""
            if message is None or name not in waiting or not _tells(message):
                continue
            offset = message.offset() or 0
            if message.error() is None and offset < waiting[name] and not is_heartbeat(message):
                kind, stamp_ms = message.timestamp()
                found[name] = (_STAMPED_BY.get(kind, "nobody"), int(stamp_ms))
                del waiting[name]
            elif offset + (message.error() is None) >= waiting[name]:
                del waiting[name]
        self._consumer.unassign()
        if waiting:
            raise away(self._spec, f"the records of partitions {', '.join(waiting)} did not come")
        return found

    def is_compacted(self) -> bool:
        """Whether the topic loses records of keys that have newer ones; False if it may not be asked."""
        try:
            return "compact" in self.config("cleanup.policy")["cleanup.policy"]
        except ConnectError:
            return False

    def config(self, *names: str) -> dict[str, str]:
        """These settings of the topic."""
        from confluent_kafka.admin._config import ConfigResource
        from confluent_kafka.admin._resource import ResourceType

        place = ConfigResource(ResourceType.TOPIC, self._spec.topic)
        try:
            found = self._opened().describe_configs([place], request_timeout=CALL_S)[place].result(CALL_S + 1)
        except (library().KafkaException, TimeoutError) as error:
            raise explained(self._spec, error) from error
        return {name: str(found[name].value) for name in names}

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _opened(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(client_settings(self._spec))
        return self._admin

    def described(self) -> tuple[str, list[int]]:
        """The topic's id and its partitions."""
        wanted = library().TopicCollection([self._spec.topic])
        try:
            asked = self._opened().describe_topics(wanted, request_timeout=CALL_S)[self._spec.topic]
            topic = asked.result(CALL_S + 1)
        except (library().KafkaException, TimeoutError) as error:
            raise explained(self._spec, error) from error
        return str(topic.topic_id), sorted(one.id for one in topic.partitions)

    def offsets(self, partitions: list[int], at: int) -> dict[str, int]:
        """In each partition the first record that was stamped at a time (ms) or later, -1 if none was yet.

        In the place of the time: :data:`BEGIN`, or :data:`END` of the committed records (the last stable offset).
        """
        kafka = library()
        places = [kafka.TopicPartition(self._spec.topic, one, at) for one in partitions]
        with kafka_trouble(self._spec):
            answers = self._consumer.offsets_for_times(places, timeout=CALL_S)
            for one in answers:
                if one.error is not None:
                    raise kafka.KafkaException(one.error)
        return {str(one.partition): one.offset for one in answers}


_STAMPED_BY = {1: "CreateTime", 2: "LogAppendTime"}
"""The client's numbers of the two kinds of stamps."""


def _tells(message: Message) -> bool:
    """Whether it is a record, or the word that a partition has no more; not an error that passes."""
    error = message.error()
    return error is None or error.code() == library().KafkaError._PARTITION_EOF
