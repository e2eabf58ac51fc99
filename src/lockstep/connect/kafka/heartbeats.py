"""Heartbeats: records without content in quiet partitions, by whose stamps every reader sees that time went on.

Any replica may write them, and several do no harm: readers skip them. The broker stamps them, so they also tell how far
its clock is from the one here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from lockstep.clock import Clock, wall_us
from lockstep.connect.kafka.client import away, client_settings, kafka_trouble, library
from lockstep.connect.kafka.specs import KafkaSource

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

HEADER = "lockstep-heartbeat"
"""A record without a value and with this header is a heartbeat."""
AGAIN_S = 0.05
"""A heartbeat takes some milliseconds to be there; one that was stamped too early is followed by another after this."""
COMPARED_S = 60.0
"""Clocks drift by some milliseconds a minute at worst."""
_DELIVERY_MS = 3_000


def is_heartbeat(message: Message) -> bool:
    """Whether a record is none of the user's. The value is looked at first: headers take longer to get."""
    return message.value() is None and any(name == HEADER for name, _ in _pairs(message))


def _pairs(message: Message) -> list[tuple[str, object]]:
    headers = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


class Heartbeats:
    """Writes them into one topic."""

    def __init__(self, spec: KafkaSource, clock: Clock = wall_us) -> None:
        self._spec = spec
        self._clock = clock
        self._producer: Producer | None = None
        self._sent_s: dict[str, float] = {}
        self._trouble: KafkaError | None = None
        self._ahead_us = 0
        self._compared_s = -COMPARED_S

    def now_us(self) -> int:
        """The time by the broker's clock, as far as its stamps have told."""
        return self._clock() + self._ahead_us

    def seen(self, stamp_us: int) -> None:
        """A record has this stamp: the broker's clock has reached it."""
        self._ahead_us = max(self._ahead_us, stamp_us - self._clock())

    def compare_clocks(self, partition: str) -> None:
        """Once a minute, where records come all the time and nobody waits for a heartbeat: write one for its stamp."""
        if time.monotonic() - self._compared_s >= COMPARED_S:
            self.send([partition])

    def send(self, partitions: Iterable[str]) -> None:
        """Write one into each of these partitions, unless one is on its way; LS0521 if none can be written."""
        now_s = time.monotonic()
        producer = self._opened()
        with kafka_trouble(self._spec):
            for name in partitions:
                if now_s - self._sent_s.get(name, -AGAIN_S) >= AGAIN_S:
                    self._sent_s[name] = self._compared_s = now_s
                    producer.produce(
                        self._spec.topic,
                        partition=int(name),
                        headers=[(HEADER, b"")],
                        on_delivery=partial(self._delivered, self._clock()),
                    )
        self.listen()

    def listen(self) -> None:
        """Hear what became of those that were sent; LS0521 if they could not be written."""
        if self._producer is not None:
            self._producer.poll(0)
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise away(self._spec, f"no heartbeat can be written ({trouble.str()})")

    def close(self) -> None:
        """Leave; what is on its way may be lost."""
        self._producer = None

    def _delivered(self, sent_us: int, error: KafkaError | None, message: Message) -> None:
        self._trouble = error
        if error is None:
            # From when it was sent, since this is heard of later, by up to an interval. If sending took long, bounds
            # are looked at too early; then a heartbeat is sent for the next one, and corrects it.
            self._ahead_us = int(message.timestamp()[1]) * 1000 - sent_us

    def _opened(self) -> Producer:
        if self._producer is None:
            own = {"acks": "all", "linger.ms": 0, "message.timeout.ms": _DELIVERY_MS}
            self._producer = library().Producer({**client_settings(self._spec), **own})
        return self._producer
