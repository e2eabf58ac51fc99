"""Aggregates that keyed operators add up record by record: the same null rules, types and results as Spark's.

What depends on the order (first, last, lists, ties of ``max_by``) follows the order of the records, which is defined.
Floats are added exactly, as native aggregations do it (`compile/sums.py`): as decimals with 18 digits after the
point, so that neither the order nor a merge of parts shows in the last digits.

States are plain data. ``add`` and ``merge`` may change the state they are given: go on with what they return.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lockstep.errors import PlanError
from lockstep.keyed.moments import MOMENTS, Moments
from lockstep.keyed.percentiles import Percentiles
from lockstep.keyed.sketches import PLAIN, Bias, DistinctSketch
from lockstep.keyed.sums import Average, FloatSum, Values, WholeSum
from lockstep.keyed.value_order import order_key
from lockstep.plan.accumulated import Accumulated, Layout, accumulated, lay_out
from lockstep.plan.expression import Expression
from lockstep.store.types import spark_type

_DECIMAL_DIGITS_MAX = 38


class Accumulator(Protocol):
    """Adds up one aggregate. ``merge(state, later)`` joins two states; the second holds the later records."""

    @property
    def type(self) -> pa.DataType:
        """The type of its result."""

    def initial(self) -> Any:
        """The state before any record."""

    def add(self, state: Any, values: Values) -> Any:
        """The state with one more record."""

    def merge(self, state: Any, later: Any) -> Any:
        """The state of both parts' records."""

    def result(self, state: Any) -> Any:
        """The aggregate's value."""


def accumulator_of(expression: Expression, name: str, where: str = "the aggregation") -> Accumulated:
    """What has to be added up for an aggregate expression: its function and scalar inputs (LS0170 if unknown)."""
    return accumulated(expression, name, where)


def accumulator(value: Accumulated, types: Sequence[pa.DataType], bias: Bias = PLAIN) -> Accumulator:
    """The accumulator of an aggregate over inputs of these types; LS0171 if it cannot take them.

    >>> from lockstep.plan.expression import call
    >>> total = accumulator(accumulator_of(call("sum", "ms"), "total"), [pa.float64()])
    >>> state = total.initial()
    >>> for number in (0.1, 0.2, None, 0.3):
    ...     state = total.add(state, (number,))
    >>> total.result(state), str(total.type)
    (0.6, 'double')
    """
    if value.function == "approx_count_distinct":
        return DistinctSketch(pa.int64(), bias)
    return _MAKERS[value.function](value, tuple(types))


class Totals:
    """The accumulators of several columns together; its state is the list of theirs.

    >>> from lockstep.plan.expression import call
    >>> values = [accumulator_of(call("count", "*"), "n"), accumulator_of(call("max", "ms"), "slowest")]
    >>> totals = Totals(values, pa.schema([("user", pa.string()), ("ms", pa.int64())]))
    >>> state = totals.add(totals.add(totals.initial(), ("ann", 5)), ("ann", 3))
    >>> totals.results(state), totals.schema.names
    ((2, 5), ['n', 'slowest'])
    """

    def __init__(
        self, values: Sequence[Accumulated], schema: pa.Schema, layout: Layout | None = None, bias: Bias = PLAIN
    ) -> None:
        """``schema`` is that of an arrival's values: the stream's columns, then what ``layout`` has computed."""
        places = (layout or lay_out(values, schema.names)).places
        self._parts = [
            (accumulator(value, [schema.field(at).type for at in place], bias), place)
            for value, place in zip(values, places, strict=True)
        ]
        self.schema = pa.schema([(value.name, part.type) for value, (part, _) in zip(values, self._parts, strict=True)])

    def initial(self) -> list[Any]:
        """The state before any record."""
        return [part.initial() for part, _ in self._parts]

    def add(self, states: list[Any], values: Values) -> list[Any]:
        """The state with one more arrival's values."""
        for number, (part, place) in enumerate(self._parts):
            states[number] = part.add(states[number], [values[at] for at in place])
        return states

    def merge(self, states: list[Any], later: list[Any]) -> list[Any]:
        """The state of both parts' records; ``later`` holds the later ones."""
        return [part.merge(one, two) for (part, _), one, two in zip(self._parts, states, later, strict=True)]

    def results(self, states: list[Any]) -> tuple[Any, ...]:
        """The values of all columns."""
        return tuple(part.result(state) for (part, _), state in zip(self._parts, states, strict=True))


