from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lockstep.observe.histogram import Histogram

latencies = st.lists(st.floats(min_value=0.01, max_value=1e8), min_size=1, max_size=200)


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


@given(latencies, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_within_five_percent_of_the_sorted_values(values: list[float], share: float) -> None:
    estimate = Histogram().add_all(values).percentile_ms(share)
    exact = nearest_rank(values, share)
    assert abs(estimate - exact) <= 0.05 * exact


@given(latencies, latencies)
def test_merging_is_the_same_as_adding_all_values_to_one(left: list[float], right: list[float]) -> None:
    assert Histogram().add_all(left).merge(Histogram().add_all(right)) == Histogram().add_all(left + right)


@given(latencies)
def test_json_gives_back_the_same_histogram(values: list[float]) -> None:
    histogram = Histogram().add_all(values)
    assert Histogram.from_json(histogram.to_json()) == histogram


def test_count_and_max_are_exact() -> None:
    summary = Histogram().add_all([1.0, 7.25, 3.0]).summary_ms()
    assert (summary["count"], summary["max"]) == (3, 7.25)


def test_adding_leaves_the_old_histogram_alone() -> None:
    before = Histogram().add(1.0)
    before.add(2.0)
    assert before.count == 1


def test_values_outside_the_limits_are_counted_at_the_edges() -> None:
    histogram = Histogram().add_all([-5.0, 0.0, 1e15])
    assert histogram.count == 3
    assert len(histogram.counts) == 2
    assert histogram.percentile_ms(0.5) < 0.01
