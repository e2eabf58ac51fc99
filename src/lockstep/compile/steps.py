"""One ``lower`` per kind of step. A step that is not here cannot run: a test walks all step classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lockstep.compile.aggregates import order_free
from lockstep.compile.expressions import to_column
from lockstep.compile.hidden_columns import (
    CHANGE,
    EPOCH_TIME,
    EVENT_TIME,
    MARK,
    OFFSET,
    PART,
    PARTITION_NUMBER,
    TYPES,
    WATERMARK,
    Hidden,
    arrow_hidden,
    ddl_with_hidden,
    mark_of,
    wants_epoch_time,
    wants_sign,
)
from lockstep.compile.order import order_of
from lockstep.compile.partition_times import newest_by_partition, watched_by_marks
from lockstep.compile.python_steps import DeadLetters, Kind, PythonStep, PythonSteps
from lockstep.compile.stages import handed_on, loop_schema, sent_back, taken_up
from lockstep.compile.tasks import together
from lockstep.compile.type_clashes import check_comparisons, check_same_types
from lockstep.connect.protocols import CHANGED, ORDER
from lockstep.errors import ExpressionError
from lockstep.plan.accumulated import as_call
from lockstep.plan.event_times import goes_by_partition
from lockstep.plan.expression import Expression
from lockstep.plan.keyed import BUCKETS_AT_FIRST
from lockstep.plan.loops import ROUND, LoopEnd, LoopHead, loop_journal
from lockstep.plan.stages import StageSink, takes_back
from lockstep.plan.steps import (
    Aggregate,
    Drop,
    EventTime,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Rename,
    Select,
    Sink,
    Source,
    Step,
    Union,
    WithColumns,
)
from lockstep.plan.windows import Session, Sliding, Window, is_native
from lockstep.store.arrow import arrow_schema

OBSERVED_TIME = "time_us"


@dataclass(frozen=True)
class Functions:
    """Python steps that run one after the other in one worker, the frame they read and the one they make."""

    steps: tuple[PythonStep, ...]
    read: DataFrame
    made: DataFrame


@dataclass(frozen=True)
class Lowered:
    """A step as a DataFrame: the user's columns first, then these hidden ones."""

    frame: DataFrame
    columns: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...] = ()
    sides: Mapping[str, Lowered] = field(default_factory=dict)
    """The side outputs of a keyed step, by name."""
    functions: Functions | None = None
    """The Python steps that made the frame, or one that it was made of: a Python step right after joins them."""

    @property
    def hidden_names(self) -> tuple[str, ...]:
        """The names of the hidden columns there are."""
        return tuple(name for name, _ in self.hidden)

    @property
    def marked(self) -> bool:
        """Whether mark rows still travel with the records: until event_time has used them, or the last keyed step."""
        return MARK in self.hidden_names

    @property
    def records(self) -> DataFrame:
        """The frame without mark rows: what a native step with state, and a sink, reads."""
        return self.frame.filter(sf.col(MARK).isNull()) if self.marked else self.frame


@dataclass(frozen=True)
class Context:
    """What lowering needs from outside."""

    source_frame: Callable[[Source, Hidden], DataFrame]
    hidden: dict[str, Hidden]
    dead_letters: DeadLetters | None = None
    written: dict[str, StructType] = field(default_factory=dict)
    """The schemas of the journals inside the job, by name."""
    output_mode: str = "append"
    """Of the query that is being made."""
    one_task: bool = False
    """Whether nothing is computed side by side."""
    ordered: frozenset[str] = frozenset()
    """The sinks that take their rows in order."""
    above_ordered: frozenset[int] = frozenset()
    """The ids of the steps whose results reach such a sink in this query."""
    origins_wanted: frozenset[int] = frozenset()
    """The ids of the steps after which another one asks which record each row was made from."""
    buckets: int = BUCKETS_AT_FIRST
    """Into how many parts the keys of a keyed step are divided."""
    keeping: frozenset[int] = frozenset()
    """The ids of the steps that keep the newest position of what they put together."""


