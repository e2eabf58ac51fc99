"""Medians and percentiles: exact, from all the values of a key, each kept once with how often it came."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from lockstep.keyed.sums import Values
from lockstep.keyed.value_order import order_key


@dataclass(frozen=True)
class Percentiles:
    """The state is [values in order, how often each came], so it is the same for every order of the records.

    Between two values the result is interpolated, in the same words as Spark's ``percentile``, so to the same bit.
    """

    type: pa.DataType
    fractions: tuple[float, ...]
    several: bool

    def initial(self) -> list[list[Any]]:
        """No values yet."""
        return [[], []]

    def add(self, state: list[list[Any]], values: Values) -> list[list[Any]]:
        """With one more record."""
        if values[0] is not None:
            value = float(values[0])
            # Both zeros are one value, and so are the many forms of NaN: the first to come must not show in the state.
            self._insert(state, math.nan if math.isnan(value) else value + 0.0, 1)
        return state

    def merge(self, state: list[list[Any]], later: list[list[Any]]) -> list[list[Any]]:
        """Both parts' records."""
        for value, times in zip(*later, strict=True):
            self._insert(state, value, times)
        return state

    def result(self, state: list[list[Any]]) -> Any:
        """One number, or a list of them; null over no value."""
        values, times = state
        if not values:
            return None
        upto = list(accumulate(times))
        found = [_at(values, upto, fraction) for fraction in self.fractions]
        return found if self.several else found[0]

    def _insert(self, state: list[list[Any]], value: float, times: int) -> None:
        values, counts = state
        at = bisect_left(values, order_key(value), key=order_key)
        if at < len(values) and order_key(values[at]) == order_key(value):
            counts[at] += times
        else:
            values.insert(at, value)
            counts.insert(at, times)


def _at(values: list[float], upto: list[int], fraction: float) -> float:
    """The value at a fraction of the way from the first to the last; ``upto`` counts the records up to each value."""
    position = (upto[-1] - 1) * fraction
    lower, higher = math.floor(position), math.ceil(position)
    low, high = values[bisect_right(upto, lower)], values[bisect_right(upto, higher)]
    if lower == higher or order_key(low) == order_key(high):
        return low
    return low + (position - lower) * (high - low)
