"""Sums in Spark that are exact and the same for every order of addition; keyed steps add as these do (`keyed/sums.py`).

What is added is split into two parts, and each part is summed where it cannot overflow on the way: whether the *sum*
fits its type is asked once, of the whole. (One long or one decimal would overflow for one order of `[max, 1, -1]` and
not for another: one replica would fail, and the other publish.)

- Whole numbers: the low 16 bits and the rest. Only sums of 65,536 numbers near the limit fill the upper part.
- Floats: addition rounds, so the order shows in the last digits. They are added as decimals with 18 digits after the
  point, the whole part and the fraction apart. NaN and the infinities, which decimals do not have, are carried as bits.
  Digits beyond the eighteenth are rounded away record by record, which is free of order too; a value that has no such
  decimal is refused when it comes (LS0212).
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf

from lockstep.errors import ExpressionError
from lockstep.errors.numbers import FLOAT_LIMIT, float_too_large, sum_too_large

_EXACT = "decimal(38,18)"
_WHOLE = "decimal(38,0)"
_LOW_BITS = 16
_LOW_MASK = (1 << _LOW_BITS) - 1
_HIGH_LIMIT = 1 << (63 - _LOW_BITS)
_NAN, _PLUS, _MINUS = 4, 1, 2
_ADDED_DIGITS = 18
"""A whole part of so many digits and a fraction of 18 can be added by Spark without losing a digit."""


def long_sum(value: SparkColumn, step: str) -> SparkColumn:
    """The sum of a bigint, null without values; LS0216 if it is none itself."""
    high = sf.sum(sf.shiftright(value, _LOW_BITS))
    low = sf.sum(value.bitwiseAND(sf.lit(_LOW_MASK)))
    carried = high + sf.shiftright(low, _LOW_BITS)
    fits = (carried >= -_HIGH_LIMIT) & (carried < _HIGH_LIMIT)
    total = sf.shiftleft(carried, _LOW_BITS).bitwiseOR(low.bitwiseAND(sf.lit(_LOW_MASK)))
    refusal = _raised(sum_too_large("sum", "bigint", step), "bigint")
    return sf.when(high.isNotNull(), sf.when(fits, total).otherwise(refusal))


def float_sum(value: SparkColumn, step: str) -> SparkColumn:
    """The sum of a double: the decimals' exact sum, rounded once."""
    infinity = sf.lit(float("inf"))
    special = (
        sf.when(sf.isnan(value), _NAN).when(value == infinity, _PLUS).when(value == -infinity, _MINUS).otherwise(0)
    )
    bits = sf.bit_or(special)
    return (
        sf.when(bits == 0, _finite_sum(value, step))
        .when(bits == _PLUS, infinity)
        .when(bits == _MINUS, -infinity)
        .when(bits.isNull(), sf.lit(None).cast("double"))
        .otherwise(sf.lit(float("nan")))
    )


def _finite_sum(value: SparkColumn, step: str) -> SparkColumn:
    finite = ~sf.isnan(value) & (sf.abs(value) != sf.lit(float("inf")))
    refusal = _raised(float_too_large(step), _EXACT)
    exact = sf.when(finite, sf.when(sf.abs(value) < FLOAT_LIMIT, value.cast(_EXACT)).otherwise(refusal))
    fraction = exact % sf.lit(1)
    fractions = sf.sum(fraction.cast(_EXACT))
    rest = fractions % sf.lit(1)
    whole = sf.sum((exact - fraction).cast(_WHOLE)) + (fractions - rest).cast(_WHOLE)
    added = (whole.cast(f"decimal({_ADDED_DIGITS},0)") + rest).cast("double")
    # Beyond, a double has no digits after the point: of the rest only its sign can matter, where the whole lies in the
    # middle between two doubles.
    rounded = sf.concat((whole * sf.lit(10) + sf.signum(rest).cast("int")).cast(_WHOLE).cast("string"), sf.lit("e-1"))
    return sf.when(sf.abs(whole) < 10**_ADDED_DIGITS, added).otherwise(rounded.cast("double"))


def _raised(error: ExpressionError, kind: str) -> SparkColumn:
    return sf.raise_error(sf.lit(error.to_wire())).cast(kind)