def lower(step: Step, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    """The DataFrame of ``step`` over its lowered inputs."""
    return _lower(step, inputs, context)


@singledispatch
def _lower(step: Step, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    raise AssertionError(f"no lowering for {type(step).__name__}")


def lowered_kinds() -> frozenset[type]:
    """The step classes that have a lowering."""
    return frozenset(_lower.registry) - {object, Step}


@_lower.register
def _source(step: Source, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    hidden = context.hidden[step.id]
    return Lowered(
        together(context.source_frame(step, hidden), one_task=context.one_task), step.columns, hidden.columns
    )


@_lower.register
def _filter(step: Filter, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    check_comparisons(step.condition, given.frame, step.id)
    condition = _column(step.condition, given, step)
    if given.marked:
        condition = sf.col(MARK).isNotNull() | condition
    return replace(given, frame=given.frame.filter(condition))


@_lower.register
def _select(step: Select, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    return _project(given, step, dict(step.selection))


@_lower.register
def _with_columns(step: WithColumns, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    kept: dict[str, Expression | None] = dict.fromkeys(given.columns)
    return _project(given, step, {**kept, **dict(step.additions)})


@_lower.register
def _drop(step: Drop, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    return _project(given, step, dict.fromkeys(step.columns))


@_lower.register
def _rename(step: Rename, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    new = dict(step.renames)
    visible = [sf.col(f"`{name}`").alias(new.get(name, name)) for name in given.columns]
    return replace(given, frame=given.frame.select(*visible, *_hidden(given)), columns=step.columns)


def _project(given: Lowered, step: Step, wanted: dict[str, Expression | None]) -> Lowered:
    """The wanted columns (None: as it is) and the hidden ones; expressions are not evaluated on mark rows."""
    visible: list[SparkColumn] = []
    for name, expression in wanted.items():
        if expression is None:
            visible.append(sf.col(f"`{name}`"))
            continue
        check_comparisons(expression, given.frame, step.id)
        column = _column(expression, given, step)
        visible.append((sf.when(sf.col(MARK).isNull(), column) if given.marked else column).alias(name))
    return replace(given, frame=given.frame.select(*visible, *_hidden(given)), columns=tuple(wanted))


@_lower.register
def _union(step: Union, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    check_same_types(step, tuple(given.frame.schema for given in inputs))
    united = _united(inputs, step.columns)
    return replace(united, frame=together(united.frame, one_task=context.one_task))


def _united(inputs: tuple[Lowered, ...], columns: tuple[str, ...]) -> Lowered:
    names = {name: kind for given in inputs for name, kind in given.hidden}
    parts = [_padded(given, columns, names) for given in inputs]
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.union(part)
    return Lowered(frame, columns, tuple(names.items()))


def _padded(given: Lowered, columns: tuple[str, ...], hidden: dict[str, str]) -> DataFrame:
    visible = [sf.col(f"`{name}`") for name in columns]
    padding = [
        sf.col(f"`{name}`") if name in given.hidden_names else sf.lit(None).cast(kind).alias(name)
        for name, kind in hidden.items()
    ]
    return given.frame.select(*visible, *padding)


@_lower.register
def _event_time(step: EventTime, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    """Give records their event time, tell Spark the watermark, and let the mark rows end here.

    They go on, with the watermark in them, if a keyed step follows: it has no other way to know how far time has come.

    The filter that drops the mark rows has to stay above the watermark node, or the marks would never be counted; the
    session excludes the optimizer's two rules that would push it below (a test reads the optimized plan).
    """
    (given,) = inputs
    time = _column(step.time, given, step).cast("timestamp")
    mark = sf.coalesce(sf.col(f"`{mark_of(step.id)}`"), sf.timestamp_micros(sf.lit(0)))
    timed = given.frame.withColumn(EVENT_TIME, sf.when(sf.col(MARK).isNotNull(), mark).otherwise(time))
    newest = sf.max(sf.when(sf.col(MARK).isNull(), sf.unix_micros(sf.col(EVENT_TIME)))).alias(OBSERVED_TIME)
    delay_ms = step.out_of_order_us // 1000
    if goes_by_partition(step):
        watched = watched_by_marks(timed.observe(step.id, newest, *newest_by_partition()), mark, delay_ms)
    else:
        watched = timed.observe(step.id, newest).withWatermark(EVENT_TIME, f"{delay_ms} milliseconds")
    if WATERMARK in given.hidden_names:
        frame, gone = watched.withColumn(WATERMARK, _watermark(step)), f"{MARK}_"
    else:
        frame, gone = watched.filter(sf.col(MARK).isNull()), MARK
    hidden = tuple(one for one in given.hidden if not one[0].startswith(gone) and one[0] != PARTITION_NUMBER)
    hidden = (*hidden, (EVENT_TIME, "timestamp"))
    visible = [sf.col(f"`{name}`") for name in (*given.columns, *(name for name, _ in hidden))]
    return Lowered(frame.select(*visible), given.columns, hidden)


def _watermark(step: EventTime) -> SparkColumn:
    """What Spark's own watermark is in this epoch, in mark rows: Spark counts in milliseconds."""
    mark_ms = sf.unix_millis(sf.col(f"`{mark_of(step.id)}`"))
    return sf.when(sf.col(MARK).isNotNull(), sf.timestamp_millis(mark_ms - step.out_of_order_us // 1000))


@_lower.register
def _aggregate(step: Aggregate, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    records = given.records
    keys = [_column(expression, given, step).alias(name) for name, expression in step.keys]
    window = [_window(step.window)] if step.window is not None else []
    if isinstance(step.window, Session) and not keys:
        # Spark wants a key beside a session. A literal would be optimized away before it looks.
        keys = [sf.unix_micros(sf.col(EVENT_TIME)).bitwiseAND(sf.lit(0)).alias("__one")]
    rewrite = order_free(records, step.id, exact_floats=step.exact_floats)
    for _, expression in step.aggregates:
        check_comparisons(expression, records, step.id)
    values = [to_column(as_call(value), rewrite, step=step.id).alias(name) for name, value in step.aggregates]
    newest = [sf.max(order_of(given)).alias(ORDER)] if id(step) in context.keeping else []
    grouped = records.groupBy(*keys, *window).agg(*values, *newest)
    bounds = [sf.col("__window.start").alias("window_start"), sf.col("__window.end").alias("window_end")]
    names = [sf.col(f"`{name}`") for name, _ in step.keys]
    results = [sf.col(f"`{name}`") for name, _ in step.aggregates]
    order = ((ORDER, TYPES[ORDER]),) if newest else ()
    results += [sf.col(name) for name, _ in order]
    if not window:
        return Lowered(grouped.select(*names, *results), step.columns, order)
    # The time of a result is the last instant of its window, should a later stage ask for it.
    time = sf.timestamp_micros(sf.unix_micros(sf.col("__window.end")) - 1).alias(EVENT_TIME)
    hidden = (*order, (EVENT_TIME, "timestamp"))
    return Lowered(grouped.select(*names, *bounds, *results, time), step.columns, hidden)


def _window(window: Window) -> SparkColumn:
    assert is_native(window)
    if isinstance(window, Session):
        return sf.session_window(EVENT_TIME, _spark(window.gap_us)).alias("__window")
    every_us = window.every_us if isinstance(window, Sliding) else window.size_us
    return sf.window(EVENT_TIME, *map(_spark, (window.size_us, every_us, window.offset_us))).alias("__window")


def _spark(us: int) -> str:
    return f"{us} microseconds"


@_lower.register
def _map(step: Map, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    return _python(step, "map", inputs[0], context)


@_lower.register
def _flat_map(step: FlatMap, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    return _python(step, "flat_map", inputs[0], context)


@_lower.register
def _map_batches(step: MapBatches, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    return _python(step, "map_batches", inputs[0], context)


def _python(step: Map | FlatMap | MapBatches, kind: Kind, given: Lowered, context: Context) -> Lowered:
    hidden = given.hidden
    if kind == "flat_map" and OFFSET in given.hidden_names and PART not in given.hidden_names:
        hidden = (*hidden, (PART, TYPES[PART]))
    runner = PythonStep(
        step=step.id,
        kind=kind,
        function=step.function,
        schema=arrow_schema(step.schema),
        hidden=arrow_hidden(hidden),
        on_error=step.on_error,
        dead_letters=context.dead_letters,
        origins_wanted=id(step) in context.origins_wanted,
    )
    made = StructType.fromDDL(ddl_with_hidden(step.schema.ddl(), hidden))
    # Spark knows the event-time column by its metadata, which a Python function would lose.
    for name in given.hidden_names:
        made[name].metadata = given.frame.schema[name].metadata
    joined = given.functions if given.functions and given.functions.made is given.frame else None
    read, runners = (joined.read, (*joined.steps, runner)) if joined else (given.frame, (runner,))
    frame = read.mapInArrow(PythonSteps(runners), made)
    return Lowered(frame, step.columns, hidden, functions=Functions(runners, read, frame))


@_lower.register
def _stage_sink(step: StageSink, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    return _ended(step, inputs[0], context, handed_on(step, inputs[0]))


@_lower.register
def _loop_end(step: LoopEnd, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    return _ended(step, inputs[0], context, sent_back(inputs[0], context.written[step.id]))


@_lower.register
def _loop_head(step: LoopHead, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    name = loop_journal(step)
    context.written[name] = loop_schema(step, given)
    again = taken_up(name, context.written[name], context, timed=EVENT_TIME in given.hidden_names)
    first = given.frame.withColumn(ROUND, sf.lit(0).cast("bigint"))
    return _united((replace(given, frame=first), again), step.columns)


@_lower.register
def _sink(step: Sink, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    """With a key it is told which rows are taken back, in a last column; without one it takes those that begin."""
    wanted = {name: sf.col(f"`{name}`") for name in step.columns}
    if takes_back(step):
        return _ended(step, inputs[0], context, {**wanted, CHANGED: sign_of(inputs[0])})
    return _ended(step, begun(inputs[0]), context, wanted)


def begun(given: Lowered) -> Lowered:
    """Of changes the rows that begin to hold, as records; records as they are."""
    if CHANGE not in given.hidden_names:
        return given
    frame = given.frame.filter(sign_of(given) > 0).drop(CHANGE)
    return replace(given, frame=frame, hidden=tuple(one for one in given.hidden if one[0] != CHANGE))


def _ended(step: Sink, given: Lowered, context: Context, wanted: Mapping[str, SparkColumn]) -> Lowered:
    """What a sink takes: the wanted columns of the records, and what orders them if it asks for it."""
    order = [order_of(given).alias(ORDER)] if step.id in context.ordered else []
    visible = [column.alias(name) for name, column in wanted.items()]
    hidden = ((ORDER, TYPES[ORDER]),) if order else ()
    return Lowered(given.records.select(*visible, *order), tuple(wanted), hidden)


def sign_of(given: Lowered) -> SparkColumn:
    """1 for a row that begins to hold, as records and mark rows do; -1 for one that is taken back."""
    return sf.coalesce(sf.col(CHANGE), sf.lit(1)) if CHANGE in given.hidden_names else sf.lit(1)


def _hidden(given: Lowered) -> list[SparkColumn]:
    return [sf.col(f"`{name}`") for name in given.hidden_names]


def _column(expression: Expression, given: Lowered, step: Step) -> SparkColumn:
    if EPOCH_TIME not in given.hidden_names and wants_epoch_time(expression):
        raise ExpressionError(
            "LS0207",
            f'step "{step.id}" uses epoch_time() after an aggregation',
            why="an aggregated row belongs to many epochs, so there is no one epoch time to give it.",
            hint="take it before: .with_columns(seen=ls.epoch_time()), then aggregate, e.g. last=F.max('seen').",
        )
    if wants_sign(expression):
        return sign_of(given)
    return to_column(expression, step=step.id)
