"""The arithmetic of the comparison: percentiles, gaps around a kill, alternation, time left; against plain Python."""

from __future__ import annotations

import random

import pytest

from benchmarks.compare.figures import curve, kill_figures, latency_figures, normal_after_s, worst_of
from benchmarks.compare.plan import FULL, QUICK, Cell, Remaining, cells
from benchmarks.engines.contract import Wait

SECOND = 1_000_000


def _waits(period_us: int, wait_us: int, from_us: int, until_us: int) -> list[Wait]:
    return [Wait("a", at - wait_us, at) for at in range(from_us, until_us, period_us)]


def test_percentiles_are_waits_that_really_occurred() -> None:
    made = random.Random(4)
    waits = [Wait("a", n, n + made.randrange(1, 10**6)) for n in range(1000)]
    found = latency_figures(waits, 0, 1000)
    ordered = sorted(wait.wait_ms for wait in waits)
    assert found == {"p50_ms": ordered[499], "p99_ms": ordered[989], "max_ms": ordered[-1], "waits": 1000}


def test_only_what_was_sent_in_the_measured_time_counts() -> None:
    waits = [Wait("a", 5, 10), Wait("a", 15, 9_000_015), Wait("a", 25, 30)]
    assert latency_figures(waits, 10, 20)["p50_ms"] == 9000.0


def test_a_kill_is_told_by_gap_worst_wait_and_time_to_normal() -> None:
    """Results every 100 ms, 50 ms old; a kill at 10 s, silence until 13 s, then the backlog at once, then as before."""
    before = _waits(100_000, 50_000, 0, 10 * SECOND)
    backlog = [Wait("a", at, 13 * SECOND) for at in range(10 * SECOND, 13 * SECOND, 100_000)]
    after = _waits(100_000, 50_000, 13 * SECOND + 100_000, 30 * SECOND)
    waits = before + backlog + after
    found = kill_figures(waits, [wait.seen_us for wait in waits], 10 * SECOND, before_s=5.0, after_s=15.0)
    assert found["gap_before_s"] == pytest.approx(0.1)
    assert found["longest_gap_s"] == pytest.approx(3.1)
    assert found["worst_wait_ms"] == pytest.approx(3000.0)
    assert found["normal_after_s"] == pytest.approx(3.5), "the half second of the backlog is not normal"


def test_an_engine_that_never_comes_back_is_never_normal() -> None:
    before = _waits(100_000, 50_000, 0, 10 * SECOND)
    found = kill_figures(before, [wait.seen_us for wait in before], 10 * SECOND, before_s=5.0, after_s=15.0)
    assert found["normal_after_s"] is None
    assert found["worst_wait_ms"] is None
    assert found["longest_gap_s"] == pytest.approx(15.1)


def test_a_pause_of_half_a_second_in_the_two_seconds_is_not_normal() -> None:
    waits = [wait for wait in _waits(50_000, 5_000, 1, 8 * SECOND) if not SECOND <= wait.seen_us < SECOND + SECOND // 2]
    assert normal_after_s(waits, 0, 8.0, limit_ms=50.0) == 1.5


def test_a_curve_keeps_the_worst_and_has_a_bounded_number_of_points() -> None:
    waits = _waits(1_000, 20_000, 0, 10 * SECOND)
    waits.append(Wait("a", 0, 5 * SECOND))
    points = curve(waits, 0, 0.0, 10.0, points=50)
    assert len(points) == 50
    assert max(wait for _, wait in points) == 5000.0


def test_of_several_kills_the_worst_is_told() -> None:
    assert worst_of([{"a": 1, "b": None}, {"a": 2, "b": 1.0}]) == {"a": 2.0, "b": None}


def test_engines_alternate_and_no_engine_is_first_in_every_round() -> None:
    planned = cells(["failover", "latency"], {"failover": ["w"], "latency": ["w", "v"]}, ["a", "b", "c"], rounds=2)
    assert len(planned) == 3 * 2 * 3
    assert len(set(planned)) == len(planned)
    latency_w = [cell.engine for cell in planned if (cell.measure, cell.workload) == ("latency", "w")]
    assert latency_w == ["a", "b", "c", "c", "b", "a"]


def test_the_time_left_follows_what_the_same_engine_took_for_the_same_measure() -> None:
    remaining = Remaining(QUICK)
    slow, fast = Cell("latency", "w", "slow", 0), Cell("latency", "w", "fast", 0)
    remaining.took(slow, 90.0)
    remaining.took(slow, 110.0)
    remaining.took(fast, 10.0)
    assert remaining.left_s([slow, slow, fast]) == 210.0
    assert remaining.expected_s(Cell("latency", "w", "other", 0)) == 70.0
    assert remaining.expected_s(Cell("restart", "w", "slow", 0)) > 0


def test_a_full_comparison_measures_longer_than_a_quick_one() -> None:
    assert FULL.measured_s > QUICK.measured_s
    assert FULL.kills > QUICK.kills
