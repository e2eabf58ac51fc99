"""Whether running totals are right: every row against an independent count of what was sent, and the newest ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from lockstep.bench.events import CUSTOMER_NAMES, Sent, customer_numbers

TotalRow = tuple[str, int, int]
"""(customer, events so far, the sum of their numbers)."""


@dataclass(frozen=True)
class TotalsCheck:
    """How the output differs from what it has to be."""

    events: int
    """Events that were sent."""
    rows: int
    lost: int
    """Events that are in no customer's newest total."""
    repeated: int
    """Rows of a customer with a number of events that it had shown before, and events counted beyond those sent."""
    wrong: int
    """Rows whose sum is not that of the customer's first events."""


def expected_totals(sent: Iterable[Sent]) -> dict[str, list[int]]:
    """Each customer's sum after its first event, after its second, and so on; events count in the order of sending.

    >>> expected_totals([Sent(0, 3, at_us=5), Sent(3, 247, at_us=9)])["customer-000"]
    [0, 130]
    """
    numbers: dict[str, list[int]] = {}
    for one in sent:
        seq = np.arange(one.first, one.first + one.count, dtype=np.int64)
        for number, name in zip(seq.tolist(), CUSTOMER_NAMES[customer_numbers(seq)].tolist(), strict=True):
            numbers.setdefault(name, []).append(number)
    return {name: list(accumulate(those)) for name, those in numbers.items()}


def check_totals(expected: dict[str, list[int]], rows: Iterable[TotalRow], *, in_order: bool = True) -> TotalsCheck:
    """Compare all rows that came out with the expected totals.

    Without ``in_order`` events may have been counted in any order: then only a customer's last sum has to be right.

    >>> wanted = {"a": [5, 12], "b": [6]}
    >>> check_totals(wanted, [("a", 1, 5), ("a", 2, 12), ("b", 1, 6)])
    TotalsCheck(events=3, rows=3, lost=0, repeated=0, wrong=0)
    >>> check_totals(wanted, [("a", 1, 5), ("a", 1, 5), ("b", 2, 12)])
    TotalsCheck(events=3, rows=3, lost=1, repeated=2, wrong=1)
    """
    seen: dict[str, set[int]] = {name: set() for name in expected}
    count = repeated = wrong = 0
    for name, events, total in rows:
        count += 1
        known = seen.setdefault(name, set())
        repeated += events in known
        known.add(events)
        if in_order or events >= len(expected.get(name, ())):
            wrong += not _is_right(expected.get(name, ()), events, total)
    newest = {name: max(known, default=0) for name, known in seen.items()}
    sent = {name: len(sums) for name, sums in expected.items()}
    return TotalsCheck(
        events=sum(sent.values()),
        rows=count,
        lost=sum(max(0, sent.get(name, 0) - events) for name, events in newest.items()),
        repeated=repeated + sum(max(0, events - sent.get(name, 0)) for name, events in newest.items()),
        wrong=wrong,
    )


def _is_right(sums: Sequence[int], events: int, total: int) -> bool:
    return 0 < events <= len(sums) and sums[events - 1] == total
