"""A job as DataFrames, one for each stage: all its sinks leave as one tagged union, through one action per epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lockstep.compile.determinism import check_plan
from lockstep.compile.digests import HASHES, hash_columns
from lockstep.compile.explain import explained
from lockstep.compile.hidden_columns import Hidden, hidden_of, ordered_sinks, origins_wanted, step_expressions
from lockstep.compile.order import as_text
from lockstep.compile.python_steps import DeadLetters
from lockstep.compile.registry import FAMILIES
from lockstep.compile.stages import spark_schema_text, taken_up
from lockstep.compile.steps import Context, Lowered, lower
from lockstep.errors import ExpressionError
from lockstep.plan.graph import Graph
from lockstep.plan.newest_rows import keeps_positions
from lockstep.plan.schema import STAGE_TIME, parse_schema
from lockstep.plan.specs import StageSource
from lockstep.plan.stages import Stage, StageSink, stage_journal
from lockstep.plan.steps import Aggregate, EventTime, Sink, Source, Step, upstream
from lockstep.store.arrow import arrow_schema

BRANCH = "__branch"

SourceFrame = Callable[[Source, Hidden, int], DataFrame]
"""The DataFrame of a source with these hidden columns, for the stage with this number."""


@dataclass(frozen=True)
class SinkPart:
    """One sink of the union: the branch that its rows are in, and their schema."""

    step: Sink
    branch: int
    """Its number; sinks that take the same rows share one."""
    schema: pa.Schema
    ordered: bool = False
    """Whether the branch's rows have, after their columns, what orders them."""


def rows_column(branch: int) -> str:
    """The name of the struct column of the branch with this number, null in the rows of the others.

    >>> rows_column(0)
    '__rows_0'
    """
    return f"__rows_{branch}"


@dataclass(frozen=True)
class Compiled:
    """What a replica runs for one stage: the union, its sinks in the order of publishing, and Spark's output mode."""

    stage: Stage
    frame: DataFrame
    sinks: tuple[SinkPart, ...]
    event_times: tuple[str, ...]
    journals: tuple[Source, ...]
    """The journals inside the job that it reads: those of earlier stages, and of its loops."""
    partitions: int | None = None
    """In how many partitions it keeps its state, where that is not the session's number."""

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The union's columns as Arrow has them."""
        return to_arrow_schema(self.frame.schema, timezone="UTC")

    @property
    def output_mode(self) -> str:
        """How Spark gives its results."""
        return self.stage.output_mode


def compile_job(
    graph: Graph,
    source_frame: SourceFrame,
    dead_letters: DeadLetters | None = None,
    on_lowered: Callable[[Step, DataFrame], None] | None = None,
    *,
    one_task: bool = False,
) -> tuple[Compiled, ...]:
    """Each stage as one DataFrame: every step lowered and checked for determinism, the sinks united.

    ``on_lowered`` is shown each step's frame. ``one_task`` says that nothing is computed side by side.
    """
    assert FAMILIES, "every kind of step has registered its lowering"
    written: dict[str, StructType] = {}
    ordered = ordered_sinks(graph.stages)
    return tuple(
        _StageCompiler(
            stage, source_frame, dead_letters, on_lowered, written, ordered, one_task=one_task, buckets=graph.buckets
        ).compiled()
        for stage in graph.stages
    )


