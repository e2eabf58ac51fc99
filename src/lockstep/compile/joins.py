"""Joins as Spark does them (two streams by time, a stream with a table), and co-groups, which are keyed steps."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lockstep.clock import US_PER_S
from lockstep.compile.hidden_columns import EVENT_TIME, MARK, TYPES
from lockstep.compile.keyed import _keyed, operator_of
from lockstep.compile.order import order_of
from lockstep.compile.steps import Context, Lowered, _column, _lower
from lockstep.connect.protocols import ORDER
from lockstep.connect.tables import Table
from lockstep.keyed.cogroup import CoGroupOperator
from lockstep.keyed.operator import Operator
from lockstep.keyed.windows.assigners import Regular
from lockstep.plan.joins import CoGroup, IntervalJoin, Joined, JoinWindow, Side, TableJoin, WindowJoin, check_key_types
from lockstep.plan.steps import WINDOW_COLUMNS
from lockstep.plan.windows import Sliding
from lockstep.store.arrow import arrow_schema

_SPARKS_NAMES = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}
_SIDES: tuple[Side, Side] = ("left", "right")
_MATCHED = "__matched"
_MILLISECOND_US = 1_000
_BROADCAST_BYTES_MAX = 64 << 20
"""A table up to this size on disk is sent whole to every task; a larger one is for Spark to decide."""


@_lower.register
def _interval_join(step: IntervalJoin, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    """Keys equal, and the right time within the bounds."""
    _check_types(step, inputs[0].frame, inputs[1].frame)
    keeping = id(step) in context.keeping
    left, right = _with_time(inputs[0], "left", keeping=keeping), _with_time(inputs[1], "right", keeping=keeping)
    left_time, right_time = sf.col(_time("left")), sf.col(_time("right"))
    condition = _keys_equal(step) & _in_time(step, left_time, right_time) & _lasting(step, left_time, right_time)
    frame = left.join(right, condition, _SPARKS_NAMES[step.how])
    # Without a partner one of the two is null, and greatest passes over it.
    at = (sf.greatest(left_time, right_time) - _interval(1)).alias(EVENT_TIME)
    return _result(step, frame, [], at, keeping=keeping)


def _in_time(step: IntervalJoin, left_time: SparkColumn, right_time: SparkColumn) -> SparkColumn:
    """Whether the bounds hold, on integers: it is asked for every pair of records of a key.

    A timestamp plus an interval goes through the calendar for each pair, with objects on the way. And Spark must not
    take this condition for one that tells how long to keep records, as it would with a comparison (it does not
    understand ``unix_micros``, and says so in the log of every epoch): so, a span that the bounds leave as it is.
    """
    span_us = sf.unix_micros(right_time) - sf.unix_micros(left_time)
    return sf.least(sf.greatest(span_us, sf.lit(step.lower_us)), sf.lit(step.upper_us)) == span_us


def _lasting(step: IntervalJoin, left_time: SparkColumn, right_time: SparkColumn) -> SparkColumn:
    """What Spark reads to find out how long to keep a record; it holds wherever :func:`_in_time` does.

    Spark understands comparisons of timestamps, plus intervals or casts to numbers plus seconds; two casts cost next to
    nothing. Numbers of seconds are not exact to the microsecond, so the bounds are a millisecond wider: as long as
    Spark keeps records beyond a bound that is included.
    """
    left_s, right_s = left_time.cast("double"), right_time.cast("double")
    earliest_s, latest_s = (step.lower_us - _MILLISECOND_US) / US_PER_S, (step.upper_us + _MILLISECOND_US) / US_PER_S
    return (right_s > left_s + sf.lit(earliest_s)) & (right_s < left_s + sf.lit(latest_s))


def _with_time(given: Lowered, side: Side, *, keeping: bool) -> DataFrame:
    """One side under names of its own, with its event time a microsecond later.

    Spark drops a record whose time is at or before the watermark, but one that is exactly as late as allowed is in
    time. A microsecond on both sides mends that: the watermark is in milliseconds. Spark knows the column by its
    metadata, which an expression loses.
    """
    metadata = given.frame.schema[EVENT_TIME].metadata
    assert metadata, "a stream with an event time has a watermark"
    time = (sf.col(EVENT_TIME) + _interval(1)).alias(_time(side), metadata=metadata)
    # A record without a time could neither match nor ever be forgotten.
    order = _order(given, side, keeping=keeping)
    return given.records.filter(sf.col(EVENT_TIME).isNotNull()).select(*_renamed(given, side), *order, time)


@_lower.register
def _window_join(step: WindowJoin, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    """Keys equal and the window too: Spark forgets a window's records when it closes."""
    _check_types(step, inputs[0].frame, inputs[1].frame)
    keeping = id(step) in context.keeping
    left, right = (
        _with_window(given, side, step.window, keeping=keeping) for given, side in zip(inputs, _SIDES, strict=True)
    )
    same = _keys_equal(step) & (sf.col(_window("left")) == sf.col(_window("right")))
    frame = left.join(right, same, _SPARKS_NAMES[step.how])
    window = sf.coalesce(sf.col(_window("left")), sf.col(_window("right")))
    bounds = [window.getField(part).alias(name) for part, name in zip(("start", "end"), WINDOW_COLUMNS, strict=True)]
    at = (window.getField("end") - _interval(1)).alias(EVENT_TIME)
    return _result(step, frame, bounds, at, keeping=keeping)


