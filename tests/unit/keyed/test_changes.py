"""Rows that replace each other and aggregates of them, over random epochs, against DuckDB on the rows that hold."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.keyed.accumulators import accumulator_of
from lockstep.keyed.changes import AggregateOfChangesOperator, LatestOperator
from lockstep.keyed.signed import SignedTotals, signed
from lockstep.plan.accumulated import lay_out
from lockstep.plan.expression import Column, call
from tests.unit.keyed.driving_for_keyed import Epoch, Given, drive

ROW = pa.schema([("user", pa.string()), ("city", pa.string()), ("n", pa.int64())])
AGGREGATES = {
    "rows": call("count", "*"),
    "known": call("count", "n"),
    "total": call("sum", "n"),
    "mean": call("avg", "n"),
    "least": call("min", "n"),
    "most": call("max", "n"),
    "different": call("count_distinct", "n"),
    "middle": call("median", "n"),
    "spread": call("var_pop", "n"),
}
QUERY = """SELECT city, count(*), count(n), sum(n), avg(n), min(n), max(n), count(DISTINCT n), median(n), var_pop(n)
           FROM held GROUP BY city"""
UPDATES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["Rome", "Bonn", None]), st.none() | st.integers(-9, 9)),
        max_size=6,
    ),
    max_size=6,
)
Change = tuple[Any, ...]


def _of_rows() -> AggregateOfChangesOperator:
    values = [accumulator_of(value, name) for name, value in AGGREGATES.items()]
    totals = SignedTotals(values, ROW, lay_out(values, ROW.names))
    return AggregateOfChangesOperator(totals, pa.schema([("city", pa.string()), *totals.schema]))


def _applied(changes: list[Change], held: list[Change]) -> list[Change]:
    """What holds after these changes; a row that is taken back has to be there."""
    left = list(held)
    for *row, sign in changes:
        if sign < 0:
            left.remove(tuple(row))
        else:
            left.append(tuple(row))
    return left


def _by_epoch(changes: list[list[Change]]) -> Iterator[list[Change]]:
    held: list[Change] = []
    for epoch in changes:
        held = _applied(epoch, held)
        yield held


def _emitted(operator: Any, epochs: list[list[Given]]) -> list[list[Change]]:
    emissions, _ = drive(operator, [Epoch(records) for records in epochs])
    return [[one.values for one in emissions if one.epoch == number] for number in range(len(epochs))]


@settings(max_examples=100, deadline=None)
@given(UPDATES)
def test_aggregates_of_rows_that_change_are_those_of_the_rows_that_hold(updates: list[list[Change]]) -> None:
    changes = _emitted(LatestOperator(ROW), [[Given((row[0],), row) for row in epoch] for epoch in updates])
    of_rows = _emitted(_of_rows(), [[Given((row[1],), row) for row in epoch] for epoch in changes])
    newest: dict[str, Change] = {}
    for epoch, held, found in zip(updates, _by_epoch(changes), _by_epoch(of_rows), strict=True):
        newest |= {row[0]: row for row in epoch}
        assert sorted(held, key=repr) == sorted(newest.values(), key=repr)
        assert _rounded(found) == _rounded(_in_duckdb(list(newest.values())))


def _in_duckdb(rows: list[Change]) -> list[Change]:
    with duckdb.connect() as database:
        database.register("held", pa.Table.from_pylist([dict(zip(ROW.names, row, strict=True)) for row in rows], ROW))
        return list(database.execute(QUERY).fetchall())


def _rounded(rows: list[Change]) -> list[Change]:
    plain = [tuple(round(value, 9) if isinstance(value, float) else value for value in row) for row in rows]
    return sorted(plain, key=repr)


def test_a_key_gives_one_change_an_epoch_and_none_if_nothing_changed() -> None:
    epochs = [
        [Given(("a",), ("a", "Rome", 1)), Given(("a",), ("a", "Rome", 2))],
        [Given(("a",), ("a", "Rome", 2))],
        [Given(("a",), ("a", "Bonn", 2))],
    ]
    assert _emitted(LatestOperator(ROW), epochs) == [
        [("a", "Rome", 2, 1)],
        [],
        [("a", "Rome", 2, -1), ("a", "Bonn", 2, 1)],
    ]


def test_the_last_by_position_is_the_newest_whatever_its_event_time() -> None:
    epoch = [Given(("a",), ("a", "Rome", 1), at_us=9), Given(("a",), ("a", "Rome", 2), at_us=3)]
    assert _emitted(LatestOperator(ROW), [epoch]) == [[("a", "Rome", 2, 1)]]


def test_a_group_without_rows_is_taken_back_and_forgotten() -> None:
    first, last = Given(("Rome",), ("a", "Rome", 1, 1)), Given(("Rome",), ("a", "Rome", 1, -1))
    emissions, cells = drive(_of_rows(), [Epoch([first]), Epoch([last])])
    assert [(one.epoch, one.values[0], one.values[-1]) for one in emissions] == [(0, "Rome", 1), (1, "Rome", -1)]
    assert cells == {}


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max"])
def test_floats_come_and_go_without_a_trace(function: str) -> None:
    """Infinities and NaN, too: what is left is what was there alone, to the last digit."""
    made = signed(accumulator_of(call(function, Column("x")), "x"), [pa.float64()])
    chance = random.Random(7)
    kept, gone = [0.1, 0.2, None, 0.3, -0.0], [1e15, math.nan, math.inf, -math.inf, 0.7, None, 1e-17]
    rows = [*((one, 1) for one in kept), *((one, 1) for one in gone)]
    chance.shuffle(rows)
    state = alone = made.initial()
    for value, sign in [*rows, *((one, -1) for one in gone)]:
        state = made.add(state, (value,), sign)
    for value in kept:
        alone = made.add(alone, (value,), 1)
    assert repr(made.result(state)) == repr(made.result(alone))
    assert made.result(state) == {"sum": 0.6, "avg": 0.15, "min": 0.0, "max": 0.3}[function]


def test_what_is_not_a_number_shows_while_it_is_there() -> None:
    total = signed(accumulator_of(call("sum", "x"), "x"), [pa.float64()])
    state = total.add(total.add(total.initial(), (math.inf,), 1), (-math.inf,), 1)
    assert math.isnan(total.result(state) or 0.0)
    assert total.result(total.add(state, (-math.inf,), -1)) == math.inf
