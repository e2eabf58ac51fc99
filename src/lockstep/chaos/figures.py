"""What each action cost, as a reader of the sink saw it: the longest gap, the worst latency, the time to normal."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lockstep.chaos.watching import SeenEpoch
from lockstep.clock import US_PER_S
from lockstep.observe.quantiles import quantile

AFTER_S = 2.0
"""An action is looked at until this long after its recovery."""
SLOW_FACTOR = 2.0
SLOW_EXTRA_S = 0.3
"""Normal is a latency of at most twice the steady p99, or this much above it."""


@dataclass(frozen=True)
class Steady:
    """The job before anything was done to it."""

    latency_p50_s: float
    latency_p99_s: float
    gap_p50_s: float
    gap_p99_s: float
    epochs: int

    @property
    def slow_s(self) -> float:
        """A latency above this is not normal."""
        return max(SLOW_FACTOR * self.latency_p99_s, self.latency_p99_s + SLOW_EXTRA_S)


@dataclass(frozen=True)
class Cost:
    """What one action cost."""

    gap_max_s: float
    latency_max_s: float
    normal_after_s: float
    """Until the last epoch that was not normal; 0 if all were."""


def steady(seen_epochs: Sequence[SeenEpoch], first_us: int, end_us: int) -> Steady:
    """The figures of an undisturbed time."""
    inside = [one for one in seen_epochs if first_us <= one.seen_us < end_us]
    latencies = [one.latency_s for one in inside if one.latency_s is not None]
    gaps = [(after.seen_us - before.seen_us) / US_PER_S for before, after in pairwise(inside)]
    return Steady(
        latency_p50_s=quantile(latencies, 0.5),
        latency_p99_s=quantile(latencies, 0.99),
        gap_p50_s=quantile(gaps, 0.5),
        gap_p99_s=quantile(gaps, 0.99),
        epochs=len(inside),
    )


def cost(seen_epochs: Sequence[SeenEpoch], first_us: int, end_us: int, usual: Steady) -> Cost:
    """What a reader noticed from ``first_us`` to ``end_us``.

    The gap in which the action fell counts from its beginning, and one that was still open at the end up to there.

    >>> usual = Steady(0.1, 0.2, 0.1, 0.2, 100)
    >>> seen = [SeenEpoch(n, n * 100_000, n * 100_000 - 50_000, 1, "r0.1") for n in range(10)]
    >>> seen.append(SeenEpoch(10, 2_900_000, 1_000_000, 1, "r1.1"))
    >>> cost(seen, first_us=950_000, end_us=3_000_000, usual=usual)
    Cost(gap_max_s=2.0, latency_max_s=1.9, normal_after_s=1.95)
    """
    inside = [
        (one.seen_us, one.latency_s)
        for one in seen_epochs
        if one.latency_s is not None and first_us <= one.seen_us < end_us
    ]
    slow = [seen_us for seen_us, latency_s in inside if latency_s > usual.slow_s]
    return Cost(
        gap_max_s=longest_gap_s(seen_epochs, first_us, end_us),
        latency_max_s=max((latency_s for _, latency_s in inside), default=0.0),
        normal_after_s=(max(slow) - first_us) / US_PER_S if slow else 0.0,
    )


def longest_gap_s(seen_epochs: Sequence[SeenEpoch], first_us: int, end_us: int) -> float:
    """The longest time without a new epoch that reaches into ``first_us <= t < end_us``."""
    times = [one.seen_us for one in seen_epochs]
    begin, end = bisect_left(times, first_us), bisect_left(times, end_us)
    edges = [times[begin - 1] if begin else first_us, *times[begin:end], end_us]
    return max((after - before) / US_PER_S for before, after in pairwise(edges))
