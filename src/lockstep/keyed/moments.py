"""Variances, standard deviations, covariances and correlations, added up exactly.

The sums of values, of their squares and of their products are kept as whole numbers of any length, so nothing is ever
rounded on the way: neither the order of records nor values far from zero show in the result. It is rounded once, to a
double, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from lockstep.keyed.sums import EXACT, Values


class Sums(NamedTuple):
    """Of pairs (x, y), both as whole numbers: x is counted in units of 2 to the power -x_digits, y likewise.

    ``odd`` counts the pairs with a NaN or an infinity, which are in ``number`` but in no sum. With one input y is x.
    """

    number: int = 0
    odd: int = 0
    x_digits: int = 0
    y_digits: int = 0
    x: int = 0
    y: int = 0
    xx: int = 0
    yy: int = 0
    xy: int = 0

    def plus(self, other: Sums) -> Sums:
        """Both together: first in the finer of their units, then added. Exact, so the order does not matter."""
        x_digits, y_digits = max(self.x_digits, other.x_digits), max(self.y_digits, other.y_digits)
        one, two = self._in_units(x_digits, y_digits), other._in_units(x_digits, y_digits)
        added = [a + b for a, b in zip(one[4:], two[4:], strict=True)]
        return Sums(self.number + other.number, self.odd + other.odd, x_digits, y_digits, *added)

    def _in_units(self, x_digits: int, y_digits: int) -> Sums:
        left, right = x_digits - self.x_digits, y_digits - self.y_digits
        if not left and not right:
            return self
        return self._replace(
            x=self.x << left,
            y=self.y << right,
            xx=self.xx << 2 * left,
            yy=self.yy << 2 * right,
            xy=self.xy << left + right,
        )


@dataclass(frozen=True)
class Moments:
    """One of these aggregates; the state is a tuple of :class:`Sums`, None before the first record."""

    type: pa.DataType
    function: str
    scales: tuple[int, ...]
    """For each input, the digits after the point of its decimal type; 0 if it is none."""

    def initial(self) -> Any:
        """Nothing added yet."""
        return None

    def add(self, state: Any, values: Values) -> Any:
        """With one more record; one with a null does not count."""
        if None in values:
            return state
        x, y = values[0], values[-1]
        if any(isinstance(value, float) and not math.isfinite(value) for value in (x, y)):
            one = Sums(number=1, odd=1)
        else:
            (a, x_digits), (b, y_digits) = _whole(x, self.scales[0]), _whole(y, self.scales[-1])
            one = Sums(1, 0, x_digits, y_digits, a, b, a * a, b * b, a * b)
        return tuple(one) if state is None else tuple(Sums(*state).plus(one))

    def merge(self, state: Any, later: Any) -> Any:
        """Both parts' records."""
        if state is None or later is None:
            return state or later
        return tuple(Sums(*state).plus(Sums(*later)))

    def result(self, state: Any) -> float | None:
        """The value of all that was added: null where there are too few records, NaN where a value was not finite."""
        if state is None:
            return None
        sums = Sums(*state)
        if sums.number == 1 and self.function not in _OF_ONE:
            return None
        if sums.odd:
            return math.nan
        x_unit = 2**sums.x_digits * 10 ** self.scales[0]
        y_unit = 2**sums.y_digits * 10 ** self.scales[-1]
        return _RESULTS[self.function](sums, x_unit, y_unit)


def _whole(value: Any, scale: int) -> tuple[int, int]:
    """A value as a whole number and the power of two that it was multiplied by; decimals by their scale besides."""
    if isinstance(value, float):
        numerator, denominator = value.as_integer_ratio()
        return numerator, denominator.bit_length() - 1
    if isinstance(value, Decimal):
        return int(value.scaleb(scale, EXACT)), 0
    return value, 0


def _variance(sums: Sums, x_unit: int, population: bool) -> float:
    n = sums.number
    return _quotient(n * sums.xx - sums.x**2, n * (n if population else n - 1) * x_unit**2)


def _covariance(sums: Sums, x_unit: int, y_unit: int, population: bool) -> float:
    n = sums.number
    return _quotient(n * sums.xy - sums.x * sums.y, n * (n if population else n - 1) * x_unit * y_unit)


def _correlation(sums: Sums) -> float | None:
    """Units cancel out. It is not defined where one of the two never changes."""
    n = sums.number
    spread = (n * sums.xx - sums.x**2) * (n * sums.yy - sums.y**2)
    together = n * sums.xy - sums.x * sums.y
    if spread == 0:
        return None
    size = math.sqrt(_quotient(together**2, spread))
    return size if together >= 0 else -size


def _quotient(numerator: int, denominator: int) -> float:
    """Rounded once: Python divides whole numbers of any length to the nearest double."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


_OF_ONE = frozenset({"var_pop", "stddev_pop", "covar_pop"})
"""What a single record has a result for: it is 0."""
_RESULTS: dict[str, Callable[[Sums, int, int], float | None]] = {
    "var_pop": lambda sums, unit, _: _variance(sums, unit, population=True),
    "var_samp": lambda sums, unit, _: _variance(sums, unit, population=False),
    "stddev_pop": lambda sums, unit, _: math.sqrt(_variance(sums, unit, population=True)),
    "stddev_samp": lambda sums, unit, _: math.sqrt(_variance(sums, unit, population=False)),
    "covar_pop": lambda sums, x_unit, y_unit: _covariance(sums, x_unit, y_unit, population=True),
    "covar_samp": lambda sums, x_unit, y_unit: _covariance(sums, x_unit, y_unit, population=False),
    "corr": lambda sums, x_unit, y_unit: _correlation(sums),  # noqa: ARG005
}
MOMENTS = tuple(_RESULTS)
"""The functions there are."""
