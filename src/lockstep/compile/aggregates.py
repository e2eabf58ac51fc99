"""Aggregates whose result does not depend on the order in which Spark adds things up.

Floats: addition rounds, so the order of addition shows in the last digits, and two replicas add in different orders.
By default sums and averages of floats are therefore added as decimals with 18 digits after the point, which is exact
addition, and turned back into a double at the end. NaN and the infinities, which decimals do not have, are carried as
bits. Digits beyond the eighteenth after the point are rounded away record by record, which is free of order too; a
value that has no such decimal is refused when it comes (LS0212).
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, DoubleType, FloatType, IntegerType, LongType, ShortType

from lockstep.compile.expressions import Rewrite, to_column
from lockstep.errors import ExpressionError
from lockstep.plan.expression import Call, Column, Expression

_EXACT = "decimal(38,18)"
_TOO_LARGE = 1e20
_NAN, _PLUS, _MINUS = 4, 1, 2
_AVERAGES = frozenset({"avg", "mean"})
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def order_free(frame: DataFrame, step: str, *, exact_floats: bool) -> Rewrite:
    """The lowering of aggregate calls over ``frame`` in ``step``."""

    def rewrite(call: Call) -> SparkColumn | None:
        if call.name == "collect_set":
            return sf.array_sort(sf.collect_set(_argument(call)))
        if call.name not in _AVERAGES and call.name != "sum":
            return None
        argument = _argument(call)
        kind = frame.select(argument).schema.fields[0].dataType
        average = call.name in _AVERAGES
        if isinstance(kind, _INTEGERS) and average:
            # Spark averages integers as doubles, which is inexact beyond 2^53; a sum of longs is not.
            return sf.try_divide(sf.sum(argument.cast("decimal(38,0)")).cast("double"), sf.count(argument))
        if isinstance(kind, FloatType | DoubleType) and exact_floats:
            total = _exact_sum(argument.cast("double"), step)
            return sf.try_divide(total, sf.count(argument)) if average else total
        return None

    return rewrite


def _argument(call: Call) -> SparkColumn:
    value = call.args[0] if call.args else dict(call.kwargs)["col"]
    return to_column(value if isinstance(value, Expression) else Column(str(value)))


def _exact_sum(value: SparkColumn, step: str) -> SparkColumn:
    infinity = sf.lit(float("inf"))
    special = (
        sf.when(sf.isnan(value), _NAN).when(value == infinity, _PLUS).when(value == -infinity, _MINUS).otherwise(0)
    )
    finite = ~sf.isnan(value) & (sf.abs(value) != infinity)
    refusal = sf.raise_error(sf.lit(_too_large(step).to_wire())).cast(_EXACT)
    exact = sf.when(sf.abs(value) < _TOO_LARGE, value.cast(_EXACT)).otherwise(refusal)
    total = sf.sum(sf.when(finite, exact)).cast("double")
    bits = sf.bit_or(special)
    return (
        sf.when(bits == 0, total)
        .when(bits == _PLUS, infinity)
        .when(bits == _MINUS, -infinity)
        .when(bits.isNull(), sf.lit(None).cast("double"))
        .otherwise(sf.lit(float("nan")))
    )


def _too_large(step: str) -> ExpressionError:
    return ExpressionError(
        "LS0212",
        f'step "{step}" adds a float of {_TOO_LARGE:g} or more',
        why="floats are added exactly, as decimals with 18 digits after the point and 20 before it.",
        hint=".agg(..., exact_floats=False) adds floats of any size, and accepts differences in the last digits.",
    )
