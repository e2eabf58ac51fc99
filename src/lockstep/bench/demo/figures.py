"""What the reader saw, as figures: gaps between epochs, latencies, and the latency curve. Pure functions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.bench.demo.watching import SeenEpoch
from lockstep.clock import US_PER_S
from lockstep.observe.quantiles import quantile

BEFORE_S = 10.0
"""Steady state: what is measured before the first kill."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Span:
    """A stretch of time and what the reader saw in it."""

    latency_p50_s: float
    latency_p99_s: float
    latency_max_s: float
    gap_p99_s: float
    gap_max_s: float
    epochs: int


@dataclass(frozen=True)
class Point:
    """One epoch on the latency curve."""

    at_s: float
    """When it became visible, seconds after the first kill."""
    latency_s: float
    """How old its oldest record was then."""


def span(seen_epochs: Sequence[SeenEpoch], first_us: int, end_us: int) -> Span:
    """The figures of the epochs seen within ``first_us <= t < end_us``; a gap counts where it ends."""
    inside = [index for index, one in enumerate(seen_epochs) if first_us <= one.seen_us < end_us]
    gaps = [(seen_epochs[i].seen_us - seen_epochs[i - 1].seen_us) / US_PER_S for i in inside if i > 0]
    ages = [age / US_PER_S for i in inside if (age := seen_epochs[i].age_us) is not None]
    return Span(
        latency_p50_s=quantile(ages, 0.5),
        latency_p99_s=quantile(ages, 0.99),
        latency_max_s=max(ages, default=0.0),
        gap_p99_s=quantile(gaps, 0.99),
        gap_max_s=max(gaps, default=0.0),
        epochs=len(inside),
    )


def gap_across_s(seen_epochs: Sequence[SeenEpoch], at_us: int) -> float:
    """How long the two epochs around ``at_us`` were apart; 0 if one of them is missing."""
    index = bisect_right(seen_epochs, at_us, key=lambda one: one.seen_us)
    if not 0 < index < len(seen_epochs):
        return 0.0
    return (seen_epochs[index].seen_us - seen_epochs[index - 1].seen_us) / US_PER_S


def curve(seen_epochs: Sequence[SeenEpoch], zero_us: int) -> list[Point]:
    """The latency curve, its time counted from ``zero_us``; epochs without records have no age."""
    return [
        Point((one.seen_us - zero_us) / US_PER_S, one.age_us / US_PER_S)
        for one in seen_epochs
        if one.age_us is not None
    ]


def sparkline(points: Sequence[Point], first_s: float, end_s: float, top_s: float, width: int = 60) -> str:
    """A curve as one line of text; each character is the highest latency in its share of the time.

    Between two epochs the age of what is not visible yet grows, so the line between two points is drawn too.

    >>> sparkline([Point(0, 0.1), Point(1, 0.1), Point(5, 4.0), Point(6, 0.1)], 0, 8, 4.0, width=8)
    '▁▃▅▇██▁ '
    """
    step_s = (end_s - first_s) / width
    levels = [_highest(points, first_s + i * step_s, first_s + (i + 1) * step_s) for i in range(width)]
    return "".join(" " if level is None else _bar(level / top_s) for level in levels)


def _highest(points: Sequence[Point], first_s: float, end_s: float) -> float | None:
    inside = [point.latency_s for point in points if first_s <= point.at_s < end_s]
    edges = [level for at_s in (first_s, end_s) if (level := _interpolated(points, at_s)) is not None]
    return max(inside + edges, default=None)


def _interpolated(points: Sequence[Point], at_s: float) -> float | None:
    index = bisect_left(points, at_s, key=lambda point: point.at_s)
    if index == len(points) or (index == 0 and points[0].at_s > at_s):
        return None
    after = points[index]
    before = points[max(0, index - 1)]
    if after.at_s == before.at_s:
        return after.latency_s
    share = (at_s - before.at_s) / (after.at_s - before.at_s)
    return before.latency_s + share * (after.latency_s - before.latency_s)


def _bar(share: float) -> str:
    return BARS[min(len(BARS) - 1, max(0, int(share * len(BARS))))]
