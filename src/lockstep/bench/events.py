"""The events that the benches feed: each is a function of its number, so that anyone can make them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema

JOURNAL = "events"
SCHEMA = "seq bigint, customer string, at timestamp"
KAFKA_SCHEMA = "seq bigint, customer string, at_us bigint"
"""What :func:`json_lines` writes."""
CUSTOMERS = 250
ARROW_SCHEMA = arrow_schema(parse_schema(SCHEMA))
CUSTOMER_NAMES = np.array([f"customer-{number:03d}" for number in range(CUSTOMERS)])
_MIX = 2_654_435_761
"""Knuth's multiplier: neighbouring numbers go to customers that are not neighbours."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sent:
    """Events that were sent at one moment and acknowledged."""

    first: int
    count: int
    at_us: int


def customer_numbers(seq: Numbers) -> Numbers:
    """Which customer each event belongs to.

    >>> customer_numbers(np.arange(4)).tolist()
    [0, 11, 226, 237]
    """
    return (seq * _MIX % (1 << 32)) % CUSTOMERS


def batch(sent: Sent) -> pa.RecordBatch:
    """The records of ``sent``."""
    seq = np.arange(sent.first, sent.first + sent.count, dtype=np.int64)
    at = pa.array(np.full(sent.count, sent.at_us, dtype=np.int64)).cast(ARROW_SCHEMA.field("at").type)
    return pa.record_batch([pa.array(seq), pa.array(CUSTOMER_NAMES[customer_numbers(seq)]), at], schema=ARROW_SCHEMA)


def json_lines(sent: Sent) -> bytes:
    """The records of ``sent`` as JSON lines; the time as microseconds."""
    seq = np.arange(sent.first, sent.first + sent.count, dtype=np.int64)
    names = CUSTOMER_NAMES[customer_numbers(seq)]
    lines = (
        f'{{"seq":{number},"customer":"{name}","at_us":{sent.at_us}}}\n'
        for number, name in zip(seq, names, strict=True)
    )
    return "".join(lines).encode()


def read_sent(path: Path) -> list[Sent]:
    """What a feeder's log says it sent."""
    return [Sent(*(int(word) for word in line.split())) for line in path.read_text(encoding="utf-8").splitlines()]


def expected_windows(sent: Iterable[Sent], window_us: int) -> dict[tuple[str, int], tuple[int, int]]:
    """(customer, window start) -> (events, sum of their numbers), counted straight from what was sent.

    >>> expected_windows([Sent(0, 2, 5), Sent(2, 1, 12)], window_us=10)
    {('customer-000', 0): (1, 0), ('customer-011', 0): (1, 1), ('customer-226', 10): (1, 2)}
    """
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    for one in sent:
        start = one.at_us - one.at_us % window_us
        seq = np.arange(one.first, one.first + one.count, dtype=np.int64)
        for number, name in zip(seq.tolist(), CUSTOMER_NAMES[customer_numbers(seq)].tolist(), strict=True):
            events, total = counts.get((name, start), (0, 0))
            counts[name, start] = (events + 1, total + number)
    return counts


def waits_ms(sent: Sequence[Sent], visible: Sequence[tuple[int, int]], from_us: int) -> npt.NDArray[Any]:
    """How long each event waited from its sending until it was visible in the output.

    ``visible`` has, per batch in order, its highest event number and when it was seen; events come in the order of
    their numbers. Only batches seen from ``from_us`` on count: what was before is the warm-up.

    >>> waits_ms([Sent(0, 2, 1000), Sent(2, 1, 2000)], [(0, 3000), (2, 9000)], from_us=4000).tolist()
    [8.0, 7.0]
    """
    firsts = np.array([one.first for one in sent])
    times = np.array([one.at_us for one in sent])
    waits: list[npt.NDArray[Any]] = [np.empty(0)]
    before = -1
    for last, seen_us in visible:
        if seen_us >= from_us and last > before:
            seq = np.arange(before + 1, last + 1)
            waits.append((seen_us - times[np.searchsorted(firsts, seq, side="right") - 1]) / 1000)
        before = max(before, last)
    return np.concatenate(waits)
