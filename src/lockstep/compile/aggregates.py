"""Aggregates whose result does not depend on the order in which Spark adds things up: exact sums, sorted sets.

A float has two zeros, which Spark takes for equal: the sign of a smallest, largest or listed one would be that of
whichever came first. So zeros lose their sign before they are compared.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ByteType, DoubleType, FloatType, IntegerType, LongType, ShortType

from lockstep.compile.expressions import Rewrite, to_column
from lockstep.compile.sums import float_sum, long_sum
from lockstep.plan.expression import Call, Column, Expression

_AVERAGES = frozenset({"avg", "mean"})
_COMPARED = frozenset({"min", "max", "collect_set"})
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def order_free(frame: DataFrame, step: str, *, exact_floats: bool) -> Rewrite:
    """The lowering of aggregate calls over ``frame`` in ``step``."""

    def rewrite(call: Call) -> SparkColumn | None:
        if call.name not in _COMPARED | _AVERAGES | {"sum"}:
            return None
        argument = _argument(call)
        kind = frame.select(argument).schema.fields[0].dataType
        is_float = isinstance(kind, FloatType | DoubleType)
        if call.name in _COMPARED:
            return _compared(call.name, argument + sf.lit(0.0).cast(kind) if is_float else argument)
        average = call.name in _AVERAGES
        if isinstance(kind, _INTEGERS) and average:
            # Spark averages integers as doubles, which is inexact beyond 2^53; a sum of longs is not.
            return sf.try_divide(sf.sum(argument.cast("decimal(38,0)")).cast("double"), sf.count(argument))
        if isinstance(kind, LongType):
            return long_sum(argument, step)
        if is_float and exact_floats:
            total = float_sum(argument.cast("double"), step)
            return sf.try_divide(total, sf.count(argument)) if average else total
        return None

    return rewrite


def _compared(function: str, argument: SparkColumn) -> SparkColumn:
    found: SparkColumn = getattr(sf, function)(argument)
    return sf.array_sort(found) if function == "collect_set" else found


def _argument(call: Call) -> SparkColumn:
    value = call.args[0] if call.args else dict(call.kwargs)["col"]
    return to_column(value if isinstance(value, Expression) else Column(str(value)))
