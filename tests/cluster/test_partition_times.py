"""A topic whose second partition is an hour behind the first: nothing is late; compared with plain Python."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import read
from tests.cluster.broker import Broker
from tests.cluster.test_kafka_order import STAMPED

JOB = """
import lockstep as ls
from lockstep import F

job = ls.Job("times", order="ORDER", epoch_interval="1 second")
clicks = job.source("clicks", ls.kafka("TOPIC", servers="SERVERS", schema="user string, n bigint, at timestamp"))
(clicks.event_time("at", idle_after=None)
    .key_by("user").window(ls.tumbling("10 seconds")).agg(n=F.count("*"), total=F.sum("n"))
    .to(ls.files("windows"), name="windows"))
"""
BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)
BEHIND_S = (0, 3600)
"""How far each partition is behind."""
END_S = 7200
SETTINGS = {"heartbeat_interval_s": "0.5", "spares": "0"}
Windows = Counter[tuple[str, int, int, int]]


class Clicks(threading.Thread):
    """Sends numbered clicks to both partitions until told to stop: a second of event time at a time."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__(daemon=True)
        self._broker, self._topic = broker, topic
        self.sent: list[tuple[int, str, int]] = []
        """(event time in seconds, user, number)."""
        self._ended = threading.Event()

    def run(self) -> None:
        second = 4000
        while not self._ended.wait(0.1):
            for partition, behind_s in enumerate(BEHIND_S):
                self._send(partition, second - behind_s, 5)
            second += 1

    def _send(self, partition: int, at_s: int, count: int) -> None:
        first = len(self.sent)
        some = [(at_s, f"u{partition}-{n % 2}", first + n) for n in range(count)]
        self._broker.send(self._topic, [json.dumps(_click(*one)) for one in some], partition)
        self.sent += some

    def stop(self) -> None:
        """Send no more, but for one click in each partition after which every window is over."""
        self._ended.set()
        self.join()
        for partition in range(len(BEHIND_S)):
            self._send(partition, END_S, 1)

    def windows(self) -> Windows:
        found: dict[tuple[str, int], list[int]] = {}
        for at_s, user, n in self.sent:
            if at_s < END_S:
                found.setdefault((user, at_s // 10 * 10), []).append(n)
        return Counter((*key, len(values), sum(values)) for key, values in found.items())


def _click(at_s: int, user: str, n: int) -> dict[str, Any]:
    return {"user": user, "n": n, "at": (BEGIN + timedelta(seconds=at_s)).isoformat()}


def published(folder: Path) -> Windows:
    rows = read(folder / "windows").to_pylist()
    return Counter(
        (row["user"], int((row["window_start"] - BEGIN).total_seconds()), row["n"], row["total"]) for row in rows
    )


@pytest.fixture
def clicks(broker: Broker, topic: Callable[..., str]) -> Iterator[tuple[Clicks, str]]:
    name = topic(len(BEHIND_S), **STAMPED)
    sender = Clicks(broker, name)
    yield sender, name
    if sender.is_alive():
        sender.stop()


@pytest.mark.parametrize("order", ["agreed", pytest.param("derived", marks=pytest.mark.long)])
def test_a_partition_an_hour_behind_has_no_late_records_and_a_restart_forgets_nothing(
    broker: Broker, clicks: tuple[Clicks, str], tmp_path: Path, order: str
) -> None:
    sender, topic = clicks
    text = JOB.replace("TOPIC", topic).replace("SERVERS", broker.servers).replace("ORDER", order)
    sender.start()
    run = JobRun(Run("times", text, replicas=2, settings=SETTINGS), tmp_path)
    try:
        run.wait_running()
        run.wait_until(lambda: len(published(tmp_path)) > 4, 90, "the first windows")
        assert {user for user, *_ in published(tmp_path)} <= {"u1-0", "u1-1"}, "time is where the slower one is"
    finally:
        run.kill()
    again = JobRun(run.run, tmp_path)
    try:
        again.wait_running()
        before = len(published(tmp_path))
        again.wait_until(lambda: len(published(tmp_path)) > before, 90, "windows after the restart")
        sender.stop()
        wanted = sender.windows()
        again.wait_until(lambda: published(tmp_path).total() >= wanted.total(), 90, "every window to be published")
        assert published(tmp_path) == wanted
        assert not again.store.divergences()
        assert not again.store.digest_mismatches()
    finally:
        again.kill()
