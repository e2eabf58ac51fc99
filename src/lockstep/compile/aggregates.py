"""Aggregates whose result does not depend on the order in which Spark adds things up: exact sums, sorted sets.

A float has two zeros, which Spark takes for equal: the sign of a smallest, largest or listed one would be that of
whichever came first. So zeros lose their sign before they are compared.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
)

from lockstep.compile.expressions import Rewrite, to_column
from lockstep.compile.sums import float_sum, long_sum
from lockstep.errors import PlanError
from lockstep.plan.accumulated import Accumulated, accumulated
from lockstep.plan.aggregates import MEANINGS, canonical
from lockstep.plan.expression import Call

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_FLOATS = (FloatType, DoubleType)


def order_free(frame: DataFrame, step: str, *, exact_floats: bool) -> Rewrite:
    """The lowering of aggregate calls over ``frame`` in ``step``; None for those that Spark gets as they are."""

    def rewrite(call: Call) -> SparkColumn | None:
        function = canonical(call.name)
        if function not in LOWERED:
            return None
        asked = accumulated(call, function, f'step "{step}"')
        inputs = [to_column(value) for value in asked.inputs]
        types = [field.dataType for field in frame.select(*inputs).schema.fields]
        match function:
            case "sum" | "avg":
                return _added(inputs[0], types[0], step, average=function == "avg", exact_floats=exact_floats)
            case "count_distinct":
                return sf.size(sf.collect_set(_together(inputs, types))).cast("bigint")
            case "collect_set":
                return sf.array_sort(sf.collect_set(one_zero(inputs[0], types[0])))
            case "median" | "percentile":
                return _percentile(asked, inputs[0], types[0])
        # Which of two zeros a minimum is would depend on the order.
        return getattr(sf, function)(one_zero(inputs[0], types[0])) if isinstance(types[0], _FLOATS) else None

    return rewrite


LOWERED = frozenset(name for name, meaning in MEANINGS.items() if meaning.by == "lowered")
"""The aggregates that Spark gets in other words, so that their results are free of order."""


def one_zero(column: SparkColumn, kind: DataType) -> SparkColumn:
    """A float of which there is one NaN, and whose zero has no sign, as in Spark's own grouping; all else as it is."""
    if not isinstance(kind, _FLOATS):
        return column
    return sf.when(sf.isnan(column), sf.lit(float("nan")).cast(kind)).otherwise(column + sf.lit(0.0).cast(kind))


def _added(value: SparkColumn, kind: DataType, step: str, *, average: bool, exact_floats: bool) -> SparkColumn | None:
    if isinstance(kind, _INTEGERS) and average:
        # Spark averages integers as doubles, which is inexact beyond 2^53; a sum of longs is not.
        return sf.try_divide(sf.sum(value.cast("decimal(38,0)")).cast("double"), sf.count(value))
    if isinstance(kind, LongType):
        return long_sum(value, step)
    if isinstance(kind, _FLOATS) and exact_floats:
        total = float_sum(value.cast("double"), step)
        return sf.try_divide(total, sf.count(value)) if average else total
    return None


def _together(values: list[SparkColumn], types: list[DataType]) -> SparkColumn:
    """One value, or a struct of several; null, which a set passes over, where one of them is."""
    normal = [one_zero(value, kind) for value, kind in zip(values, types, strict=True)]
    if len(normal) == 1:
        return normal[0]
    known = reduce(and_, (value.isNotNull() for value in values))
    return sf.when(known, sf.struct(*(value.alias(f"c{place}") for place, value in enumerate(normal))))


def _percentile(asked: Accumulated, value: SparkColumn, kind: DataType) -> SparkColumn:
    """Spark's exact percentile: it counts each value. Doubles, so that zero is one value."""
    if not isinstance(kind, NumericType):
        raise PlanError(
            "LS0171",
            f'"{asked.function}" is of a {kind.simpleString()}',
            why=f"{asked.function} takes a number.",
            hint=f'convert it first: F.{asked.function}(F.col("x").cast("double")).',
        )
    doubles = value.cast("double") + sf.lit(0.0)
    return sf.percentile(doubles, list(asked.fractions) if asked.several else asked.fractions[0])