@dataclass(frozen=True)
class _Count:
    """Counts records whose inputs are all there (and true, for ``count_if``)."""

    type: pa.DataType
    only_true: bool = False

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Values) -> int:
        if None in values or (self.only_true and not values[0]):
            return state
        return state + 1

    def merge(self, state: int, later: int) -> int:
        return state + later

    def result(self, state: int) -> int:
        return state


@dataclass(frozen=True)
class _ExtremeBy:
    """The value at the smallest or largest of another; among equals the first. The state is (value, other) or None."""

    type: pa.DataType
    largest: bool

    def initial(self) -> Any:
        return None

    def add(self, state: Any, values: Values) -> Any:
        by = values[1]
        if by is None:
            return state
        if state is None:
            return values[0], by
        better = order_key(by) > order_key(state[1]) if self.largest else order_key(by) < order_key(state[1])
        return (values[0], by) if better else state

    def merge(self, state: Any, later: Any) -> Any:
        return state if later is None else self.add(state, later)

    def result(self, state: Any) -> Any:
        return None if state is None else state[0]


@dataclass(frozen=True)
class _Fold:
    """Values put together two by two, nulls left out: min, max, bool_and, bit_or and the like. Both zeros are one."""

    type: pa.DataType
    together: Callable[[Any, Any], Any]

    def initial(self) -> Any:
        return None

    def add(self, state: Any, values: Values) -> Any:
        value = _normal(values[0])
        if value is None:
            return state
        return value if state is None else self.together(state, value)

    def merge(self, state: Any, later: Any) -> Any:
        return self.add(state, (later,))

    def result(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class _Distinct:
    """Values, each once, sorted; the state is the sorted list, so that it is the same for every order of records."""

    type: pa.DataType
    counted: bool

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], values: Values) -> list[Any]:
        if None not in values:
            self._insert(state, tuple(_normal(value) for value in values) if self.counted else _normal(values[0]))
        return state

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        for value in later:
            self._insert(state, value)
        return state

    def result(self, state: list[Any]) -> Any:
        return len(state) if self.counted else list(state)

    def _insert(self, state: list[Any], value: Any) -> None:
        key = order_key(value)
        at = bisect_left(state, key, key=order_key)
        if at == len(state) or order_key(state[at]) != key:
            state.insert(at, value)


@dataclass(frozen=True)
class _List:
    """Values in the order of the records, nulls left out."""

    type: pa.DataType

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], values: Values) -> list[Any]:
        if values[0] is not None:
            state.append(values[0])
        return state

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        state.extend(later)
        return state

    def result(self, state: list[Any]) -> list[Any]:
        return list(state)


@dataclass(frozen=True)
class _Pick:
    """The first or last value in the order of the records; the state is (value,), None before the first."""

    type: pa.DataType
    last: bool
    ignore_nulls: bool

    def initial(self) -> Any:
        return None

    def add(self, state: Any, values: Values) -> Any:
        if (state is not None and not self.last) or (self.ignore_nulls and values[0] is None):
            return state
        return (values[0],)

    def merge(self, state: Any, later: Any) -> Any:
        if state is None or later is None:
            return state or later
        return later if self.last else state

    def result(self, state: Any) -> Any:
        return None if state is None else state[0]


