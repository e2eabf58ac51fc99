"""How late results were over the last quarter of an hour, with what happened meanwhile. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lockstep.clock import US_PER_S
from lockstep.control.operations.model import Operation
from lockstep.control.status.event_words import event_text, is_bad
from lockstep.control.status.health import Event
from lockstep.store.protocols import Published

WINDOW_S = 900
BUCKET_S = 5
"""180 points: as many as a chart of the width of a page can show."""
MARKS_MAX = 60
_LOSSES = frozenset({"replica-ended", "replica-killed", "replica-failed", "agent-lost"})

MarkKind = Literal["loss", "operation", "decision"]


@dataclass(frozen=True)
class Point:
    """The epochs that were published within one bucket of time."""

    at_us: int
    p50_ms: float
    p99_ms: float
    records: int = 0


@dataclass(frozen=True)
class Mark:
    """Something that happened: where a curve that jumps has its reason."""

    at_us: int
    kind: MarkKind
    text: str


def latency_of(one: Published) -> float | None:
    """The age of an epoch's oldest record when it was published, in milliseconds."""
    return None if one.ingested_oldest_us is None else (one.published_us - one.ingested_oldest_us) / 1000


def points(published: Iterable[Published]) -> list[Point]:
    """The curve.

    >>> made = [Published(e, "r0", e * US_PER_S, 10, e * US_PER_S - 1000 * (e + 100), None, 0.1) for e in range(7)]
    >>> [(one.at_us // US_PER_S, one.p50_ms, one.p99_ms, one.records) for one in points(made)]
    [(0, 102.0, 104.0, 50), (5, 105.0, 106.0, 20)]
    """
    buckets: dict[int, list[Published]] = {}
    for one in published:
        buckets.setdefault(one.published_us // (BUCKET_S * US_PER_S), []).append(one)
    return [_point(number, held) for number, held in sorted(buckets.items()) if any(map(latency_of, held))]


def _point(number: int, held: Sequence[Published]) -> Point:
    ages = sorted(age for one in held if (age := latency_of(one)) is not None)
    at = [ages[math.ceil(share * len(ages)) - 1] for share in (0.5, 0.99)]
    return Point(number * BUCKET_S * US_PER_S, at[0], at[1], sum(one.records for one in held))


def marks(
    events: Iterable[Event], operations: Iterable[Operation], decisions: Iterable[tuple[int, str]], since_us: int
) -> list[Mark]:
    """What happened since then, the newest of it if that is much.

    >>> event = (1, 5, "replica-ended", "r0", "exit code -9")
    >>> marks([event], [Operation(1, "restart", {}, "ann", 7, 900)], [(9, "4 partitions")], 0)[0].text
    'r0 ended (exit code -9)'
    """
    found = [Mark(event[1], "loss", event_text(event)) for event in events if event[2] in _LOSSES and is_bad(event)]
    found += [Mark(one.asked_us, "operation", f"operation {one.number}: {one.kind}") for one in operations]
    found += [Mark(at_us, "decision", text) for at_us, text in decisions]
    return sorted((one for one in found if one.at_us >= since_us), key=lambda one: one.at_us)[-MARKS_MAX:]


def recoveries_s(events: Sequence[Event]) -> dict[str, float]:
    """For each replica that came back, how long it was away the last time: from its end to its first epoch.

    >>> recoveries_s([
    ...     (1, 5_000_000, "replica-ended", "r0", "exit code -9"),
    ...     (2, 6_000_000, "replica-started", "r0", "pid 7, start 2"),
    ...     (3, 9_500_000, "replica-phases", "r0", "a spare: epoch 3 ms, total 9 ms"),
    ... ])
    {'r0': 4.5}
    """
    ended: dict[str, int] = {}
    back: dict[str, float] = {}
    for _, at_us, kind, replica, _text in events:
        if kind in _LOSSES:
            ended.setdefault(replica, at_us)
        elif kind == "replica-phases" and replica in ended:
            back[replica] = (at_us - ended.pop(replica)) / US_PER_S
    return back
