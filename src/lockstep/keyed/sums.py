"""Sums and averages for keyed operators, exact and free of the order of addition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

from lockstep.errors.numbers import FLOAT_LIMIT, float_too_large, sum_too_large
from lockstep.store.types import spark_type

Values = Sequence[Any]
"""The values of an accumulator's inputs for one record, in order."""

EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
_SMALLEST = Decimal(1).scaleb(-18)
_LONG_LIMIT = 2**63
_QUOTIENT_DIGITS = 39
"""Digits after the point that Spark divides decimals to, before it rounds to the result's type."""
_NAN, _PLUS, _MINUS = 4, 1, 2


@dataclass(frozen=True)
class WholeSum:
    """Sums of whole numbers and decimals; the state is the sum, None before the first value.

    The sum may leave its type on the way and come back: only a result has to fit.
    """

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
        if state is None:
            return value
        return state + value if isinstance(value, int) else EXACT.add(state, value)

    def merge(self, state: Any, later: Any) -> Any:
        """Both parts' records."""
        return self.add(later, (state,))

    def result(self, state: Any) -> Any:
        """The value of all that was added."""
        if state is not None and not (_is_long(state) if isinstance(state, int) else _fits(state, self.type)):
            raise sum_too_large(self.function, spark_type(self.type))
        return state


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
        if not -FLOAT_LIMIT < value < FLOAT_LIMIT:
            raise float_too_large()
        # The shortest text of the float, as Spark's cast to a decimal reads it.
        exact = EXACT.quantize(Decimal(repr(value)), _SMALLEST)
        return EXACT.add(total, exact), bits, count + 1

    def merge(self, state: Any, later: Any) -> Any:
        """Both parts' records."""
        if state is None or later is None:
            return state or later
        return EXACT.add(state[0], later[0]), state[1] | later[1], state[2] + later[2]

    def result(self, state: Any) -> float | None:
        """The value of all that was added."""
        if state is None:
            return None
        total, bits, count = state
        if bits:
            return {_PLUS: math.inf, _MINUS: -math.inf}.get(bits, math.nan)
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
        return EXACT.add(Decimal(state[0]), Decimal(later[0])), state[1] + later[1]

    def result(self, state: tuple[Any, int]) -> float | Decimal | None:
        """The value of all that was added."""
        total, count = state
        if count == 0:
            return None
        if not pa.types.is_decimal(self.type):
            return float(total) / count
        if not _fits(total, self.sum_type):
            raise sum_too_large("avg", spark_type(self.sum_type))
        quotient = EXACT.divide(total, Decimal(count))
        rounded = EXACT.quantize(quotient, Decimal(1).scaleb(-_QUOTIENT_DIGITS))
        value = EXACT.quantize(rounded, Decimal(1).scaleb(-self.type.scale))
        if not _fits(value, self.type):
            raise sum_too_large("avg", spark_type(self.type))
        return value


def _fits(value: Decimal, kind: pa.DataType) -> bool:
    if not pa.types.is_decimal(kind):
        return True
    # abs() would round to 28 digits.
    return value.copy_abs() < Decimal(1).scaleb(kind.precision - kind.scale)


def _is_long(total: int) -> bool:
    return -_LONG_LIMIT <= total < _LONG_LIMIT
