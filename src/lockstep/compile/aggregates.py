"""Aggregates whose result does not depend on the order in which Spark adds things up.

Floats: addition rounds, so the order of addition shows in the last digits, and two replicas add in different orders.
By default sums and averages of floats are therefore added as decimals with 18 digits after the point, which is exact
addition, and turned back into a double at the end. NaN and the infinities, which decimals do not have, are carried as
bits. Digits beyond the eighteenth after the point are rounded away record by record, which is free of order too; a
value that has no such decimal is refused when it comes (LS0212).
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
from lockstep.errors import ExpressionError, PlanError
from lockstep.plan.accumulated import Accumulated, accumulated
from lockstep.plan.aggregates import MEANINGS, canonical
from lockstep.plan.expression import Call

_EXACT = "decimal(38,18)"
_TOO_LARGE = 1e20
_NAN, _PLUS, _MINUS = 4, 1, 2
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
    if isinstance(kind, _FLOATS) and exact_floats:
        total = _exact_sum(value.cast("double"), step)
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
