"""Spreads, correlations, percentiles and sketches: against fractions in plain Python, in any order and in any parts."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import PlanError
from lockstep.keyed.accumulators import Totals, accumulator, accumulator_of
from lockstep.keyed.codec import decode, encode
from lockstep.keyed.sketches import Bias
from lockstep.plan.aggregates import MEANINGS
from lockstep.plan.expression import Expression, call
from tests.aggregate_references import REFERENCES, percentile

SCHEMA = pa.schema([("n", pa.int64()), ("price", pa.decimal128(12, 3)), ("x", pa.float64()), ("y", pa.float64())])
NUMBER = st.none() | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf]) | st.floats()
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.decimals(-999_999_999, 999_999_999, places=3),
        NUMBER,
        st.none() | st.floats(-1e6, 1e6),
    ),
    max_size=12,
)
_SPREADS = ("var_pop", "var_samp", "stddev_pop", "stddev_samp", "median")
_PAIRS = ("covar_pop", "covar_samp", "corr")
CASES = {
    **{f"{name}_{column}": (name, (column,)) for name in _SPREADS for column in SCHEMA.names},
    **{
        f"{name}_{'_'.join(pair)}": (name, pair) for name in _PAIRS for pair in (("x", "y"), ("n", "price"), ("y", "n"))
    },
}


def _totals(expressions: dict[str, Expression]) -> Totals:
    return Totals([accumulator_of(value, name) for name, value in expressions.items()], SCHEMA)


def _added(totals: Totals, rows: list[tuple[Any, ...]]) -> list[Any]:
    state = totals.initial()
    for row in rows:
        state = decode(encode(totals.add(state, row)))
    return state


@settings(max_examples=100, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_statistics_are_exact_and_their_states_free_of_order_and_parts(rows: Any, chance: random.Random) -> None:
    totals = _totals({name: call(function, *columns) for name, (function, columns) in CASES.items()})
    state = _added(totals, rows)
    found = dict(zip(CASES, totals.results(state), strict=True))
    for name, (function, columns) in CASES.items():
        places = [SCHEMA.names.index(column) for column in columns]
        wanted = REFERENCES[function]([tuple(row[place] for place in places) for row in rows])
        assert _same(found[name], wanted), f"{name}: {found[name]}, not {wanted}"
    mixed = _added(totals, chance.sample(rows, len(rows)))
    cut = chance.randint(0, len(rows))
    parts = totals.merge(_added(totals, rows[:cut]), _added(totals, rows[cut:]))
    assert encode(state) == encode(mixed) == encode(parts)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float) and math.isfinite(two):
        return math.isclose(one, two, rel_tol=1e-15, abs_tol=0.0)
    return repr(one) == repr(two)


@pytest.mark.parametrize("far", [0.0, 1e9, -1e15, 2.0**52])
def test_a_spread_does_not_depend_on_how_far_the_values_are_from_zero(far: float) -> None:
    spread = accumulator(accumulator_of(call("var_samp", "x"), "v"), [pa.float64()])
    state = spread.initial()
    for value in (1.0, 2.0, 3.0, 4.0):
        state = spread.add(state, (far + value,))
    assert spread.result(state) == 5 / 3


def test_decimals_of_any_length_are_added_up_exactly() -> None:
    spread = accumulator(accumulator_of(call("var_pop", "x"), "v"), [pa.decimal128(38, 0)])
    state = spread.initial()
    for value in (10**30 + 1, 10**30 + 3):
        state = spread.add(state, (Decimal(value),))
    assert spread.result(state) == 1.0


def test_nobody_correlates_with_what_never_changes_and_a_line_with_itself_fully() -> None:
    rows = [(1, Decimal(5), 3.0, 1.0), (2, Decimal(5), 7.0, 2.0), (3, Decimal(5), 11.0, 3.0)]
    totals = _totals(
        {"flat": call("corr", "n", "price"), "line": call("corr", "x", "y"), "one": call("corr", "n", "x")}
    )
    assert totals.results(_added(totals, rows)) == (None, 1.0, 1.0)
    assert totals.results(_added(totals, rows[:1])) == (None, None, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.integers(-5, 5), max_size=30), st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_several_percentiles_come_in_one_list(values: list[int | None], fractions: list[float]) -> None:
    found = accumulator(accumulator_of(call("percentile", "n", fractions), "p"), [pa.int64()])
    assert found.type == pa.list_(pa.float64())
    state = found.initial()
    for value in values:
        state = found.add(state, (value,))
    wanted = [percentile(fraction)([(value,) for value in values]) for fraction in fractions]
    assert found.result(state) == (None if wanted[0] is None else wanted)


def test_a_sketch_is_within_a_few_percent_and_merges_as_if_it_had_seen_all() -> None:
    chance = random.Random(1)
    hashes = [chance.randrange(-(2**63), 2**63) for _ in range(20_000)]
    sketch = accumulator(accumulator_of(call("approx_count_distinct", "who"), "n"), [pa.int64()])
    assert sketch.result(sketch.initial()) == MEANINGS["approx_count_distinct"].empty
    whole, left, right = (None, None, None)
    for place, value in enumerate(hashes):
        whole = sketch.add(whole, (value,))
        left, right = (sketch.add(left, (value,)), right) if place % 3 else (left, sketch.add(right, (value,)))
    assert whole == sketch.merge(left, right) == sketch.add(sketch.add(whole, (hashes[0],)), (None,))
    assert abs(sketch.result(whole) - 20_000) < 3 * 0.05 * 20_000


def test_a_bias_is_the_mean_of_the_nearest_known_ones() -> None:
    bias = Bias(tuple(float(n) for n in range(10)), tuple(float(n) for n in range(10)), 1.0)
    assert bias.at(-3.0) == 2.5
    assert bias.at(4.6) == 4.5


@pytest.mark.parametrize("function", ["stddev", "median"])
def test_statistics_take_numbers_only(function: str) -> None:
    with pytest.raises(PlanError) as caught:
        accumulator(accumulator_of(call(function, "who"), "s"), [pa.string()])
    assert caught.value.code == "LS0171"
