"""Every aggregate of the table, computed by Spark, by Lockstep and by a reference in plain Python: the same to the bit.

Hypothesis makes the groups; all of them go through Spark in one action, each as a group of its own.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lockstep.compile.aggregates import order_free
from lockstep.compile.expressions import to_column
from lockstep.compile.sketches import bias_for
from lockstep.compile.stages import spark_schema_text
from lockstep.keyed.accumulators import Totals, accumulator
from lockstep.keyed.sketches import Bias
from lockstep.plan.accumulated import accumulated, lay_out
from lockstep.plan.aggregates import MEANINGS
from lockstep.plan.expression import Expression, call
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema
from lockstep.store.types import spark_type
from tests.aggregate_references import REFERENCES, Reference, percentile, spark_order

GROUPS = 150
SCHEMA = (
    "n int, big bigint, price decimal(12,3), x double, y double, wide double, f float, who string, ok boolean, "
    "day date, at timestamp"
)
NAMES = tuple(part.split()[0] for part in SCHEMA.split(", "))
_ODD = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 0.1, 1e-19])


def _as_float(value: float) -> float:
    """What a column of floats makes of a double."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_TIES = st.sampled_from([-1, 0, 1, 7])
ROW = st.tuples(
    st.none() | _TIES | st.integers(-(2**31), 2**31 - 1),
    st.none() | _TIES | st.integers(-(2**40), 2**40),
    st.none() | st.decimals(-999_999_999, 999_999_999, places=3),
    st.none() | _TIES.map(float) | _ODD | st.floats(-1e15, 1e15),
    st.none() | _TIES.map(float) | st.floats(-1e6, 1e6),
    st.none() | _TIES.map(float) | _FINITE,
    st.none() | _ODD.map(_as_float) | st.floats(-1e6, 1e6, width=32),
    st.none() | st.sampled_from(["", "ann", "Bob", "Zoë", "𝄞", "ann "]) | st.text("ab", max_size=3),
    st.none() | st.booleans(),
    st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    st.none() | st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda one: one.replace(tzinfo=UTC)),
)
GROUP = st.lists(ROW, min_size=1, max_size=12)
Group = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """One aggregate over some columns, and its reference (None: there is none to the bit)."""

    function: str
    columns: tuple[str, ...]
    expression: Expression
    reference: Reference | None

    @property
    def name(self) -> str:
        return "_".join((self.function, *(column or "star" for column in self.columns)))


def _case(function: str, *columns: str) -> Case:
    return Case(function, columns, call(function, *columns), REFERENCES[function])


_ALL = ("n", "big", "price", "x", "f", "who", "day", "at")
_NUMBERS = ("n", "big", "price", "x", "f")
_SPREADS = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
_PAIRS = ("covar_pop", "covar_samp", "corr", "min_by", "max_by")
CASES = (
    Case("count", (), call("count", "*"), len),
    *(_case("count", column) for column in ("n", "who")),
    *(_case(name, "ok") for name in ("count_if", "bool_and", "bool_or")),
    *(_case(name, column) for name in ("bit_and", "bit_or", "bit_xor") for column in ("n", "big")),
    *(_case(name, column) for name in ("sum", "avg", "median") for column in _NUMBERS),
    *(_case(name, column) for name in ("min", "max", "collect_set", "count_distinct") for column in _ALL),
    _case("count_distinct", "n", "x"),
    _case("count_distinct", "who", "f", "day"),
    *(_case(name, column) for name in ("collect_list", "first", "last") for column in ("x", "who")),
    *(_case(name, column) for name in _SPREADS for column in (*_NUMBERS, "wide")),
    *(_case(name, *pair) for name in _PAIRS for pair in (("x", "y"), ("n", "price"), ("y", "wide"), ("big", "f"))),
    *(Case("percentile", ("x", str(p)), call("percentile", "x", p), percentile(p)) for p in (0.0, 0.1, 0.95, 1.0)),
    Case("percentile", ("n", "list"), call("percentile", "n", [0.25, 0.75]), None),
    *(
        Case("approx_count_distinct", (column,), call("approx_count_distinct", column), None)
        for column in ("n", "x", "who", "at")
    ),
)


