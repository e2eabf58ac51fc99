"""The journals inside a job as DataFrames: what a stage hands on, what a later one takes up, and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from lockstep.compile.hidden_columns import CHANGE, EVENT_TIME, TYPES
from lockstep.connect.protocols import CHANGED
from lockstep.plan.expression import Column
from lockstep.plan.loops import ROUND, LoopHead
from lockstep.plan.schema import STAGE_TIME, Schema, parse_schema
from lockstep.plan.specs import StageSource
from lockstep.plan.stages import StageSink
from lockstep.plan.steps import EventTime, Source

if TYPE_CHECKING:
    from lockstep.compile.steps import Context, Lowered


def spark_schema_text(schema: StructType) -> str:
    """A Spark schema in our own words, for :func:`lockstep.plan.schema.parse_schema`."""
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def handed_on(step: StageSink, given: Lowered) -> dict[str, SparkColumn]:
    """What a stage writes: the columns, the event time if there is one, and of changes the sign."""
    beside = {STAGE_TIME: EVENT_TIME, CHANGED: CHANGE}
    kept = {name: sf.col(hidden) for name, hidden in beside.items() if hidden in given.hidden_names}
    return {**{name: sf.col(f"`{name}`") for name in step.columns}, **kept}


def sent_back(given: Lowered, written: StructType) -> dict[str, SparkColumn]:
    """What a loop's end writes: the head's columns in its types, one round later."""
    columns = {}
    for field in written.fields:
        value = sf.col(f"`{field.name}`")
        if field.name == ROUND:
            value = sf.col(ROUND) + sf.lit(1)
        elif field.name == STAGE_TIME:
            value = sf.col(EVENT_TIME) if EVENT_TIME in given.hidden_names else sf.lit(None)
        columns[field.name] = value.cast(field.dataType)
    return columns


def loop_schema(head: LoopHead, given: Lowered) -> StructType:
    """The schema of a loop's journal."""
    visible = [given.frame.schema[name] for name in head.input.columns]
    time = [StructField(STAGE_TIME, TimestampType())] if EVENT_TIME in given.hidden_names else []
    return StructType([*visible, StructField(ROUND, LongType()), *time])


def taken_up(name: str, written: StructType, context: Context, *, timed: bool) -> Lowered:
    """What a later stage reads; with ``timed``, records get the event time back that they had."""
    from lockstep.compile.steps import Lowered, lower

    schema = parse_schema(spark_schema_text(written))
    source = Source(name, StageSource(name, schema))
    hidden = context.hidden[name]
    lowered = Lowered(context.source_frame(source, hidden), schema.names, hidden.columns)
    if timed:
        lowered = lower(EventTime(name, source, Column(STAGE_TIME), 0, None), (lowered,), context)
    return _with_hidden(lowered, schema)


def _with_hidden(lowered: Lowered, schema: Schema) -> Lowered:
    """The event time is hidden already; a sign becomes so."""
    from lockstep.compile.steps import Lowered

    visible = tuple(name for name in schema.names if name not in (STAGE_TIME, CHANGED))
    columns = [sf.col(f"`{name}`") for name in (*visible, *lowered.hidden_names)]
    hidden = lowered.hidden
    if CHANGED in schema.names:
        columns, hidden = [*columns, sf.col(CHANGED).alias(CHANGE)], (*hidden, (CHANGE, TYPES[CHANGE]))
    return Lowered(lowered.frame.select(*columns), visible, hidden)
