"""Aggregates added up record by record, against DuckDB and plain Python, however the records are cut into parts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import ExpressionError, PlanError
from lockstep.keyed.accumulators import Totals, accumulator, accumulator_of
from lockstep.keyed.value_order import order_key
from lockstep.plan.accumulated import lay_out
from lockstep.plan.expression import Call, Column, Expression, Literal, Sql, call

Rows = list[tuple[Any, ...]]
SCHEMA = pa.schema(
    [("n", pa.int32()), ("price", pa.decimal128(10, 2)), ("who", pa.string()), ("ok", pa.bool_()), ("x", pa.float64())]
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-1000, 1000),
        st.none() | st.decimals(-9999, 9999, places=2),
        st.none() | st.sampled_from(["", "ann", "bob", "Zoë", "𝄞"]),
        st.none() | st.booleans(),
        st.none() | st.integers(-(10**8), 10**8).map(lambda cents: cents / 100),
    ),
    max_size=25,
)
NATIVE = {
    "records": (call("count", "*"), "count(*)"),
    "counted": (call("count", "n"), "count(n)"),
    "total": (call("sum", "n"), "sum(n)::BIGINT"),
    "money": (call("sum", "price"), "sum(price)"),
    "exact": (call("sum", "x"), "sum(x::DECIMAL(18, 2))::DOUBLE"),
    "mean": (call("avg", "n"), "avg(n)"),
    "least": (call("min", "who"), "min(who)"),
    "most": (call("max", "price"), "max(price)"),
    "different": (
        call("count_distinct", "n", "who"),
        "count(DISTINCT (n, who)) FILTER (n IS NOT NULL AND who IS NOT NULL)",
    ),
    "every": (call("every", "ok"), "bool_and(ok)"),
    "some": (call("bool_or", "ok"), "bool_or(ok)"),
    "good": (call("count_if", "ok"), "coalesce(count_if(ok), 0)"),
    "ands": (call("bit_and", "n"), "bit_and(n)"),
    "ors": (call("bit_or", "n"), "bit_or(n)"),
    "xors": (call("bit_xor", "n"), "bit_xor(n)"),
    "set": (call("collect_set", "n"), "list_sort(coalesce(list(DISTINCT n) FILTER (n IS NOT NULL), []))"),
    "list": (call("collect_list", "who"), "coalesce(list(who ORDER BY place) FILTER (who IS NOT NULL), [])"),
    "first": (call("first", "n", True), "(list(n ORDER BY place) FILTER (n IS NOT NULL))[1]"),
    "last": (call("last", "who"), "last(who ORDER BY place)"),
    "who_least": (call("min_by", "who", "n"), "(list(who ORDER BY n, place) FILTER (n IS NOT NULL))[1]"),
    "who_most": (call("max_by", "who", "n"), "(list(who ORDER BY n DESC, place) FILTER (n IS NOT NULL))[1]"),
}
DATABASE = duckdb.connect()


def _totals() -> Totals:
    return Totals([accumulator_of(expression, name) for name, (expression, _) in NATIVE.items()], SCHEMA)


def _duckdb(rows: Rows) -> tuple[Any, ...]:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in SCHEMA]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    table = pa.table([*arrays, pa.array(range(len(rows)), pa.int64())], names=[*SCHEMA.names, "place"])
    DATABASE.register("given", table)
    answers = DATABASE.execute(f"SELECT {', '.join(sql for _, sql in NATIVE.values())} FROM given").fetchall()
    return tuple(answers[0])


def _added(totals: Totals, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    state = totals.initial()
    for row in rows:
        state = totals.add(state, row)
    return state


@settings(max_examples=60, deadline=None)
@given(ROWS, st.data())
def test_every_aggregate_equals_duckdb_s_however_the_records_are_cut_into_parts(
    rows: Rows, data: st.DataObject
) -> None:
    totals = _totals()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    state = totals.initial()
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        state = totals.merge(state, _added(totals, rows[start:end]))
    found = dict(zip(NATIVE, totals.results(state), strict=True))
    assert found == dict(zip(NATIVE, _duckdb(rows), strict=True))


def test_result_types_are_those_of_spark() -> None:
    texts = {field.name: str(field.type) for field in _totals().schema}
    assert texts["total"] == "int64"
    assert texts["money"] == "decimal128(20, 2)"
    assert texts["mean"] == texts["exact"] == "double"
    assert texts["set"] == "list<item: int32>"
    assert texts["most"] == "decimal128(10, 2)"
    assert texts["different"] == texts["good"] == "int64"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=20), st.randoms())
def test_a_sum_of_floats_is_the_same_in_every_order_and_close_to_the_true_one(
    numbers: list[float], chance: random.Random
) -> None:
    exact = accumulator(accumulator_of(call("sum", "x"), "s"), [pa.float64()])

    def total(given: list[float]) -> Any:
        state = exact.initial()
        for number in given:
            state = exact.add(state, (number,))
        return exact.result(state)

    found = total(numbers)
    shuffled = list(numbers)
    chance.shuffle(shuffled)
    half = len(numbers) // 2
    first, second = exact.initial(), exact.initial()
    for number in shuffled[:half]:
        first = exact.add(first, (number,))
    for number in shuffled[half:]:
        second = exact.add(second, (number,))
    assert exact.result(exact.merge(first, second)) == total(shuffled) == found
    true = sum((Fraction(number) for number in numbers), Fraction(0))
    assert abs(Fraction(found) - true) <= abs(true) * Fraction(1, 2**51) + Fraction(len(numbers), 2)


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        ([0.1, 0.2, 0.3], 0.6),
        ([1e16, 1.0, -1e16], 1.0),
        ([math.inf, 1.0], math.inf),
        ([-math.inf], -math.inf),
        ([1e-19], 0.0),
        ([5e-19], 1e-18),
        ([None], None),
    ],
)
def test_floats_are_added_as_native_aggregations_add_them(numbers: list[Any], wanted: Any) -> None:
    exact = accumulator(accumulator_of(call("sum", "x"), "s"), [pa.float64()])
    state = exact.initial()
    for number in numbers:
        state = exact.add(state, (number,))
    assert exact.result(state) == wanted


@pytest.mark.parametrize("numbers", [[math.nan, 1.0], [math.inf, -math.inf]])
def test_nan_and_opposite_infinities_sum_to_nan(numbers: list[float]) -> None:
    exact = accumulator(accumulator_of(call("avg", "x"), "s"), [pa.float64()])
    state = exact.initial()
    for number in numbers:
        state = exact.add(state, (number,))
    assert math.isnan(exact.result(state))


def test_nan_is_larger_than_every_number_and_one_value() -> None:
    numbers = [math.nan, 1.0, math.inf, math.nan, -0.0, 0.0]
    schema = pa.schema([("x", pa.float64())])
    values = [accumulator_of(call(name, "x"), name) for name in ("min", "max", "collect_set", "count_distinct")]
    totals = Totals(values, schema)
    least, most, kept, different = totals.results(_added(totals, [(number,) for number in numbers]))
    assert least == 0.0
    assert math.isnan(most)
    assert kept[:3] == [0.0, 1.0, math.inf] and math.isnan(kept[3]) and len(kept) == different == 4


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (pa.int64(), [2**63 - 1, 1]),
        (pa.int64(), [-(2**63), -1]),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)]),
    ],
)
def test_a_sum_that_leaves_its_type_is_an_error_but_not_on_the_way(kind: pa.DataType, numbers: list[Any]) -> None:
    total = accumulator(accumulator_of(call("sum", "n"), "s"), [kind])
    state = total.initial()
    for number in numbers:
        state = total.add(state, [number])
    with pytest.raises(ExpressionError, match="too large") as caught:
        total.result(state)
    assert caught.value.code == "LS0216"
    assert total.result(total.add(state, [-numbers[1]])) == numbers[0]


def test_an_average_of_longs_may_pass_64_bits_on_the_way() -> None:
    mean = accumulator(accumulator_of(call("avg", "n"), "m"), [pa.int64()])
    state = mean.initial()
    for _ in range(4):
        state = mean.add(state, (2**63 - 1,))
    assert mean.result(state) == float(2**63)
    assert not isinstance(state[0], int), "a state keeps to what 64 bits or a decimal can hold"


def test_an_average_of_decimals_is_rounded_half_up_to_four_more_digits() -> None:
    mean = accumulator(accumulator_of(call("avg", "p"), "m"), [pa.decimal128(10, 2)])
    state = mean.initial()
    for text in ("1.00", "0.00", "1.00"):
        state = mean.add(state, (Decimal(text),))
    assert str(mean.type) == "decimal128(14, 6)"
    assert mean.result(state) == Decimal("0.666667")


def test_a_float_too_large_for_exact_addition_is_refused() -> None:
    exact = accumulator(accumulator_of(call("sum", "x"), "s"), [pa.float64()])
    with pytest.raises(ExpressionError, match="LS0212"):
        exact.add(exact.initial(), (1e20,))


@pytest.mark.parametrize(
    ("expression", "function", "inputs"),
    [
        (Sql("count(*)"), "count", []),
        (Sql(" COUNT ( 1 ) "), "count", []),
        (call("count", Literal(1)), "count", []),
        (Sql("sum(a * (b + 1))"), "sum", ["a * (b + 1)"]),
        (Sql("count(distinct a, `b`)"), "count_distinct", ["a", "b"]),
        (Sql("max_by(concat(a, ','), b)"), "max_by", ["concat(a, ',')", "b"]),
        (call("mean", Column("a") + Column("b")), "avg", ["a + b"]),
        (call("first", col="a", ignorenulls=True), "first", ["a"]),
        (call("sum", "a").alias("total"), "sum", ["a"]),
    ],
)
def test_an_aggregate_is_read_from_a_call_or_a_text(expression: Expression, function: str, inputs: list[str]) -> None:
    found = accumulator_of(expression, "x")
    assert (found.function, [str(value) for value in found.inputs]) == (function, inputs)


@pytest.mark.parametrize(
    "expression",
    [
        call("sum", "a") / call("count", "*"),
        call("kurtosis", "a"),
        Sql("sum(a) / count(b)"),
        Sql("sum(distinct a)"),
        Sql("a"),
        Sql("min_by(a)"),
        Column("a"),
        Call("sum"),
    ],
)
def test_what_cannot_be_added_up_is_refused_with_what_can(expression: Expression) -> None:
    with pytest.raises(PlanError, match="Known are") as caught:
        accumulator_of(expression, "x")
    assert caught.value.code == "LS0170"


@pytest.mark.parametrize(
    ("function", "kind"),
    [("sum", pa.string()), ("avg", pa.bool_()), ("count_if", pa.int64()), ("max", pa.map_(pa.string(), pa.int64()))],
)
def test_a_type_that_an_aggregate_does_not_take_is_refused(function: str, kind: pa.DataType) -> None:
    with pytest.raises(PlanError, match="LS0171"):
        accumulator(accumulator_of(call(function, "a"), "x"), [kind])


def test_columns_are_read_in_place_and_other_inputs_are_computed_once() -> None:
    twice = Column("n") * 2
    values = [
        accumulator_of(one, "x") for one in (call("sum", twice), call("max", "who"), call("min", Column("n") * 2))
    ]
    layout = lay_out(values, ["n", "who"])
    assert layout.places == ((2,), (1,), (2,))
    assert [str(value) for _, value in layout.computed] == ["n * 2"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.none() | st.integers(0, 3), max_size=3), max_size=8))
def test_arrays_order_element_by_element_with_nulls_first(arrays: list[list[int | None]]) -> None:
    mapped = sorted(arrays, key=lambda array: [-1 if item is None else item for item in array])
    assert sorted(arrays, key=order_key) == mapped
