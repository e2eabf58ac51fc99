"""What is sent to the job, what comes out of it and when, and what should have come out, by plain Python."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.bench.gaps import SeenEpoch
from lockstep.bench.topics import ONLY_SERIOUS, PARTITIONS
from lockstep.clock import US_PER_S, wall_us

ORDERS, TOTALS = "orders", "totals"
USERS = 100
JOB = "cluster-totals"
JOB_TEXT = f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
orders = job.source("orders", ls.kafka("{ORDERS}", servers="SERVERS", schema="seq bigint, user string, amount bigint"))
totals = orders.key_by("user").agg(n=F.count("*"), total=F.sum("amount"), newest=F.max("seq"))
totals.to(ls.kafka("{TOTALS}", servers="SERVERS", key="user"), name="totals")
"""
_TICK_S = 0.01
_SAME_MOMENT_US = 20_000
"""Records that arrive so close together were published together."""
_WAIT_S = 20.0


def order(seq: int) -> dict[str, Any]:
    """One of them: the same number gives the same order.

    >>> order(7)
    {'seq': 7, 'user': 'u49', 'amount': 49}
    """
    return {"seq": seq, "user": f"u{seq * 7 % USERS}", "amount": seq * 7 % 1000}


class Feeder(threading.Thread):
    """Sends orders at a steady rate, and remembers when."""

    def __init__(self, servers: str, per_s: float, topic: str = ORDERS) -> None:
        super().__init__(name="feeder", daemon=True)
        from confluent_kafka import Producer

        # Without idempotence a batch whose answer dies with the broker is written twice: there would be more orders in
        # the topic than are counted here.
        settings = {"bootstrap.servers": servers, "linger.ms": 5, "acks": "all", "enable.idempotence": True}
        self._producer = Producer({**settings, "log_level": ONLY_SERIOUS})
        self._per_s = per_s
        self._topic = topic
        self._ended = threading.Event()
        self.begun_us = 0
        self.sent = 0

    def run(self) -> None:
        """Send what is due, every hundredth of a second."""
        self.begun_us = wall_us()
        while not self._ended.wait(_TICK_S):
            due = round((wall_us() - self.begun_us) / US_PER_S * self._per_s)
            while self.sent < due:
                value = json.dumps(order(self.sent)).encode()
                self._producer.produce(self._topic, value, partition=self.sent % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)

    def due_us(self, seq: int) -> int:
        """When an order was due to be sent."""
        return self.begun_us + round(seq / self._per_s * US_PER_S)

    def finish(self) -> None:
        """Send no more; all that was sent has arrived."""
        self._ended.set()
        self.join()
        if left := self._producer.flush(_WAIT_S):
            raise TimeoutError(f"{left} orders did not reach the broker")


class Observer(threading.Thread):
    """Reads what is committed, and notes when it was there."""

    def __init__(self, servers: str, topic: str = TOTALS) -> None:
        super().__init__(name="observer", daemon=True)
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "observer",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": ONLY_SERIOUS,
            }
        )
        self._consumer.subscribe([topic])
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._rows: list[tuple[int, dict[str, Any]]] = []

    def run(self) -> None:
        """Read until the end."""
        while not self._ended.is_set():
            messages = self._consumer.consume(500, 0.05)
            now_us = wall_us()
            rows = [(now_us, json.loads(one.value() or b"{}")) for one in messages if one.error() is None]
            with self._lock:
                self._rows += rows
        self._consumer.close()

    def finish(self) -> None:
        """Read no more."""
        self._ended.set()
        self.join()

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        """All rows so far, with when each was there."""
        with self._lock:
            return list(self._rows)

    def seen(self) -> list[SeenEpoch]:
        """The moments at which something was published."""
        return moments([at_us for at_us, _ in self.rows()])


def moments(arrivals_us: Sequence[int]) -> list[SeenEpoch]:
    """Arrivals close together are one.

    >>> moments([0, 5_000, 100_000, 101_000, 300_000])
    [(0, 0), (1, 100000), (2, 300000)]
    """
    found: list[int] = []
    last_us = -_SAME_MOMENT_US
    for at_us in arrivals_us:
        if at_us - last_us >= _SAME_MOMENT_US:
            found.append(at_us)
        last_us = at_us
    return list(enumerate(found))


@dataclass(frozen=True)
class Check:
    """The output against an independent computation."""

    users: int
    lost: int
    """Users whose newest total is not that of all orders sent."""
    repeated: int
    """Rows whose count is not above all counts of that user before."""
    complaints: list[str] = field(default_factory=list)


def check(sent: int, rows: Sequence[dict[str, Any]]) -> Check:
    """Compare all that was published with what was sent.

    >>> check(1, [{"user": "u0", "n": 1, "total": 0, "newest": 0}]).complaints
    []
    >>> check(2, [{"user": "u0", "n": 1, "total": 0}, {"user": "u0", "n": 1, "total": 0}]).complaints
    ['u0: a row with n = 1 after n = 1', 'u7: 1 orders with a total of 7 were sent, and nothing was published']
    """
    expected: dict[str, tuple[int, int]] = {}
    for one in map(order, range(sent)):
        count, total = expected.get(one["user"], (0, 0))
        expected[one["user"]] = count + 1, total + one["amount"]
    newest: dict[str, tuple[int, int]] = {}
    complaints, repeated = [], 0
    for row in rows:
        before = newest.get(row["user"], (0, 0))[0]
        if row["n"] <= before:
            repeated += 1
            complaints.append(f"{row['user']}: a row with n = {row['n']} after n = {before}")
        newest[row["user"]] = row["n"], row["total"]
    wrong = {user: told for user, told in expected.items() if newest.get(user) != told}
    for user, (count, total) in sorted(wrong.items()):
        what = "nothing" if user not in newest else f"{newest[user][0]} with a total of {newest[user][1]}"
        complaints.append(f"{user}: {count} orders with a total of {total} were sent, and {what} was published")
    return Check(len(expected), len(wrong), repeated, complaints)


def wait_until_published(observer: Observer, sent: int, timeout_s: float) -> None:
    """Until the newest totals are those of all that was sent, or the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while check(sent, [row for _, row in observer.rows()]).lost and time.monotonic() < deadline_s:
        time.sleep(0.5)
