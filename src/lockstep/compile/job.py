"""A whole job as one DataFrame: all sinks of a stage leave as one tagged union, through one action per epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from lockstep.compile.determinism import check_plan
from lockstep.compile.digests import HASHES, hash_columns
from lockstep.compile.explain import explained
from lockstep.compile.hidden import Hidden, hidden_of, step_expressions
from lockstep.compile.python_steps import DeadLetters
from lockstep.compile.steps import Context, Lowered, lower
from lockstep.plan.graph import Graph
from lockstep.plan.schema import parse_schema
from lockstep.plan.steps import Aggregate, Sink, Source, Step, upstream
from lockstep.store.arrow import arrow_schema

SINK = "__sink"


@dataclass(frozen=True)
class SinkPart:
    """One sink of the union: its number, the struct column that holds its rows, and their schema."""

    step: Sink
    number: int
    schema: pa.Schema

    @property
    def column(self) -> str:
        """The struct column that holds this sink's rows, null in the rows of the others."""
        return rows_column(self.number)


def rows_column(number: int) -> str:
    """The name of the struct column of the sink with this number.

    >>> rows_column(0)
    '__rows_0'
    """
    return f"__rows_{number}"


@dataclass(frozen=True)
class Compiled:
    """What a replica runs: the union, its sinks in the order of publishing, and Spark's output mode."""

    frame: DataFrame
    sinks: tuple[SinkPart, ...]
    output_mode: str
    event_times: tuple[str, ...]


def compile_job(
    graph: Graph,
    source_frame: Callable[[Source, Hidden], DataFrame],
    dead_letters: DeadLetters | None = None,
    on_lowered: Callable[[Step, DataFrame], None] | None = None,
) -> Compiled:
    """Lower every step, check it for determinism, and unite the sinks; ``on_lowered`` is shown each step's frame."""
    context = Context(source_frame, hidden_of(graph), dead_letters)
    lowered: dict[str, Lowered] = {}
    for step in graph.steps:
        inputs = tuple(lowered[parent.id] for parent in step.inputs)
        try:
            lowered[step.id] = lower(step, inputs, context)
        except AnalysisException as error:
            columns = tuple(dict.fromkeys(name for given in inputs for name in given.columns))
            raise explained(error, step.id, columns) from None
        if step_expressions(step):
            check_plan(lowered[step.id].frame, step.id, exact_floats=_adds_exactly(step))
        if on_lowered is not None:
            on_lowered(step, lowered[step.id].frame)
    return _united(graph, lowered)


def _adds_exactly(step: Step) -> bool:
    """Whether no aggregation up to ``step`` opted out: Spark's plan of a step holds all that came before it."""
    return all(one.exact_floats for one in upstream(step) if isinstance(one, Aggregate))


def _united(graph: Graph, lowered: dict[str, Lowered]) -> Compiled:
    frames = [lowered[sink.id].frame for sink in graph.sinks]
    schemas = [frame.schema for frame in frames]
    branches = [
        _branch(frame, sink, number, schemas)
        for number, (sink, frame) in enumerate(zip(graph.sinks, frames, strict=True))
    ]
    parts = tuple(
        SinkPart(sink, number, _arrow(schema))
        for number, (sink, schema) in enumerate(zip(graph.sinks, schemas, strict=True))
    )
    event_times = tuple(step.id for step in graph.event_times)
    return Compiled(reduce(DataFrame.union, branches), parts, graph.output_mode, event_times)


def _branch(frame: DataFrame, sink: Sink, number: int, schemas: list[StructType]) -> DataFrame:
    rows = []
    for other, schema in enumerate(schemas):
        if other == number:
            rows.append(sf.struct(*(sf.col(f"`{name}`") for name in frame.columns)).alias(rows_column(other)))
        else:
            rows.append(sf.lit(None).cast(schema).alias(rows_column(other)))
    hashes = hash_columns(frame.schema, sink.id)
    return frame.select(sf.lit(number).alias(SINK), *hashes, *rows)


def _arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema of a sink's rows, by way of our own types so that files look the same in every release."""
    return arrow_schema(parse_schema(", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema.fields)))


__all__ = ["HASHES", "SINK", "Compiled", "SinkPart", "compile_job"]
