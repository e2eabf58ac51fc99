"""A broker as the tests use it: topics, transactions, and what a reader of committed records sees."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from lockstep.services import Node

WAIT_S = 20.0
_NOTHING = TopicMetadata()


@dataclass(frozen=True)
class Broker:
    servers: str
    node: Node | None = None
    """Its process, if it is ours to hurt."""

    @property
    def settings(self) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": self.servers, "log_level": 2}

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient(self.settings)

    def make(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        for asked in self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            asked.result(WAIT_S)
        self._wait_for(topic, partitions)

    def delete(self, topic: str) -> None:
        for asked in self.admin.delete_topics([topic]).values():
            asked.result(WAIT_S)

    def add_partitions(self, topic: str, total: int) -> None:
        for asked in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            asked.result(WAIT_S)
        self._wait_for(topic, total)

    def set_config(self, topic: str, config: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        place = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for asked in self.admin.incremental_alter_configs([place]).values():
            asked.result(WAIT_S)

    def trim(self, topic: str, partition: int, offset: int) -> None:
        for asked in self.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            asked.result(WAIT_S)

    def begin(self, topic: str) -> int:
        """The oldest offset that is kept of a topic with one partition."""
        with closing(Consumer({**self.settings, "group.id": "check"})) as consumer:
            marks = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
        assert marks is not None
        return int(marks[0])

    def _wait_for(self, topic: str, partitions: int) -> None:
        """What was made is known to all of the broker a moment later."""
        deadline_s = time.monotonic() + WAIT_S
        while len(self.admin.list_topics(timeout=WAIT_S).topics.get(topic, _NOTHING).partitions) != partitions:
            assert time.monotonic() < deadline_s, f"{topic} does not appear"
            time.sleep(0.02)

    def send(self, topic: str, values: Iterable[bytes | str], partition: int = 0, **more: Any) -> None:
        producer = Producer({**self.settings, "linger.ms": 1})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(WAIT_S) == 0

    def transaction(
        self, topic: str, values: Iterable[bytes | str], partition: int = 0, *, abort: bool = False
    ) -> None:
        producer = self.begun(topic, values, partition)
        if abort:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
        self.settle(topic)

    def begun(self, topic: str, values: Iterable[bytes | str], partition: int = 0) -> Producer:
        """A producer whose transaction is open, its records at the broker."""
        producer = Producer({**self.settings, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(WAIT_S)
        return producer

    def settle(self, topic: str) -> None:
        """Wait until all transactions are through: the broker marks their records a moment after the commit."""
        levels = ("read_committed", "read_uncommitted")
        readers = [Consumer({**self.settings, "group.id": "check", "isolation.level": one}) for one in levels]
        partitions = readers[0].list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        asked = [TopicPartition(topic, partition, -1) for partition in partitions]
        deadline_s = time.monotonic() + WAIT_S
        while len({str(one.offsets_for_times(asked, timeout=WAIT_S)) for one in readers}) > 1:
            assert time.monotonic() < deadline_s, f"a transaction stays open in {topic}"
            time.sleep(0.02)

    def committed(self, topic: str) -> list[Any]:
        """The JSON values that a reader of committed records sees, partition by partition."""
        return [json.loads(one.value() or b"null") for one in self.messages(topic)]

    def messages(self, topic: str) -> list[Message]:
        """What a reader of committed records sees, partition by partition."""
        self.settle(topic)
        consumer = Consumer(
            {
                **self.settings,
                "group.id": "check",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        partitions = sorted(consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
        found: dict[int, list[Message]] = {partition: [] for partition in partitions}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ended: set[int] = set()
        deadline_s = time.monotonic() + WAIT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline_s, f"{topic} was not read to its end"
            for message in consumer.consume(1000, 0.05):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[partition].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
        consumer.close()
        return [message for partition in partitions for message in found[partition]]
