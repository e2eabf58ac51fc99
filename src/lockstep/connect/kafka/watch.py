"""What there is to read in a topic: its partitions, how far their committed records go, and when these came."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.connect.kafka.client import client_settings, consumer_settings, explained, kafka_trouble, library
from lockstep.connect.kafka.specs import KafkaSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

CALL_S = 3.0
"""How long one request may take here: whoever seals should soon say that it cannot, and try again."""
LOOK_S = 1.0
"""How often partitions, the topic's id and the oldest records are asked for: all change rarely."""
PEEK_S = 0.3
"""How long is waited for the times of records. They are for people: without them the epoch has none."""
_BEGIN, _END = -2, -1


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
            topic_id, partitions = self._described()
            with kafka_trouble(self._spec):
                if self._topic is None or len(partitions) != len(self._topic.begins):
                    # The consumer learns of new partitions only now and then by itself.
                    self._consumer.list_topics(self._spec.topic, timeout=CALL_S)
                begins = self._offsets(partitions, _BEGIN)
            self._topic, self._looked_s = Topic(topic_id, begins), now_s
        with kafka_trouble(self._spec):
            self._topic.ends = self._offsets([int(name) for name in self._topic.begins], _END)
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

    def is_compacted(self) -> bool:
        """Whether the topic loses records of keys that have newer ones; False if it may not be asked."""
        from confluent_kafka.admin._config import ConfigResource
        from confluent_kafka.admin._resource import ResourceType

        place = ConfigResource(ResourceType.TOPIC, self._spec.topic)
        try:
            found = self._opened().describe_configs([place], request_timeout=CALL_S)[place].result(CALL_S + 1)
        except (library().KafkaException, TimeoutError):
            return False
        return "compact" in str(found["cleanup.policy"].value)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _opened(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(client_settings(self._spec))
        return self._admin

    def _described(self) -> tuple[str, list[int]]:
        wanted = library().TopicCollection([self._spec.topic])
        try:
            asked = self._opened().describe_topics(wanted, request_timeout=CALL_S)[self._spec.topic]
            topic = asked.result(CALL_S + 1)
        except (library().KafkaException, TimeoutError) as error:
            raise explained(self._spec, error) from error
        return str(topic.topic_id), sorted(one.id for one in topic.partitions)

    def _offsets(self, partitions: list[int], which: int) -> dict[str, int]:
        """Begin or end of each partition; the end is that of the committed records (the last stable offset)."""
        kafka = library()
        places = [kafka.TopicPartition(self._spec.topic, one, which) for one in partitions]
        answers = self._consumer.offsets_for_times(places, timeout=CALL_S)
        for one in answers:
            if one.error is not None:
                raise kafka.KafkaException(one.error)
        return {str(one.partition): one.offset for one in answers}
