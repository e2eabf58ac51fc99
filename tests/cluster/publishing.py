"""A process that publishes epochs to a topic and kills itself, hard, in one window of a transaction."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from lockstep.connect.kafka.specs import kafka
from lockstep.connect.protocols import Place
from lockstep.connect.sinks.kafka import KafkaSinkSide, quiet_producer
from lockstep.store.opening import open_store
from lockstep.store.protocols import Holder
from tests.unit.connect.sinks_for_connect import SCHEMA, publish

WINDOWS = ("begun", "rows sent", "fence sent", "committed")


class Deadly:
    """A producer that is killed in a window of the transaction after ``spared`` others."""

    def __init__(self, producer: Any, window: str, spared: int) -> None:
        self._producer, self._window, self._spared = producer, window, spared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def begin_transaction(self) -> None:
        self._producer.begin_transaction()
        self._at("begun")

    def produce(self, topic: str, *arguments: Any, **named: Any) -> None:
        if topic.endswith("fence"):
            self._at("rows sent")
        self._producer.produce(topic, *arguments, **named)

    def commit_transaction(self, timeout: float) -> None:
        self._at("fence sent")
        self._producer.commit_transaction(timeout)
        self._at("committed")
        self._spared -= 1

    def _at(self, window: str) -> None:
        if window == self._window and self._spared == 0:
            self._producer.flush(10)
            os.kill(os.getpid(), signal.SIGKILL)


def with_replicas(place: Place) -> Place:
    """A place where the first incarnations of r0 and r1 live."""
    store = open_store(place.store, place.job)
    for replica in ("r0", "r1"):
        store.begin(replica, pid=1)
    store.close()
    return place


def main(servers: str, topic: str, project: str, window: str) -> None:
    place = Place(Path(project), Path(project) / ".lockstep", "job")
    spared = 3  # the owner's record, and epochs 0 and 1
    side = KafkaSinkSide(
        kafka(topic, servers=servers),
        "alerts",
        place,
        make_producer=lambda settings: Deadly(quiet_producer(settings), window, spared),  # type: ignore[arg-type, return-value]
    )
    side.open(SCHEMA)
    for epoch in range(5):
        publish(side, epoch, Holder("r0", 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