def _groups() -> list[Group]:
    made: list[Group] = [[(None,) * len(NAMES)]]

    @settings(
        max_examples=GROUPS, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(GROUP)
    def collect(group: Group) -> None:
        made.append(group)

    collect()
    return made


def _frame(session: SparkSession, groups: list[Group]) -> DataFrame:
    rows = [(number, place, *row) for number, group in enumerate(groups) for place, row in enumerate(group)]
    made = session.createDataFrame(rows, f"example int, place int, {SCHEMA}")
    # Where a record lies, and so which parts are added up first, has nothing to do with its group.
    return made.repartition(3, "place")


def _native(frame: DataFrame) -> tuple[dict[int, dict[str, Any]], StructType]:
    rewrite = order_free(frame, "agg", exact_floats=True)
    columns = [
        to_column(case.expression, rewrite).alias(case.name)
        for case in CASES
        if MEANINGS[case.function].by != "lockstep"
    ]
    made = frame.groupBy("example").agg(*columns)
    return {row["example"]: row.asDict(recursive=True) for row in made.collect()}, made.schema


class _Own:
    """Lockstep's accumulators over the same records."""

    def __init__(self, frame: DataFrame) -> None:
        values = [accumulated(case.expression, case.name, "") for case in CASES]
        layout = lay_out(values, NAMES)
        computed = [to_column(expression).alias(name.strip("_")) for name, expression in layout.computed]
        read = frame.select("example", "place", *NAMES, *computed)
        kinds = StructType(read.schema.fields[2:])
        schema = arrow_schema(parse_schema(spark_schema_text(kinds)))
        self.totals = Totals(values, schema, layout, bias_for(values))
        self.rows: dict[int, list[tuple[Any, ...]]] = {}
        for row in sorted(read.collect(), key=lambda one: (one["example"], one["place"])):
            self.rows.setdefault(row["example"], []).append(tuple(row)[2:])

    def results(self, number: int) -> dict[str, Any]:
        """In order, and the same records in two parts; and in any order where that does not matter."""
        rows, totals = self.rows[number], self.totals
        names = totals.schema.names
        whole = dict(zip(names, totals.results(self._added(rows)), strict=True))
        middle = len(rows) // 2
        parts = totals.results(totals.merge(self._added(rows[:middle]), self._added(rows[middle:])))
        _assert_same(number, whole, dict(zip(names, parts, strict=True)), names)
        mixed = random.Random(number).sample(rows, len(rows))
        free = [case.name for case in CASES if not MEANINGS[case.function].ordered]
        _assert_same(number, whole, dict(zip(names, totals.results(self._added(mixed)), strict=True)), free)
        return whole

    def _added(self, rows: list[tuple[Any, ...]]) -> list[Any]:
        states = self.totals.initial()
        for row in rows:
            states = self.totals.add(states, row)
        return states


def _assert_same(number: int, one: dict[str, Any], two: dict[str, Any], names: list[str]) -> None:
    different = {name: (one[name], two[name]) for name in names if _bits(one[name]) != _bits(two[name])}
    assert not different, f"example {number}"


def _bits(value: Any) -> Any:
    """Equal only for what is the same: the sign of a zero counts, NaN is itself, 1.5 is not 1.50."""
    if isinstance(value, list):
        return [_bits(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return repr(value) if isinstance(value, float | Decimal) else value


def test_spark_and_lockstep_and_plain_python_agree_on_every_aggregate(session: SparkSession) -> None:
    groups = _groups()
    frame = _frame(session, groups).cache()
    native, types = _native(frame)
    own = _Own(frame)
    frame.unpersist()
    assert {case.function for case in CASES} == set(MEANINGS)
    for number, group in enumerate(groups):
        made = own.results(number)
        _assert_same(number, made, native[number], [name for name in native[number] if name != "example"])
        _check_references(number, group, made)
    for field in types.fields[1:]:
        assert spark_type(own.totals.schema.field(field.name).type) == field.dataType.simpleString(), field.name


def _check_references(number: int, group: Group, made: dict[str, Any]) -> None:
    empty = all(value is None for row in group for value in row)
    for case in CASES:
        if case.reference is not None:
            places = [NAMES.index(column) for column in case.columns if column in NAMES]
            wanted = case.reference([tuple(row[place] for place in places) for row in group])
            assert _near(made[case.name], wanted), f"example {number}: {case.name} is {made[case.name]}, not {wanted}"
        if empty and case.columns:
            assert made[case.name] == _plain(MEANINGS[case.function].empty), case.name
        if case.function == "approx_count_distinct":
            exact = len({spark_order(row[NAMES.index(case.columns[0])]) for row in group} - {(0, None)})
            assert abs(made[case.name] - exact) <= 2, "so few values are counted exactly, but for collisions"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _near(one: Any, two: Any) -> bool:
    """The same, but for the last bit of what was rounded twice on one side."""
    if isinstance(one, float) and isinstance(two, float) and math.isfinite(one) and math.isfinite(two):
        return one == two or math.isclose(one, two, rel_tol=1e-15)
    return bool(_bits(one) == _bits(two)) or (isinstance(one, Decimal) and one == two)


def test_large_numbers_of_values_are_estimated_as_spark_estimates_them(session: SparkSession) -> None:
    sizes = [1, 300, 390, 400, 410, 430, 480, 700, 1500, 2500, 2600, 4000, 20000]
    rows = [(group, group * 1_000_000 + value) for group, size in enumerate(sizes) for value in range(size)]
    frame = session.createDataFrame(rows, "size int, value bigint")
    found = frame.groupBy("size").agg(
        sf.approx_count_distinct("value").alias("wanted"), sf.collect_list(sf.xxhash64("value")).alias("hashes")
    )
    sketch = accumulator(accumulated(call("approx_count_distinct", "value"), "n", ""), [], _bias())
    for row in found.collect():
        state = sketch.initial()
        for value in row["hashes"]:
            state = sketch.add(state, (value,))
        assert sketch.result(state) == row["wanted"], sizes[row["size"]]


def _bias() -> Bias:
    return bias_for([accumulated(call("approx_count_distinct", "value"), "n", "")])
