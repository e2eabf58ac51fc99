"""The proof at the end: every alert computed anew in plain Python from what was sent, compared with what was published.

It shares nothing with the job but the definition of the rule: no Spark, no store, no plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from lockstep.bench.demo.events import PUBLIC, Event
from lockstep.clock import US_PER_S

WINDOW_US = US_PER_S
SHOWN_MAX = 3

Key = tuple[int, int]
"""Whose alert, and when its window began."""


@dataclass(frozen=True)
class Alert:
    """One row of the sink: a customer made documents public within a window."""

    customer: int
    window_start_us: int
    window_end_us: int
    documents: int
    newest_us: int

    @property
    def key(self) -> Key:
        """What there may be only one alert of."""
        return (self.customer, self.window_start_us)


@dataclass(frozen=True)
class Comparison:
    """How the published alerts differ from the right ones."""

    expected: int
    published: int
    lost: tuple[Alert, ...] = ()
    repeated: tuple[Alert, ...] = ()
    """Every appearance after the first of its customer and window."""
    wrong: tuple[str, ...] = ()
    """Alerts with other values than they should have, or that should not be there at all."""

    @property
    def agrees(self) -> bool:
        """Whether there is nothing to complain about; no alerts at all would prove nothing."""
        return self.expected > 0 and not (self.lost or self.repeated or self.wrong)

    def complaints(self) -> Iterator[str]:
        """What to tell a person, a few examples of each kind."""
        if not self.expected:
            yield "no alert was expected at all: the input never arrived"
        if self.lost:
            yield f"{len(self.lost)} alerts lost: {_some(self.lost)}"
        if self.repeated:
            yield f"{len(self.repeated)} alerts came more than once: {_some(self.repeated)}"
        if self.wrong:
            yield f"{len(self.wrong)} alerts are wrong: {_some(self.wrong)}"


@dataclass
class _Tally:
    documents: int = 0
    newest_us: int = field(default=0)


def expected_alerts(sent: Iterable[Event]) -> dict[Key, Alert]:
    """The alerts that these events should have led to, once all windows are closed."""
    tallies: defaultdict[Key, _Tally] = defaultdict(_Tally)
    for event in sent:
        if event.shared_with == PUBLIC:
            tally = tallies[event.customer, event.at_us - event.at_us % WINDOW_US]
            tally.documents += 1
            tally.newest_us = max(tally.newest_us, event.at_us)
    return {
        (customer, start): Alert(customer, start, start + WINDOW_US, tally.documents, tally.newest_us)
        for (customer, start), tally in tallies.items()
    }


def alerts_of(table: pa.Table) -> list[Alert]:
    """The rows of the sink, times as microseconds."""
    micros = pa.timestamp("us", tz="UTC")

    def times(column: str) -> list[int]:
        values: list[int] = table[column].cast(micros).cast(pa.int64()).to_pylist()
        return values

    rows = zip(
        table["customer"].to_pylist(),
        times("window_start"),
        times("window_end"),
        table["documents"].to_pylist(),
        times("newest"),
        strict=True,
    )
    return [Alert(*row) for row in rows]


def compare(expected: dict[Key, Alert], published: Iterable[Alert]) -> Comparison:
    """Every expected alert exactly once with exactly its values, and nothing else."""
    seen: set[Key] = set()
    repeated, wrong = [], []
    count = 0
    for alert in published:
        count += 1
        if alert.key in seen:
            repeated.append(alert)
            continue
        seen.add(alert.key)
        right = expected.get(alert.key)
        if right is None:
            wrong.append(f"{alert} should not be there")
        elif alert != right:
            wrong.append(f"{alert} should be {right}")
    lost = tuple(alert for key, alert in expected.items() if key not in seen)
    return Comparison(len(expected), count, lost, tuple(repeated), tuple(wrong))


def _some(items: Iterable[object]) -> str:
    texts = [str(item) for item in items]
    return "; ".join(texts[:SHOWN_MAX]) + ("; ..." if len(texts) > SHOWN_MAX else "")
