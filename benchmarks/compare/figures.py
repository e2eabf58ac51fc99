"""From what was seen to figures: percentiles of waits, gaps around a kill, the time until all is normal again; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.engines.contract import Wait
from lockstep.bench.gaps import longest_gap_after
from lockstep.bench.statistics import Row, median, percentile
from lockstep.clock import US_PER_S

BIN_S = 0.5
NORMAL_FACTOR = 2.0
NORMAL_SLACK_MS = 50.0
"""Twice the p99 from before is still normal, and so is 50 ms more: a p99 of 5 ms would make every hiccup a fault."""
NORMAL_BINS = 4
"""Normal again means: so for two seconds."""
POINTS_MAX = 400

Point = tuple[float, float]


def latency_figures(waits: Sequence[Wait], from_us: int, until_us: int) -> Row:
    """p50, p99 and maximum of the waits of what was sent between two moments.

    >>> latency_figures([Wait("a", n * 1000, n * 1000 + 5000) for n in range(10)], 2000, 8000)
    {'p50_ms': 5.0, 'p99_ms': 5.0, 'max_ms': 5.0, 'waits': 6}
    """
    values = [wait.wait_ms for wait in waits if from_us <= wait.sent_us < until_us]
    return {
        "p50_ms": percentile(values, 0.5),
        "p99_ms": percentile(values, 0.99),
        "max_ms": percentile(values, 1.0),
        "waits": len(values),
    }


def by_source(waits: Sequence[Wait]) -> dict[str, list[Wait]]:
    """The waits of each source: a slow one must not hide behind a fast one."""
    found: dict[str, list[Wait]] = {}
    for wait in waits:
        found.setdefault(wait.source, []).append(wait)
    return found


def kill_figures(waits: Sequence[Wait], seen_us: Sequence[int], kill_us: int, before_s: float, after_s: float) -> Row:
    """What a live reader noticed of one kill: the longest gap, the worst wait, and when all was as before.

    A wait belongs to the kill if it ended after it. Normal again is the first moment from which, for two seconds, the
    median wait of every half second is at most twice the p99 from before (or 50 ms above it); None if it never came.
    """
    first_us, last_us = kill_us - round(before_s * US_PER_S), kill_us + round(after_s * US_PER_S)
    before = [wait.wait_ms for wait in waits if first_us <= wait.seen_us <= kill_us]
    after = [wait for wait in waits if kill_us < wait.seen_us <= last_us]
    p99_ms = percentile(before, 0.99)
    limit_ms = max(NORMAL_FACTOR * p99_ms, p99_ms + NORMAL_SLACK_MS)
    times = sorted(set(seen_us))
    earlier = [time for time in times if first_us <= time <= kill_us]
    return {
        "gap_before_s": max(((b - a) / US_PER_S for a, b in pairwise(earlier)), default=None),
        "longest_gap_s": longest_gap_after([(0, time) for time in times], kill_us, after_s)[0],
        "wait_p99_before_ms": p99_ms,
        "worst_wait_ms": max((wait.wait_ms for wait in after), default=None),
        "normal_after_s": normal_after_s(after, kill_us, after_s, limit_ms),
    }


def normal_after_s(after: Sequence[Wait], kill_us: int, after_s: float, limit_ms: float) -> float | None:
    """Seconds from the kill until half-second medians keep ``limit_ms`` for two seconds; a half second without any
    result is not normal.

    >>> slow = [Wait("a", 0, t * 100_000) for t in range(1, 30)]
    >>> quick = [Wait("a", t * 100_000 - 5_000, t * 100_000) for t in range(30, 100)]
    >>> normal_after_s(slow + quick, kill_us=0, after_s=9.0, limit_ms=50.0)
    3.0
    >>> normal_after_s(slow, kill_us=0, after_s=9.0, limit_ms=50.0) is None
    True
    """
    bins: list[list[float]] = [[] for _ in range(int(after_s / BIN_S))]
    for wait in after:
        number = int((wait.seen_us - kill_us) / US_PER_S / BIN_S)
        if number < len(bins):
            bins[number].append(wait.wait_ms)
    normal = [bool(found) and median(found) <= limit_ms for found in bins]
    for number in range(len(normal) - NORMAL_BINS + 1):
        if all(normal[number : number + NORMAL_BINS]):
            return number * BIN_S
    return None


def curve(waits: Sequence[Wait], zero_us: int, from_s: float, until_s: float, points: int = POINTS_MAX) -> list[Point]:
    """(seconds from zero, worst wait in ms of what was seen then), at most so many points: for plots.

    >>> curve([Wait("a", 0, 1_000_000), Wait("a", 900_000, 1_000_500)], 0, 0.0, 2.0, points=2)
    [(1.0, 1000.0)]
    """
    step_s = (until_s - from_s) / points
    worst: dict[int, float] = {}
    for wait in waits:
        at_s = (wait.seen_us - zero_us) / US_PER_S
        if from_s <= at_s < until_s:
            number = int((at_s - from_s) / step_s)
            worst[number] = max(worst.get(number, 0.0), wait.wait_ms)
    return [(round(from_s + number * step_s, 3), round(worst[number], 3)) for number in sorted(worst)]


def worst_of(rows: Sequence[Row]) -> Row:
    """Several kills in one row: of each figure the worst, and a kill after which it never was normal spoils them all.

    >>> worst_of([{"gap_s": 1.0, "normal_after_s": 2.0}, {"gap_s": 3.0, "normal_after_s": None}])
    {'gap_s': 3.0, 'normal_after_s': None}
    """
    names = rows[0] if rows else {}
    return {name: _worst([row.get(name) for row in rows]) for name in names}


def _worst(values: Sequence[float | int | str | bool | None]) -> float | None:
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return max(numbers) if len(numbers) == len(values) and numbers else None
