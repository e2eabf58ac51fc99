"""One ``lower`` per kind of step. A step that is not here cannot run: a test walks all step classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lockstep.compile.aggregates import order_free
from lockstep.compile.expressions import to_column
from lockstep.compile.hidden import (
    EPOCH_TIME,
    EVENT_TIME,
    MARK,
    Hidden,
    arrow_hidden,
    ddl_with_hidden,
    mark_of,
    wants_epoch_time,
)
from lockstep.compile.python_steps import DeadLetters, Kind, PythonStep
from lockstep.compile.types import check_comparisons
from lockstep.durations import duration_text
from lockstep.errors import ExpressionError
from lockstep.plan.expression import Expression
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
from lockstep.plan.windows import Sliding, Tumbling
from lockstep.store.arrow import arrow_schema

OBSERVED_TIME = "time_us"


@dataclass(frozen=True)
class Lowered:
    """A step as a DataFrame: the user's columns first, then these hidden ones."""

    frame: DataFrame
    columns: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...] = ()

    @property
    def hidden_names(self) -> tuple[str, ...]:
        """The names of the hidden columns there are."""
        return tuple(name for name, _ in self.hidden)

    @property
    def marked(self) -> bool:
        """Whether mark rows still travel with the records (until the event_time step has used them)."""
        return MARK in self.hidden_names


@dataclass(frozen=True)
class Context:
    """What lowering needs from outside."""

    source_frame: Callable[[Source, Hidden], DataFrame]
    hidden: dict[str, Hidden]
    dead_letters: DeadLetters | None = None


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
    return Lowered(context.source_frame(step, hidden), step.columns, hidden.columns)


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
    names = {name: kind for given in inputs for name, kind in given.hidden}
    parts = [_padded(given, step.columns, names) for given in inputs]
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.union(part)
    return Lowered(frame, step.columns, tuple(names.items()))


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

    The filter that drops the mark rows has to stay above the watermark node, or the marks would never be counted; the
    session excludes the optimizer's two rules that would push it below (a test reads the optimized plan).
    """
    (given,) = inputs
    time = _column(step.time, given, step).cast("timestamp")
    mark = sf.coalesce(sf.col(f"`{mark_of(step.id)}`"), sf.timestamp_micros(sf.lit(0)))
    timed = given.frame.withColumn(EVENT_TIME, sf.when(sf.col(MARK).isNotNull(), mark).otherwise(time))
    newest = sf.max(sf.when(sf.col(MARK).isNull(), sf.unix_micros(sf.col(EVENT_TIME))))
    watched = timed.observe(step.id, newest.alias(OBSERVED_TIME)).withWatermark(
        EVENT_TIME, f"{step.out_of_order_us // 1000} milliseconds"
    )
    frame = watched.filter(sf.col(MARK).isNull())
    hidden = tuple(item for item in given.hidden if not item[0].startswith(MARK))
    hidden = (*hidden, (EVENT_TIME, "timestamp"))
    visible = [sf.col(f"`{name}`") for name in (*given.columns, *(name for name, _ in hidden))]
    return Lowered(frame.select(*visible), given.columns, hidden)


@_lower.register
def _aggregate(step: Aggregate, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    records = given.frame.filter(sf.col(MARK).isNull()) if given.marked else given.frame
    keys = [_column(expression, given, step).alias(name) for name, expression in step.keys]
    window = [_window(step.window)] if step.window is not None else []
    rewrite = order_free(records, step.id, exact_floats=step.exact_floats)
    for _, expression in step.aggregates:
        check_comparisons(expression, records, step.id)
    values = [to_column(expression, rewrite).alias(name) for name, expression in step.aggregates]
    grouped = records.groupBy(*keys, *window).agg(*values)
    bounds = [sf.col("__window.start").alias("window_start"), sf.col("__window.end").alias("window_end")]
    names = [sf.col(f"`{name}`") for name, _ in step.keys]
    results = [sf.col(f"`{name}`") for name, _ in step.aggregates]
    return Lowered(grouped.select(*names, *(bounds if window else []), *results), step.columns)


def _window(window: Tumbling | Sliding) -> SparkColumn:
    size = duration_text(window.size_us).replace(" us", " microseconds")
    if isinstance(window, Sliding):
        every = duration_text(window.every_us).replace(" us", " microseconds")
        return sf.window(EVENT_TIME, _spark(size), _spark(every)).alias("__window")
    return sf.window(EVENT_TIME, _spark(size)).alias("__window")


def _spark(duration: str) -> str:
    return duration.replace(" ms", " milliseconds")


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
    runner = PythonStep(
        step=step.id,
        kind=kind,
        function=step.function,
        schema=arrow_schema(step.schema),
        hidden=arrow_hidden(given.hidden),
        on_error=step.on_error,
        dead_letters=context.dead_letters,
    )
    made = StructType.fromDDL(ddl_with_hidden(step.schema.ddl(), given.hidden))
    # Spark knows the event-time column by its metadata, which a Python function would lose.
    for name in given.hidden_names:
        made[name].metadata = given.frame.schema[name].metadata
    return Lowered(given.frame.mapInArrow(runner, made), step.columns, given.hidden)


@_lower.register
def _sink(step: Sink, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    (given,) = inputs
    records = given.frame.filter(sf.col(MARK).isNull()) if given.marked else given.frame
    return Lowered(records.select(*(sf.col(f"`{name}`") for name in step.columns)), step.columns)


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
    return to_column(expression)
