"""A whole job from topic to topic: two replicas, the one that writes is killed; compared with plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.bench.running import JobRun, Run
from lockstep.connect.kafka.fence import fence_topic
from lockstep.store.dead_letters import DeadLetters
from lockstep.store.protocols import Holder
from tests.cluster.broker import Broker

JOB = """
import lockstep as ls
from lockstep import F

job = ls.Job("orders")
orders = job.source("orders", ls.kafka("SOURCE", servers="SERVERS", schema="user string, amount bigint"))
wanted = orders.filter("amount % 10 != 0")
wanted.to(ls.kafka("PASSED", servers="SERVERS", key="user"), name="passed")
totals = wanted.key_by("user").agg(n=F.count("*"), total=F.sum("amount"))
totals.to(ls.kafka("TOTALS", servers="SERVERS", key="user"), name="totals")
"""
SETTINGS = {"heartbeat_interval_s": "0.5", "spares": "0"}
PARTITIONS = 3


class Orders:
    """Sends orders, and knows what must come out."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self.sent: list[dict[str, Any]] = []

    def send(self, count: int) -> None:
        first = len(self.sent)
        orders: list[dict[str, Any]] = [{"user": f"u{n % 7}", "amount": n} for n in range(first, first + count)]
        for partition in range(PARTITIONS):
            mine = [json.dumps(one) for one in orders if one["amount"] % PARTITIONS == partition]
            self._broker.transaction(self._topic, mine, partition)
            self._broker.transaction(self._topic, ['{"user": "nobody", "amount": 1}'], partition, abort=True)
        self._broker.send(self._topic, ["malformed"])
        self.sent += orders

    def passed(self) -> list[dict[str, Any]]:
        return [one for one in self.sent if one["amount"] % 10]

    def totals(self) -> dict[str, tuple[int, int]]:
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for one in self.passed():
            counts[one["user"]] += 1
            sums[one["user"]] += one["amount"]
        return {user: (counts[user], sums[user]) for user in counts}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], JobRun]]:
    runs: list[JobRun] = []

    def start(text: str) -> JobRun:
        runs.append(JobRun(Run("orders", text, replicas=2, settings=SETTINGS), tmp_path))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()


def newest_totals(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {row["user"]: (row["n"], row["total"]) for row in rows}


def writer(broker: Broker, topic: str) -> str:
    """The replica that wrote the newest epoch of a topic."""
    return Holder.replica_of(str(broker.committed(fence_topic(topic))[-1]["by"]))


def test_a_killed_writer_is_not_seen_in_the_output(
    broker: Broker, topic: Callable[..., str], started: Callable[[str], JobRun]
) -> None:
    source, passed, totals = topic(PARTITIONS), topic(2), topic(2)
    orders = Orders(broker, source)
    orders.send(200)
    names = {"SERVERS": broker.servers, "SOURCE": source, "PASSED": passed, "TOTALS": totals}
    text = JOB
    for name, value in names.items():
        text = text.replace(name, value)
    run = started(text)
    run.wait_running()

    def is_all_there() -> bool:
        return newest_totals(broker.committed(totals)) == orders.totals()

    orders.send(200)
    run.wait_until(is_all_there, 60, "the first orders to be published")
    orders.send(200)
    run.kill_replica(writer(broker, totals))
    orders.send(200)
    run.wait_until(is_all_there, 60, "orders to be published after the kill")

    out = broker.committed(passed)
    assert Counter(map(json.dumps, out)) == Counter(map(json.dumps, orders.passed())), "each order once"
    for one in {(row["user"], row["amount"] % PARTITIONS) for row in out}:
        amounts = [row["amount"] for row in out if (row["user"], row["amount"] % PARTITIONS) == one]
        assert amounts == sorted(amounts), "orders of a key in the order of their partition"
    steps = [(row["user"], row["n"]) for row in broker.committed(totals)]
    assert len(set(steps)) == len(steps), "no result twice"
    for user in orders.totals():
        counts = [n for who, n in steps if who == user]
        assert counts == sorted(counts), "results of a key in order"
    letters = list(DeadLetters(run.store_folder, "orders", run.store).letters())
    assert [(one.partition, one.record) for one in letters] == [(f"{source}/0", "malformed")] * 4
    assert len({one.offset for one in letters}) == 4
    assert not run.store.divergences()