class _StageCompiler:
    """Compiles one stage. ``written`` collects the schemas of the journals inside the job, stage after stage."""

    def __init__(
        self,
        stage: Stage,
        source_frame: SourceFrame,
        dead_letters: DeadLetters | None,
        on_lowered: Callable[[Step, DataFrame], None] | None,
        written: dict[str, StructType],
        ordered: frozenset[str],
        *,
        one_task: bool,
        buckets: int,
    ) -> None:
        self._stage = stage
        self._journals: dict[str, Source] = {}
        above = [step for sink in stage.sinks if sink.id in ordered for step in stage.upstream(sink)]
        self._context = Context(
            source_frame=self._noting(source_frame),
            hidden=hidden_of(stage, ordered),
            dead_letters=dead_letters,
            written=written,
            output_mode=stage.output_mode,
            one_task=one_task,
            buckets=buckets,
            ordered=ordered,
            above_ordered=frozenset(map(id, above)),
            origins_wanted=frozenset(id(step) for step in stage.steps if origins_wanted(stage, step, ordered)),
            keeping=keeps_positions(stage),
        )
        self._on_lowered = on_lowered
        self._lowered: dict[int, Lowered] = {}
        self._taken_up: dict[tuple[str, bool], Lowered] = {}

    def compiled(self) -> Compiled:
        """The stage, lowered."""
        try:
            for step in self._stage.steps:
                self._lower(step)
        finally:
            # Also before an error of a later step: what is refused further up may be its cause.
            self._check_determinism()
        for sink in self._stage.sinks:
            if isinstance(sink, StageSink):
                self._context.written[sink.id] = _visible_schema(self._lowered[id(sink)])
        times = tuple(step.id for step in self._stage.event_times)
        frame, parts = self._united()
        return Compiled(self._stage, frame, parts, times, tuple(self._journals.values()))

    def _united(self) -> tuple[DataFrame, tuple[SinkPart, ...]]:
        branches = self._stage.branches
        # If one of the sinks that share a branch takes its rows in order, all of them get them so.
        ends = [max((self._lowered[id(sink)] for sink in sinks), key=lambda one: len(one.hidden)) for sinks in branches]
        schemas = [end.frame.schema for end in ends]
        tagged = [_branch(end, branches[number][0], number, schemas) for number, end in enumerate(ends)]
        number_of = {sink.id: number for number, sinks in enumerate(branches) for sink in sinks}
        parts = []
        for sink in self._stage.sinks:
            end = ends[number_of[sink.id]]
            parts.append(SinkPart(sink, number_of[sink.id], _arrow(_visible_schema(end)), bool(end.hidden)))
        return reduce(DataFrame.union, tagged), tuple(parts)

    def _lower(self, step: Step) -> None:
        inputs = tuple(self._input(step, before) for before in step.inputs)
        try:
            lowered = lower(step, inputs, self._context)
        except AnalysisException as error:
            columns = tuple(dict.fromkeys(name for given in inputs for name in given.columns))
            raise explained(error, step.id, columns) from None
        self._lowered[id(step)] = lowered
        if self._on_lowered is not None:
            self._on_lowered(step, lowered.frame)

    def _check_determinism(self) -> None:
        """Read the plans of the last steps only: each holds those of all steps before it.

        Where one is refused, the first step whose own plan is refused is to blame.
        """
        given = [step for step in self._stage.steps if step_expressions(step) and id(step) in self._lowered]
        held: set[int] = set()
        for step in reversed(given):
            if id(step) in held:
                continue
            exact = _adds_exactly(step)
            held |= {id(one) for one in self._stage.upstream(step) if _adds_exactly(one) == exact}
            try:
                check_plan(self._lowered[id(step)].frame, step.id, exact_floats=exact)
            except ExpressionError:
                for one in given:
                    check_plan(self._lowered[id(one)].frame, one.id, exact_floats=_adds_exactly(one))
                raise

    def _input(self, step: Step, before: Step) -> Lowered:
        if not self._stage.is_cut(step, before):
            return self._lowered[id(before)]
        name = stage_journal(before)
        timed = STAGE_TIME in self._context.written[name].names and not isinstance(step, EventTime)
        if (name, timed) not in self._taken_up:
            made = taken_up(name, self._context.written[name], self._context, timed=timed)
            self._taken_up[name, timed] = made
        return self._taken_up[name, timed]

    def _noting(self, source_frame: SourceFrame) -> Callable[[Source, Hidden], DataFrame]:
        """The same for this stage, keeping the sources that are journals inside the job."""

        def frame(source: Source, hidden: Hidden) -> DataFrame:
            if isinstance(source.spec, StageSource):
                self._journals[source.id] = source
            return source_frame(source, hidden, self._stage.number)

        return frame


def _adds_exactly(step: Step) -> bool:
    """Whether no aggregation up to ``step`` opted out: Spark's plan of a step holds all that came before it."""
    return all(one.exact_floats for one in upstream(step) if isinstance(one, Aggregate))


def _visible_schema(end: Lowered) -> StructType:
    return StructType(end.frame.schema.fields[: len(end.columns)])


def _branch(end: Lowered, sink: Sink, number: int, schemas: list[StructType]) -> DataFrame:
    hashes = hash_columns(_visible_schema(end), sink.id)
    # Rows of one position are ordered by what they say.
    order = [sf.concat(sf.col(name), as_text(hashes[0])).alias(name) for name in end.hidden_names]
    values = [*(sf.col(f"`{name}`") for name in end.columns), *order]
    rows = []
    for other, schema in enumerate(schemas):
        own = sf.struct(*values) if other == number else sf.lit(None)
        # Every field may be null, also one that never is in its own sink: Arrow refuses a null struct of such fields.
        rows.append(own.cast(StructType.fromDDL(spark_schema_text(schema))).alias(rows_column(other)))
    return end.frame.select(sf.lit(number).alias(BRANCH), *hashes, *rows)


def _arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema of a sink's rows, by way of our own types so that files look the same in every release."""
    return arrow_schema(parse_schema(spark_schema_text(schema)))


__all__ = ["BRANCH", "HASHES", "Compiled", "SinkPart", "compile_job"]
