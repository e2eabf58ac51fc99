"""Aggregates of extreme numbers: Spark's way and the keyed steps' way give the same result, or the same error."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lockstep as ls
from lockstep import F
from lockstep.compile.aggregates import order_free
from lockstep.compile.expressions import to_column
from lockstep.errors import ExpressionError
from lockstep.keyed.accumulators import Totals, accumulator_of
from lockstep.plan.expression import call
from lockstep.runtime.failures import explained_failure
from tests.spark.conftest import NewTrial

FLOATS = ("sum", "avg", "min", "max", "collect_set")
WHOLE = ("sum", "avg", "min", "max")
GROUPS = 300
_POOL = [0.0, -0.0, 0.1, 0.2, -0.3, 1e-19, -6e-19, 5e-324, 100.1, 2.0**53 + 2, 9.9e19, -9.9e19, 1e18, -1e18, 12345678.9]
_SPECIAL = [None, math.nan, math.inf, -math.inf]
_LONGS = [None, 0, 1, -1, 2**63 - 1, -(2**63), 2**62, -(2**62), 2**32, 65535, -65536, 7]


def _native(session: SparkSession, cases: Sequence[Sequence[Any]], kind: str, names: Sequence[str]) -> dict[int, Any]:
    """The aggregates of each case by Spark, its values scattered over partitions."""
    rows = [(number, place, value) for number, values in enumerate(cases) for place, value in enumerate(values)]
    frame = session.createDataFrame(rows, f"case int, place int, v {kind}").repartition(3, "place")
    rewrite = order_free(frame, "totals", exact_floats=True)
    columns = [to_column(call(name, "v"), rewrite).alias(name) for name in names]
    return {row["case"]: tuple(row)[1:] for row in frame.groupBy("case").agg(*columns).collect()}


def _keyed(values: Sequence[Any], kind: pa.DataType, names: Sequence[str]) -> tuple[Any, ...]:
    """The same by keyed steps, in parts that are merged, in another order."""
    totals = Totals([accumulator_of(call(name, "v"), name) for name in names], pa.schema([("v", kind)]))
    shuffled = random.Random(len(values)).sample(list(values), len(values))
    parts = [totals.initial(), totals.initial()]
    for place, value in enumerate(shuffled):
        parts[place % 2] = totals.add(parts[place % 2], (value,))
    return totals.results(totals.merge(*parts))


def _exactly(values: Sequence[float | None]) -> float | None:
    """The sum of floats with 18 digits after the point, rounded once."""
    known = [value for value in values if value is not None]
    if not known or not all(map(math.isfinite, known)):
        return (
            math.fsum(known) if known and len({math.inf, -math.inf} & set(known)) < 2 else math.nan if known else None
        )
    digits = Context(prec=100, rounding=ROUND_HALF_UP)
    cut = [digits.quantize(Decimal(repr(value)), Decimal(1).scaleb(-18)) for value in known]
    return float(sum(map(Fraction, cut), Fraction(0)))


def test_floats_of_all_sizes_come_out_the_same_natively_and_in_keyed_steps(session: SparkSession) -> None:
    chance = random.Random(7)
    drawn = [*_POOL, *(chance.uniform(-1e6, 1e6) for _ in range(20)), *(chance.uniform(-9e19, 9e19) for _ in range(20))]
    cases: list[list[float | None]] = [list(chance.choices(drawn, k=chance.randrange(1, 9))) for _ in range(GROUPS)]
    cases += [[*chance.choices(drawn, k=3), *chance.choices(_SPECIAL, k=2)] for _ in range(GROUPS)]
    cases += [[None], [None, None], [9.9e19] * 5, [9.9e19, 9.9e19, -9.9e19, -9.9e19, 0.1]]
    native = _native(session, cases, "double", FLOATS)
    for number, values in enumerate(cases):
        assert repr(native[number]) == repr(_keyed(values, pa.float64(), FLOATS)), values
        assert repr(native[number][0]) == repr(_exactly(values)), values


def test_whole_numbers_may_leave_their_range_on_the_way_but_not_in_the_end(session: SparkSession) -> None:
    chance = random.Random(8)
    drawn = [chance.choices(_LONGS, k=chance.randrange(1, 9)) for _ in range(3 * GROUPS)]
    fitting = [values for values in drawn if -(2**63) <= sum(value or 0 for value in values) < 2**63]
    native = _native(session, fitting, "bigint", WHOLE)
    for number, values in enumerate(fitting):
        known = [value for value in values if value is not None]
        assert native[number] == _keyed(values, pa.int64(), WHOLE), values
        assert native[number][0] == (sum(known) if known else None)
    assert len(fitting) > GROUPS


@pytest.mark.parametrize(
    ("values", "kind", "arrow", "code"),
    [
        ([2**63 - 1, 1], "bigint", pa.int64(), "LS0216"),
        ([-(2**63), -1], "bigint", pa.int64(), "LS0216"),
        ([Decimal(10**38 - 1), Decimal(1)], "decimal(38,0)", pa.decimal128(38, 0), "LS0216"),
        ([1e20], "double", pa.float64(), "LS0212"),
    ],
)
def test_what_is_too_large_is_the_same_error_natively_and_in_keyed_steps(
    session: SparkSession, values: list[Any], kind: str, arrow: pa.DataType, code: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        _native(session, [values], kind, ["sum"])
    assert explained_failure(str(raised.value)).code == code
    with pytest.raises(ExpressionError) as caught:
        _keyed(values, arrow, ["sum"])
    assert caught.value.code == code


def test_a_division_by_zero_beside_a_sum_of_floats_names_its_step_and_expression(trial: NewTrial) -> None:
    job = ls.Job("dividing")
    numbers = job.source("numbers", ls.journal("numbers", schema="k string, n bigint"))
    halved = numbers.with_columns(share=F.lit(100) / F.col("n"), name="halved")
    halved.key_by("k").agg(total=F.sum("share")).to(ls.files("out"))
    ran = trial(job)
    ran.start()
    ran.put("numbers", [{"k": "a", "n": 0}])
    error = ran.run_to_failure()
    assert (error.code, error.fact) == ("LS0215", 'step "halved" divides by zero'), str(error)
    assert "the expression: 100 / n." in error.why and "try_divide" in error.hint
