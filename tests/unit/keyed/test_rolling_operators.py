"""Rolling operators over random epochs, against plain Python."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.compile.keyed import operator_of
from lockstep.compile.registry import FAMILIES
from lockstep.errors import FunctionError, PlanError
from lockstep.keyed.operator import Operator
from lockstep.plan.expression import Column, call
from lockstep.plan.rolling import RollingAggregate, RollingExtreme, RollingFold, RollingReduce
from lockstep.plan.schema import parse_schema
from tests.unit.keyed.driving_for_keyed import Emission, Given, cut, drive
from tests.unit.plan.fakes_for_plan import source

assert FAMILIES, "they register their operators when they are imported"

Row = tuple[str | None, int | None]
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
ROWS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", None]), st.none() | st.integers(-5, 5)), min_size=1, max_size=20
)
CUTS = st.lists(st.integers(0, 20), max_size=4)
START = source(schema="user string, n bigint")
KEYS = ((("user", Column("user")),),)


def _joined(one: Any, two: Any) -> dict[str, Any]:
    """Not commutative, and not the same for other orders: (first minus second)."""
    return {"user": one.user, "n": 2 * (one.n or 0) - (two.n or 0)}


def _joined_plainly(one: Row, two: Row) -> Row:
    return one[0], 2 * (one[1] or 0) - (two[1] or 0)


def _reduce(per_record: bool, function: Any = _joined) -> Operator:
    return operator_of(RollingReduce("reduce", (START,), KEYS, per_record, function), (SCHEMA,))


def _fold(initial: Any, function: Any, schema: str, per_record: bool = False) -> Operator:
    step = RollingFold("fold", (START,), KEYS, per_record, initial, function, parse_schema(schema))
    return operator_of(step, (SCHEMA,))


def _records(rows: list[Row]) -> list[Given]:
    return [Given((row[0],), row, at_us) for at_us, row in enumerate(rows)]


def _by_key(emissions: list[Emission]) -> dict[Any, list[tuple[Any, ...]]]:
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for emission in emissions:
        found.setdefault(emission.values[0], []).append((*emission.values, emission.at_us))
    return found


@settings(max_examples=50, deadline=None)
@given(ROWS, CUTS)
def test_reduce_per_record_gives_every_prefix_wherever_epochs_are_cut(rows: list[Row], cuts: list[int]) -> None:
    emissions, _ = drive(_reduce(per_record=True), cut(_records(rows), cuts))
    wanted: dict[Any, list[tuple[Any, ...]]] = {}
    for at_us, row in enumerate(rows):
        prefix = [one for one in rows[: at_us + 1] if one[0] == row[0]]
        wanted.setdefault(row[0], []).append((*functools.reduce(_joined_plainly, prefix), at_us))
    assert _by_key(emissions) == wanted


@settings(max_examples=50, deadline=None)
@given(ROWS, CUTS)
def test_one_result_per_epoch_is_the_last_of_those_per_record(rows: list[Row], cuts: list[int]) -> None:
    epochs = cut(_records(rows), cuts)
    for make in (
        _reduce,
        lambda per_record: _fold(0, lambda total, record: 3 * total + (record.n or 0), "total bigint", per_record),
        _best,
        _totals,
    ):
        each, _ = drive(make(per_record=True), epochs)
        rarely, _ = drive(make(per_record=False), epochs)
        last = {(emission.epoch, emission.values[0]): emission for emission in each}
        assert {(emission.epoch, emission.values[0]): emission for emission in rarely} == last
        assert len(rarely) == len(last)


def _best(per_record: bool, largest: bool = False) -> Operator:
    step = RollingExtreme("by", (START,), KEYS, per_record, Column("n"), largest)
    # What the records are compared by comes last.
    return operator_of(step, (pa.schema([*SCHEMA, ("__by", pa.int64())]),))


def _totals(per_record: bool) -> Operator:
    aggregates = (("all", call("collect_list", "n")), ("last", call("last", "n")), ("n", call("sum", "n")))
    return operator_of(RollingAggregate("agg", (START,), KEYS, per_record, aggregates), (SCHEMA,))


@settings(max_examples=50, deadline=None)
@given(ROWS, CUTS, st.booleans())
def test_the_smallest_record_is_the_first_among_equals_and_never_null(
    rows: list[Row], cuts: list[int], largest: bool
) -> None:
    numbered = [Given((user,), (user, n, place, n), place) for place, (user, n) in enumerate(rows)]
    start = source(schema="user string, n bigint, place bigint")
    step = RollingExtreme("by", (start,), KEYS, False, Column("n"), largest)
    schema = pa.schema([*SCHEMA, ("place", pa.int64()), ("__by", pa.int64())])
    emissions, _ = drive(operator_of(step, (schema,)), cut(numbered, cuts))
    found = {emission.values[0]: emission.values for emission in emissions}
    wanted = {}
    for user in {user for user, n in rows if n is not None}:
        mine = [(n, place) for place, (who, n) in enumerate(rows) if who == user and n is not None]
        best = max(n for n, _ in mine) if largest else min(n for n, _ in mine)
        wanted[user] = (user, best, next(place for n, place in mine if n == best))
    assert found == wanted


@settings(max_examples=50, deadline=None)
@given(ROWS, CUTS)
def test_aggregates_per_record_are_those_of_every_prefix(rows: list[Row], cuts: list[int]) -> None:
    emissions, _ = drive(_totals(per_record=True), cut(_records(rows), cuts))
    wanted: dict[Any, list[tuple[Any, ...]]] = {}
    for at_us, (user, n) in enumerate(rows):
        numbers = [one for who, one in rows[: at_us + 1] if who == user]
        there = [one for one in numbers if one is not None]
        wanted.setdefault(user, []).append((user, there, n, sum(there) if there else None, at_us))
    assert _by_key(emissions) == wanted


def test_records_are_put_together_in_the_order_of_event_time_within_an_epoch() -> None:
    records = [Given(("a",), ("a", 1), 30), Given(("a",), ("a", 2), 10), Given(("a",), ("a", 3), 20)]
    fold = _fold([], lambda seen, record: [*seen, record.n], "seen array<bigint>", per_record=True)
    emissions, _ = drive(fold, cut(records, []))
    assert [emission.values for emission in emissions] == [("a", [2]), ("a", [2, 3]), ("a", [2, 3, 1])]
    assert [emission.at_us for emission in emissions] == [10, 20, 30]


def test_an_accumulator_may_be_changed_in_place_and_keys_do_not_share_it() -> None:
    def count(total: dict[str, Any], record: Any) -> dict[str, Any]:
        total["n"] += 1
        total["users"].append(record.user)
        return total

    fold = _fold({"n": 0, "users": []}, count, "n bigint, users array<string>")
    emissions, _ = drive(fold, cut(_records([("ann", 1), ("bob", 1), ("ann", 2)]), []))
    assert sorted(emission.values for emission in emissions) == [("ann", 2, ["ann", "ann"]), ("bob", 1, ["bob"])]


@dataclass
class _Pair:
    n: int
    total: int


def test_what_a_fold_function_sees_does_not_depend_on_where_epochs_are_cut() -> None:
    def pair(so_far: Any, record: Any) -> _Pair:
        assert type(so_far) is dict, "a dataclass comes back as the dict that the state keeps"
        return _Pair(so_far["n"] + 1, so_far["total"] + record.n)

    for cuts in ([], [1], [1, 2]):
        fold = _fold({"n": 0, "total": 0}, pair, "n bigint, total bigint")
        emissions, _ = drive(fold, cut(_records([("ann", 1), ("ann", 2), ("ann", 3)]), cuts))
        assert emissions[-1].values == ("ann", 3, 6)


def test_a_field_that_reduce_leaves_out_is_null_at_once() -> None:
    def forgetful(one: Any, two: Any) -> dict[str, Any]:
        return {"n": (one.n or 0) + (two.n or 0) + (1000 if one.user is None else 0)}

    for cuts in ([], [1], [2]):
        emissions, _ = drive(
            _reduce(per_record=True, function=forgetful), cut(_records([("ann", 1), ("ann", 2), ("ann", 3)]), cuts)
        )
        assert [emission.values for emission in emissions] == [("ann", 1), ("ann", 3), ("ann", 1006)]


def test_a_key_may_be_an_expression_and_comes_first() -> None:
    step = RollingReduce("reduce", (START,), ((("half", Column("n") / 2),),), True, _joined)
    assert step.columns == ("half", "user", "n")
    operator = operator_of(step, (pa.schema([*SCHEMA, ("__key_half", pa.float64())]),))
    assert [str(field.type) for field in operator.outputs[0]] == ["double", "string", "int64"]
    emissions, _ = drive(operator, cut([Given((1.0,), ("ann", 2, 1.0))], []))
    assert emissions[0].values == (1.0, "ann", 2)


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        (lambda one, two: None, "LS0302", "returned None"),
        (lambda one, two: {"user": "ann", "m": 1}, "LS0302", "fields that its schema does not have: m"),
        (lambda one, two: {"user": "ann", "n": "many"}, "LS0303", "does not fit its schema"),
        (lambda one, two: {"user": "ann", "n": 1 << 63}, "LS0303", "does not fit its schema"),
        (lambda one, two: one.n / 0, "LS0301", "raised ZeroDivisionError"),
        (lambda one, two: one.m, "LS0301", "no column 'm'"),
    ],
)
def test_a_reduce_function_that_goes_wrong_is_explained(function: Any, code: str, words: str) -> None:
    with pytest.raises(FunctionError, match=words) as caught:
        drive(_reduce(per_record=False, function=function), cut(_records([("ann", 1), ("ann", 2)]), []))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("initial", "schema"), [({"m": 0}, "n bigint, m bigint, o string"), ("none", "n bigint"), (0, "n bigint, m bigint")]
)
def test_an_initial_value_that_does_not_fit_the_schema_is_refused(initial: Any, schema: str) -> None:
    if initial == {"m": 0}:
        _fold(initial, lambda total, record: total, schema)
        return  # fields that are left out are null
    with pytest.raises(PlanError) as caught:
        _fold(initial, lambda total, record: total, schema)
    assert caught.value.code == "LS0172"


def test_records_cannot_be_compared_by_a_map() -> None:
    step = RollingExtreme("by", (START,), KEYS, False, Column("n"), False)
    with pytest.raises(PlanError, match="LS0171"):
        operator_of(step, (pa.schema([*SCHEMA, ("__by", pa.map_(pa.string(), pa.int64()))]),))
