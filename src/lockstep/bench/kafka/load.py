"""The backlog, what should come out of it, and what did."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from lockstep.bench.topics import PARTITIONS
from lockstep.connect.kafka.client import library

if TYPE_CHECKING:
    from confluent_kafka import Consumer

ORDERS = "orders"
USERS = 1000
LEAST_AMOUNT = 500
SCHEMA = "seq bigint, user string, amount bigint"
BATCHES = "batches"
"""The file in which the hand-written query notes its batches."""
_WAIT_S = 30.0
_LOOK_S = 0.2
"""The client waits so long for as many as were asked for, also at the end."""
_AT_ONCE = 20_000


def order(seq: int) -> dict[str, Any]:
    """One record of the backlog: the same number gives the same order.

    >>> order(143)
    {'seq': 143, 'user': 'customer-000001.northern-branch@shop.example', 'amount': 1}
    """
    return {"seq": seq, "user": _user(seq), "amount": seq * 7 % 1000}


def _user(seq: int) -> str:
    return f"customer-{seq * 7 % USERS:06d}.northern-branch@shop.example"


def fill(servers: str, records: int) -> None:
    """Send so many orders, to the partitions in turn."""
    producer = library().Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for seq in range(records):
        producer.produce(ORDERS, json.dumps(order(seq)).encode(), partition=seq % PARTITIONS)
        if seq % _AT_ONCE == 0:
            producer.poll(0)
    if left := producer.flush(_WAIT_S):
        raise TimeoutError(f"{left} orders did not reach the broker")


def committed(servers: str, topic: str) -> pa.Table:
    """All rows of a topic, as a reader of committed records sees them."""
    settings = {"group.id": "bench", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer: Consumer = library().Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, **settings})
    consumer.assign([library().TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    try:
        return table(list(_values(consumer)))
    finally:
        consumer.close()


def _values(consumer: Consumer) -> Iterator[bytes]:
    ended, deadline_s = 0, time.monotonic() + _WAIT_S
    while ended < PARTITIONS:
        messages = consumer.consume(_AT_ONCE, _LOOK_S)
        if messages:
            deadline_s = time.monotonic() + _WAIT_S
        elif time.monotonic() > deadline_s:
            raise TimeoutError(f"the output was not read to its end: nothing came for {_WAIT_S:.0f} s")
        for one in messages:
            error = one.error()
            if error is None:
                yield one.value() or b"{}"
            elif error.code() == library().KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise library().KafkaException(error)


def table(values: Sequence[bytes]) -> pa.Table:
    """JSON objects as a table.

    >>> table([b'{"seq": 1, "user": "a"}']).to_pylist()
    [{'seq': 1, 'user': 'a'}]
    """
    return pyarrow.json.read_json(io.BytesIO(b"\n".join(values))) if values else pa.table({})


@dataclass(frozen=True)
class Query:
    """One of the queries that both sides run."""

    name: str
    text: str
    """Its steps in Lockstep, from ``orders`` on."""
    key: str
    columns: tuple[str, ...]
    """What of the output is compared, in this order; sorted by the first one."""

    def result(self, rows: pa.Table) -> pa.Table:
        """The part of the output that both sides must agree on: of a total that changed, the newest."""
        if rows.num_rows == 0:
            return rows
        found = rows.select(list(self.columns))
        if self is TOTALS:
            found = found.group_by("user").aggregate([("n", "max"), ("total", "max")])
            found = found.rename_columns({"n_max": "n", "total_max": "total"}).select(list(self.columns))
        return found.sort_by(self.columns[0])

    def expected(self, records: int) -> pa.Table:
        """What comes out of so many orders, by plain Python and Arrow, without Spark."""
        seqs = range(records)
        amounts = pa.array([seq * 7 % 1000 for seq in seqs], pa.int64())
        orders = pa.table({"seq": pa.array(seqs, pa.int64()), "user": [_user(seq) for seq in seqs], "amount": amounts})
        if self is TOTALS:
            sums = orders.group_by("user").aggregate([("seq", "count"), ("amount", "sum")])
            return self.result(sums.rename_columns({"seq_count": "n", "amount_sum": "total"}))
        kept = orders.filter(pc.greater_equal(orders["amount"], LEAST_AMOUNT))
        return self.result(kept.append_column("doubled", pc.multiply(kept["amount"], 2)))


SELECTION = Query(
    "filter and select",
    f'orders.filter("amount >= {LEAST_AMOUNT}").select("seq", "user", doubled="amount * 2")',
    "",
    ("seq", "user", "doubled"),
)
TOTALS = Query(
    "totals by key",
    'orders.key_by("user").agg(n=F.count("*"), total=F.sum("amount"))',
    "user",
    ("user", "n", "total"),
)


def differing(found: pa.Table, wanted: pa.Table) -> int:
    """How many rows are in one and not in the other; a row that comes twice is one too many.

    >>> differing(pa.table({"n": [1, 2, 2]}), pa.table({"n": [1, 2, 3]}))
    2
    """
    if found.equals(wanted):
        return 0
    ours, theirs = (Counter(map(repr, one.to_pylist())) for one in (found, wanted))
    return (ours - theirs).total() + (theirs - ours).total()
