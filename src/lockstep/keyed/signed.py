"""Aggregates of rows that change: each adds a row up with a sign, so that one that is taken back counts no longer.

What an aggregate means is said in `accumulators.py`; here is what has to be kept so that a row can leave again. Counts
and sums go back by themselves. Others (the smallest, the distinct, a median) keep how often each value is there, so
they are for keys with few different values.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from lockstep.keyed.accumulators import Accumulator, accumulator
from lockstep.keyed.sketches import PLAIN, Bias
from lockstep.keyed.sums import EXACT, Average, FloatSum, Values, WholeSum
from lockstep.keyed.value_order import order_key
from lockstep.plan.accumulated import Accumulated, Layout
from lockstep.plan.aggregates import MEANINGS


class Signed(Protocol):
    """Adds up one aggregate of rows that come (1) and are taken back (-1). States are plain data."""

    @property
    def type(self) -> pa.DataType:
        """The type of its result."""

    def initial(self) -> Any:
        """The state before any row."""

    def add(self, state: Any, values: Values, sign: int) -> Any:
        """The state with one row more, or less."""

    def result(self, state: Any) -> Any:
        """The aggregate's value."""


def signed(value: Accumulated, types: Sequence[pa.DataType], bias: Bias = PLAIN) -> Signed:
    """The aggregate over inputs of these types (LS0171 if it cannot take them).

    >>> from lockstep.plan.expression import call
    >>> from lockstep.keyed.accumulators import accumulator_of
    >>> least = signed(accumulator_of(call("min", "ms"), "least"), [pa.int64()])
    >>> state = least.add(least.add(least.initial(), (3,), 1), (5,), 1)
    >>> least.result(state), least.result(least.add(state, (3,), -1))
    (3, 5)
    """
    plain = accumulator(value, types, bias)
    match plain:
        case WholeSum() | Average():
            return _WholeSums(plain)
        case FloatSum():
            return _FloatSums(plain)
    if value.function in ("count", "count_if"):
        return _Counts(plain)
    return _Multiset(plain, once=MEANINGS[value.function].repeats)


class SignedTotals:
    """The aggregates of several columns together; the state is how many rows hold, and the list of theirs."""

    def __init__(self, values: Sequence[Accumulated], schema: pa.Schema, layout: Layout, bias: Bias = PLAIN) -> None:
        """``schema`` is that of an arrival's values: the stream's columns, then what ``layout`` has computed."""
        self._parts = [
            (signed(value, [schema.field(at).type for at in place], bias), place)
            for value, place in zip(values, layout.places, strict=True)
        ]
        self.schema = pa.schema([(value.name, part.type) for value, (part, _) in zip(values, self._parts, strict=True)])

    def initial(self) -> list[Any]:
        """The state before any row."""
        return [0, [part.initial() for part, _ in self._parts]]

    def add(self, state: list[Any], values: Values, sign: int) -> list[Any]:
        """The state with one row more, or less."""
        rows, states = state
        added = [
            part.add(one, [values[at] for at in place], sign)
            for (part, place), one in zip(self._parts, states, strict=True)
        ]
        return [rows + sign, added]

    def results(self, state: list[Any]) -> tuple[Any, ...] | None:
        """The values of all columns; None if no row holds."""
        rows, states = state
        assert rows >= 0, "more rows were taken back than came"
        if rows == 0:
            return None
        return tuple(part.result(one) for (part, _), one in zip(self._parts, states, strict=True))


@dataclass(frozen=True)
class _Counts:
    """The state is the number."""

    plain: Accumulator

    @property
    def type(self) -> pa.DataType:
        return self.plain.type

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Values, sign: int) -> int:
        return state + sign * int(self.plain.add(0, values))

    def result(self, state: int) -> int:
        return state


@dataclass(frozen=True)
class _WholeSums:
    """Sums and averages of whole numbers and decimals; the state is (sum, count)."""

    plain: WholeSum | Average

    @property
    def type(self) -> pa.DataType:
        return self.plain.type

    def initial(self) -> tuple[Any, int]:
        return 0, 0

    def add(self, state: tuple[Any, int], values: Values, sign: int) -> tuple[Any, int]:
        value = values[0]
        if value is None:
            return state
        total, count = state
        if isinstance(value, int):
            return total + sign * value, count + sign
        return EXACT.add(Decimal(total), value if sign > 0 else value.copy_negate()), count + sign

    def result(self, state: tuple[Any, int]) -> Any:
        total, count = state
        if count == 0:
            return None
        return self.plain.result((total, count) if isinstance(self.plain, Average) else total)


@dataclass(frozen=True)
class _FloatSums:
    """Exact sums and averages of floats; the state is (sum as a decimal, count, how many NaN, inf and -inf)."""

    plain: FloatSum

    @property
    def type(self) -> pa.DataType:
        return self.plain.type

    def initial(self) -> tuple[Decimal, int, tuple[int, ...]]:
        return Decimal(0), 0, (0, 0, 0)

    def add(self, state: Any, values: Values, sign: int) -> Any:
        value = values[0]
        if value is None:
            return state
        total, count, odd = state
        exact, bits, _ = self.plain.add(None, values)
        if bits:
            kinds = (math.isnan(value), value > 0, value < 0)
            return total, count + sign, tuple(one + sign * is_it for one, is_it in zip(odd, kinds, strict=True))
        return EXACT.add(total, exact if sign > 0 else exact.copy_negate()), count + sign, odd

    def result(self, state: Any) -> float | None:
        total, count, odd = state
        if count == 0:
            return None
        # As the plain sum sees them: each kind that is there, once.
        told = self.plain.initial()
        for value, times in zip((math.nan, math.inf, -math.inf), odd, strict=True):
            told = self.plain.add(told, (value,)) if times else told
        bits = told[1] if told is not None else 0
        return self.plain.result((total, bits, count))


@dataclass(frozen=True)
class _Multiset:
    """Any aggregate that does not depend on the order; the state is how often each value is there, sorted."""

    plain: Accumulator
    once: bool
    """Whether it is the same to the aggregate how often a value is there."""

    @property
    def type(self) -> pa.DataType:
        return self.plain.type

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], values: Values, sign: int) -> list[Any]:
        if None in values:
            return state
        value = tuple(_one_zero(one) for one in values)
        key = order_key(value)
        at = bisect_left(state, key, key=lambda kept: order_key(kept[0]))
        is_there = at < len(state) and order_key(state[at][0]) == key
        times = (state[at][1] if is_there else 0) + sign
        # A new list: what the state was is still asked for its result.
        return [*state[:at], *([(value, times)] if times else []), *state[at + is_there :]]

    def result(self, state: list[Any]) -> Any:
        found = self.plain.initial()
        for values, times in state:
            for _ in range(1 if self.once else times):
                found = self.plain.add(found, values)
        return self.plain.result(found)


def _one_zero(value: Any) -> Any:
    """Both zeros of a float are one value."""
    return value + 0.0 if isinstance(value, float) else value