def _count(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    if value.function == "count_if":
        _check(value, types[0], pa.types.is_boolean, "a boolean")
    return _Count(pa.int64(), value.function == "count_if")


def _sum(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    kind = _check(value, types[0], _is_number, "a number")
    average = value.function == "avg"
    if pa.types.is_floating(kind):
        return FloatSum(pa.float64(), value.function, average)
    total = pa.int64() if pa.types.is_integer(kind) else _widened(kind, 10, 0)
    if not average:
        return WholeSum(total, value.function)
    return Average(pa.float64() if pa.types.is_integer(kind) else _widened(kind, 4, 4), total)


def _extreme(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    kind = _check(value, types[-1], _is_ordered, "a type that has an order (a map has none)")
    largest = value.function.startswith("max")
    if value.function.endswith("_by"):
        return _ExtremeBy(types[0], largest)
    return _Fold(kind, _larger if largest else _smaller)


def _smaller(held: Any, value: Any) -> Any:
    return value if order_key(value) < order_key(held) else held


def _larger(held: Any, value: Any) -> Any:
    return value if order_key(value) > order_key(held) else held


def _fold(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    if value.function.startswith("bool"):
        _check(value, types[0], pa.types.is_boolean, "a boolean")
    else:
        _check(value, types[0], pa.types.is_integer, "a whole number")
    return _Fold(types[0], _TOGETHER[value.function])


def _distinct(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    for kind in types:
        _check(value, kind, _is_ordered, "a type that can be compared (a map cannot)")
    counted = value.function == "count_distinct"
    return _Distinct(pa.int64() if counted else pa.list_(types[0]), counted)


def _moments(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    for kind in types:
        _check(value, kind, _is_number, "numbers")
    scales = tuple(kind.scale if pa.types.is_decimal(kind) else 0 for kind in types)
    return Moments(pa.float64(), value.function, scales)


def _percentiles(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    _check(value, types[0], _is_number, "a number")
    return Percentiles(pa.list_(pa.float64()) if value.several else pa.float64(), value.fractions, value.several)


def _list(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:  # noqa: ARG001
    return _List(pa.list_(types[0]))


def _pick(value: Accumulated, types: tuple[pa.DataType, ...]) -> Accumulator:
    return _Pick(types[0], value.function == "last", value.ignore_nulls)


def _and(one: Any, two: Any) -> Any:
    return one & two


def _or(one: Any, two: Any) -> Any:
    return one | two


def _xor(one: Any, two: Any) -> Any:
    return one ^ two


_TOGETHER = {"bool_and": _and, "bool_or": _or, "bit_and": _and, "bit_or": _or, "bit_xor": _xor}
_MAKERS: dict[str, Callable[[Accumulated, tuple[pa.DataType, ...]], Accumulator]] = {
    **dict.fromkeys(("count", "count_if"), _count),
    **dict.fromkeys(("sum", "avg"), _sum),
    **dict.fromkeys(("min", "max", "min_by", "max_by"), _extreme),
    **dict.fromkeys(_TOGETHER, _fold),
    **dict.fromkeys(("count_distinct", "collect_set"), _distinct),
    **dict.fromkeys(MOMENTS, _moments),
    **dict.fromkeys(("median", "percentile"), _percentiles),
    "collect_list": _list,
    **dict.fromkeys(("first", "last"), _pick),
}


def added_up() -> frozenset[str]:
    """The aggregates that have an accumulator: all of `plan/aggregates.py`."""
    return frozenset({*_MAKERS, "approx_count_distinct"})


def _check(value: Accumulated, kind: pa.DataType, fits: Callable[[pa.DataType], bool], wanted: str) -> pa.DataType:
    if fits(kind):
        return kind
    raise PlanError(
        "LS0171",
        f'"{value.name}" is {value.function} of a {spark_type(kind)}',
        why=f"{value.function} takes {wanted}.",
        hint=f'convert it first: F.{value.function}(F.col("x").cast("...")), or use another function.',
    )


def check_ordered(what: str, kind: pa.DataType) -> None:
    """Refuse to compare values of a type that has no order (LS0171)."""
    if not _is_ordered(kind):
        raise PlanError(
            "LS0171",
            f"{what}, a {spark_type(kind)}",
            why="a map has no order.",
            hint="compare by a number, a text, a time, or an array or struct of these.",
        )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_ordered(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_ordered(field.type) for field in kind)
    return not pa.types.is_map(kind)


def _widened(kind: pa.DataType, digits: int, scale: int) -> pa.DataType:
    return pa.decimal128(
        min(_DECIMAL_DIGITS_MAX, kind.precision + digits), min(_DECIMAL_DIGITS_MAX, kind.scale + scale)
    )


def _normal(value: Any) -> Any:
    """Both zeros of a float are one value, and so are the many forms of NaN."""
    if not isinstance(value, float):
        return value
    return math.nan if math.isnan(value) else value + 0.0