def _with_window(given: Lowered, side: Side, window: JoinWindow, *, keeping: bool) -> DataFrame:
    """One side under names of its own, and its window in the place of its event time: Spark wants one of the two."""
    every_us = window.every_us if isinstance(window, Sliding) else window.size_us
    sizes = [f"{us} microseconds" for us in (window.size_us, every_us, window.offset_us)]
    order = _order(given, side, keeping=keeping)
    return given.records.select(*_renamed(given, side), *order, sf.window(EVENT_TIME, *sizes).alias(_window(side)))


def _order(given: Lowered, side: Side, *, keeping: bool) -> list[SparkColumn]:
    """What orders the records of one side, where a keyed sink has to know which of two results is the newer."""
    return [order_of(given).alias(f"{ORDER}_{side}")] if keeping else []


@_lower.register
def _table_join(step: TableJoin, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    """Every record with the table's rows of its key. Mark rows have no key and must come through all the same."""
    (given,) = inputs
    table, small = _table(step, given.frame.sparkSession)
    _check_types(step, given.frame, table)
    rows = table.select(
        *(sf.col(f"`{name}`").alias(_name("right", name, quoted=False)) for name in table.columns),
        sf.lit(True).alias(_MATCHED),
    )
    rows = sf.broadcast(rows) if small else rows
    stream = given.frame.select(*_renamed(given, "left"), *(sf.col(f"`{name}`") for name in given.hidden_names))
    inner = step.how == "inner" and not given.marked
    frame = stream.join(rows, _keys_equal(step), "inner" if inner else "left_outer")
    if step.how == "inner" and given.marked:
        frame = frame.filter(sf.col(_MATCHED).isNotNull() | sf.col(MARK).isNotNull())
    hidden = [sf.col(f"`{name}`") for name in given.hidden_names]
    return Lowered(frame.select(*_visible(step), *hidden), step.columns, given.hidden)


@_lower.register
def _co_group(step: CoGroup, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    """As every keyed step; but a key is found by its hash, which depends on its type."""
    kinds = [
        [
            (name, given.frame.select(_column(key, given, step)).schema.fields[0].dataType.simpleString())
            for name, key in keys or ()
        ]
        for given, keys in zip(inputs, step.keys, strict=True)
    ]
    for left, right in zip(*kinds, strict=True):
        check_key_types(step.where, left, right, exactly=True)
    return _keyed(step, inputs, context)


@operator_of.register
def _co_group_operator(step: CoGroup, inputs: tuple[pa.Schema, ...]) -> Operator:
    window = step.window
    every_us = window.every_us if isinstance(window, Sliding) else window.size_us
    left, right = (tuple(schema.names) for schema in inputs)
    return CoGroupOperator(
        step=step.id,
        function=step.function,
        schema=arrow_schema(step.schema),
        windows=Regular(window.size_us, every_us, window.offset_us),
        key_names=step.key_names,
        columns=(left, right),
    )


def _table(step: TableJoin, session: SparkSession) -> tuple[DataFrame, bool]:
    """The table's rows as they were copied, and whether there are few enough to send them whole to every task."""
    assert isinstance(step.table, Table), "there is one kind of table"
    file = step.table.copied_rows
    rows = session.read.schema(StructType.fromDDL(step.table.schema.ddl())).parquet(str(file))
    return rows, file.stat().st_size <= _BROADCAST_BYTES_MAX


def _result(
    step: IntervalJoin | WindowJoin, frame: DataFrame, bounds: list[SparkColumn], at: SparkColumn, *, keeping: bool
) -> Lowered:
    """Of results of one time the one with the newer record is the newer; then the other record decides."""
    keys, rest = _visible(step)[: len(step.on)], _visible(step)[len(step.on) :]
    hidden, order = [(EVENT_TIME, "timestamp")], []
    if keeping:
        both = [sf.coalesce(sf.col(f"{ORDER}_{side}"), sf.lit("")) for side in _SIDES]
        order = [sf.concat(sf.greatest(*both), sf.lit(" "), sf.least(*both)).alias(ORDER)]
        hidden.append((ORDER, TYPES[ORDER]))
    return Lowered(frame.select(*keys, *bounds, *rest, at, *order), step.columns, tuple(hidden))


def _visible(step: IntervalJoin | WindowJoin | TableJoin) -> list[SparkColumn]:
    """The keys from whichever side has them, then the other columns."""
    keys = []
    for left, right in step.on:
        both = {"left": sf.col(_name("left", left)), "right": sf.col(_name("right", right))}
        key = sf.coalesce(both["left"], both["right"]) if step.how == "full" else both.get(step.how, both["left"])
        keys.append(key.alias(left))
    return [*keys, *(_joined(one) for one in step.joined)]


def _joined(one: Joined) -> SparkColumn:
    return sf.col(_name(one.side, one.column)).alias(one.name)


def _renamed(given: Lowered, side: Side) -> list[SparkColumn]:
    return [sf.col(f"`{name}`").alias(_name(side, name, quoted=False)) for name in given.columns]


def _name(side: Side, column: str, *, quoted: bool = True) -> str:
    name = f"__{side}_{column}"
    return f"`{name}`" if quoted else name


def _time(side: Side) -> str:
    return f"__time_{side}"


def _window(side: Side) -> str:
    return f"__window_{side}"


def _keys_equal(step: IntervalJoin | WindowJoin | TableJoin) -> SparkColumn:
    equal = [sf.col(_name("left", left)) == sf.col(_name("right", right)) for left, right in step.on]
    if step.how == "full":
        # Spark's full outer join of streams takes null for equal to null, unlike all its others. So keys with a null
        # get one more part, which differs between the sides.
        nulls = [
            reduce(or_, (sf.col(_name(side, pair[number])).isNull() for pair in step.on)).cast("int")
            for number, side in enumerate(_SIDES)
        ]
        equal.append(nulls[0] == -nulls[1])
    return reduce(and_, equal)


def _interval(us: int) -> SparkColumn:
    return sf.expr(f"INTERVAL {us} MICROSECONDS")


def _check_types(step: IntervalJoin | WindowJoin | TableJoin, left: DataFrame, right: DataFrame) -> None:
    types = [{field.name: field.dataType.simpleString() for field in frame.schema.fields} for frame in (left, right)]
    for left_name, right_name in step.on:
        check_key_types(step.where, (left_name, types[0][left_name]), (right_name, types[1][right_name]))
