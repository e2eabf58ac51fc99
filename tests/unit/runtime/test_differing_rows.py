"""When digests differ: which rows do, and which only seem to."""

from __future__ import annotations

import math
import random

import pyarrow as pa

from lockstep.runtime.epoch.divergence import describe, differing_rows


def test_the_same_rows_in_another_order_do_not_differ() -> None:
    rows = [{"k": f"k{n % 5}", "n": n % 7, "x": n / 3} for n in range(100)]
    shuffled = random.Random(3).sample(rows, len(rows))
    assert differing_rows(pa.Table.from_pylist(rows), pa.Table.from_pylist(shuffled)) == ([], [])


def test_only_the_rows_that_differ_are_named() -> None:
    ours = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
    theirs = pa.table({"k": ["c", "b", "a"], "n": [3, 9, 1]})
    assert differing_rows(ours, theirs) == ([("b", 2)], [("b", 9)])


def test_a_repeated_row_is_a_difference() -> None:
    once, twice = pa.table({"n": [1, 2]}), pa.table({"n": [1, 2, 2]})
    assert differing_rows(once, twice) == ([], [(2,)])
    assert differing_rows(twice, once) == ([(2,)], [])


def test_noise_in_the_last_digits_of_floats_is_no_difference_at_any_size() -> None:
    values = [1e-30, 0.1, 12345.678, 1e15, -7.5]
    noisy = [value * (1 + 3e-14) for value in values]
    keys = [f"k{n}" for n in range(5)]
    assert differing_rows(pa.table({"k": keys, "x": values}), pa.table({"k": keys, "x": noisy})) == ([], [])


def test_a_difference_in_a_later_digit_counts() -> None:
    ours, theirs = pa.table({"x": [1.0]}), pa.table({"x": [1.0 + 1e-6]})
    assert differing_rows(ours, theirs) == ([(1.0,)], [(1.0 + 1e-6,)])


def test_noise_does_not_hide_a_difference_in_another_column_of_the_row() -> None:
    ours, theirs = pa.table({"k": ["a"], "x": [1.0]}), pa.table({"k": ["b"], "x": [1.0 + 1e-14]})
    assert differing_rows(ours, theirs) != ([], [])


def test_nan_equals_nan_and_minus_zero_equals_zero_but_null_is_neither() -> None:
    ours = pa.table({"x": [math.nan, 0.0]})
    assert differing_rows(ours, pa.table({"x": [-0.0, math.nan]})) == ([], [])
    left, right = differing_rows(ours, pa.table({"x": pa.array([None, 0.0], pa.float64())}))
    assert len(left) == len(right) == 1


def test_nested_values_are_compared_whole() -> None:
    ours = pa.table({"s": [{"a": [1.0, None], "b": {"c": "x"}}]})
    same = pa.table({"s": [{"a": [1.0 + 1e-14, None], "b": {"c": "x"}}]})
    other = pa.table({"s": [{"a": [None, 1.0], "b": {"c": "x"}}]})
    assert differing_rows(ours, same) == ([], [])
    assert differing_rows(ours, other) != ([], [])


def test_mixed_nulls_and_values_can_be_sorted_and_shown() -> None:
    ours = pa.table({"k": [None, "a", None], "n": [1, None, 2]})
    theirs = pa.table({"k": ["z", None, None], "n": [None, 3, 4]})
    left, right = differing_rows(ours, theirs)
    assert (len(left), len(right)) == (3, 3)


def test_the_description_names_epoch_sink_first_rows_and_the_python_steps() -> None:
    text = describe(7, "alerts", [("a", 1)] * 9, [("b", 2)], ["enrich"])
    assert 'epoch 7, sink "alerts"' in text and "9 row(s)" in text
    assert text.count("here:") == 3 and text.count("published:") == 1 and "enrich" in text
    assert "no step runs Python" in describe(7, "alerts", [], [("b", 2)], [])
    assert "only digests were compared" in describe(7, "alerts", None, None, [])
