"""Sums and averages for keyed operators, exact and free of the order of addition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

from lockstep.errors import ExpressionError
from lockstep.store.types import spark_type

Values = Sequence[Any]
"""The values of an accumulator's inputs for one record, in order."""

_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
_SMALLEST = Decimal(1).scaleb(-18)
_FLOAT_LIMIT = 1e20
_LONG_LIMIT = 2**63
_DECIMAL_DIGITS_MAX = 38
_QUOTIENT_DIGITS = 39
"""Digits after the point that Spark divides decimals to, before it rounds to the result's type."""
_NAN, _PLUS, _MINUS = 4, 1, 2


@dataclass(frozen=True)
class WholeSum:
    """Sums of whole numbers and decimals; the state is the sum, None before the first value."""

    type: pa.DataType
    function: str

    def initial(self) -> Any:
        """Nothing added yet."""
        return None

    def add(self, state: Any, values: Values) -> Any:
        """With one more record."""
        value = values[0]
        if value is None:
            return state
        return value if state is None else self._sum(state, value)

    def merge(self, state: Any, later: Any) -> Any:
        """Both parts' records."""
        return self.add(later, (state,))

    def result(self, state: Any) -> Any:
        """The value of all that was added."""
        return state

    def _sum(self, state: Any, value: Any) -> Any:
        total = state + value if isinstance(value, int) else _EXACT.add(state, value)
        if not (_is_long(total) if isinstance(total, int) else _fits(total, self.type)):
            raise _overflow(self.function, self.type)
        return total


@dataclass(frozen=True)
class FloatSum:
    """Exact sums of floats; the state is (sum as a decimal, bits for NaN and infinities, count), None if empty."""

    type: pa.DataType
    function: str
    average: bool = False

    def initial(self) -> tuple[Decimal, int, int] | None:
        """Nothing added yet."""
        return None

    def add(self, state: Any, values: Values) -> Any:
        """With one more record."""
        value = values[0]
        if value is None:
            return state
        total, bits, count = state or (Decimal(0), 0, 0)
        if value - value != 0.0:  # NaN and the infinities only
            return total, bits | (_NAN if math.isnan(value) else _PLUS if value > 0 else _MINUS), count + 1
        if not -_FLOAT_LIMIT < value < _FLOAT_LIMIT:
            raise _too_large(self.function)
        # The shortest text of the float, as Spark's cast to a decimal reads it.
        exact = _EXACT.quantize(Decimal(repr(value)), _SMALLEST)
        return _EXACT.add(total, exact), bits, count + 1

    def merge(self, state: Any, later: Any) -> Any:
        """Both parts' records."""
        if state is None or later is None:
            return state or later
        return _EXACT.add(state[0], later[0]), state[1] | later[1], state[2] + later[2]

    def result(self, state: Any) -> float | None:
        """The value of all that was added."""
        if state is None:
            return None
        total, bits, count = state
        if bits:
            return {_PLUS: math.inf, _MINUS: -math.inf}.get(bits, math.nan)
        if abs(total) >= _FLOAT_LIMIT:
            raise _overflow(self.function, pa.decimal128(_DECIMAL_DIGITS_MAX, 18))
        return float(total) / count if self.average else float(total)


@dataclass(frozen=True)
class Average:
    """Averages of whole numbers and decimals; the state is (sum, count)."""

    type: pa.DataType
    sum_type: pa.DataType

    def initial(self) -> tuple[Any, int]:
        """Nothing added yet."""
        return 0, 0

    def add(self, state: tuple[Any, int], values: Values) -> tuple[Any, int]:
        """With one more record."""
        return state if values[0] is None else self.merge(state, (values[0], 1))

    def merge(self, state: tuple[Any, int], later: tuple[Any, int]) -> tuple[Any, int]:
        """Both parts' records."""
        if isinstance(later[0], int) and isinstance(state[0], int):
            whole = state[0] + later[0]
            # States keep to 64 bits where they can: beyond, a decimal holds any number.
            return whole if _is_long(whole) else Decimal(whole), state[1] + later[1]
        total = _EXACT.add(Decimal(state[0]), Decimal(later[0]))
        if not _fits(total, self.sum_type):
            raise _overflow("avg", self.sum_type)
        return total, state[1] + later[1]

    def result(self, state: tuple[Any, int]) -> float | Decimal | None:
        """The value of all that was added."""
        total, count = state
        if count == 0:
            return None
        if not pa.types.is_decimal(self.type):
            return float(total) / count
        quotient = _EXACT.divide(total, Decimal(count))
        rounded = _EXACT.quantize(quotient, Decimal(1).scaleb(-_QUOTIENT_DIGITS))
        value = _EXACT.quantize(rounded, Decimal(1).scaleb(-self.type.scale))
        if not _fits(value, self.type):
            raise _overflow("avg", self.type)
        return value


def _fits(value: Decimal, kind: pa.DataType) -> bool:
    if not pa.types.is_decimal(kind):
        return True
    return abs(value) < Decimal(1).scaleb(kind.precision - kind.scale)


def _overflow(function: str, kind: pa.DataType) -> ExpressionError:
    return ExpressionError(
        "LS0214",
        "an aggregate of the job is too large for its type",
        why=f"{function} has left the range of {spark_type(kind)} (Spark calls it ARITHMETIC_OVERFLOW).",
        hint='add a larger type: F.sum(F.col("x").cast("decimal(38,0)")).',
    )


def _too_large(function: str) -> ExpressionError:
    return ExpressionError(
        "LS0212",
        f"{function} adds a float of {_FLOAT_LIMIT:g} or more",
        why="floats are added exactly, as decimals with 18 digits after the point and 20 before it.",
        hint="scale the values down first: divide by a power of two, which is exact.",
    )


def _is_long(total: int) -> bool:
    return -_LONG_LIMIT <= total < _LONG_LIMIT
