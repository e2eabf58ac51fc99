"""The steps of a job: frozen data, and making one is checking it.

A new kind of step is a class here, a text in `draw.py`, a JSON form in `encode.py` and a lowering in `compile`; tests
walk all subclasses of :class:`Step` and fail where one is missing.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lockstep.errors import ExpressionError, PlanError
from lockstep.plan.columns import check_known, check_one_argument
from lockstep.plan.determinism import check_aggregate, check_scalar
from lockstep.plan.expression import Column, Expression
from lockstep.plan.schema import Field, Schema, check_names, unknown_column
from lockstep.plan.specs import Guarantee, SinkSpec, SourceSpec
from lockstep.plan.windows import Sliding, Tumbling, Window, is_native

Named = tuple[tuple[str, Expression], ...]
"""Expressions and the names of the columns they make, in order."""

OnError = Literal["fail", "skip"]
OutputMode = Literal["append", "update"]
"""How Spark gives results: each once when it is final, or again whenever it has changed."""

GUARANTEES: tuple[Guarantee, ...] = ("exactly-once", "at-least-once", "at-most-once")
WINDOW_COLUMNS = ("window_start", "window_end")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_creation = itertools.count()


def create_after(order: int) -> None:
    """Steps that are made from now on come after ``order``: this process goes on with steps that another one made."""
    global _creation
    _creation = itertools.count(max(order + 1, next(_creation)))


@dataclass(frozen=True, eq=False)
class Step:
    """One operator of a job's graph. ``order`` counts creations: sorting by it is a topological order."""

    stateful: ClassVar[bool]
    """Whether it keeps state between epochs, and so is part of the checkpoint's fingerprint."""
    runs_python: ClassVar[bool]
    """Whether it calls a Python function for its records."""
    keeps_times: ClassVar[bool] = True
    """Whether its records have event times if those before it have."""

    id: str
    order: int = field(init=False, repr=False, default_factory=lambda: next(_creation))

    def __post_init__(self) -> None:
        check_id(self.id, "step")
        self._check()

    def _check(self) -> None:
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The steps whose records come in."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that come out, in order."""
        raise NotImplementedError

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Every expression the step computes, in order."""
        return ()

    @property
    def schema_hint(self) -> Schema | None:
        """The types of the columns that come out where they are known without Spark, else None."""
        return None

    @property
    def output_mode(self) -> OutputMode | None:
        """Which of Spark's output modes its results need, None if any will do."""
        return None

    @property
    def where(self) -> str:
        """The step as errors name it."""
        return f'step "{self.id}"'


@dataclass(frozen=True, eq=False)
class _OneInput(Step):
    """A step with one input."""

    input: Step

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The one step before this."""
        return (self.input,)

    def _check_values(self, expressions: Sequence[Expression]) -> None:
        for expression in expressions:
            check_scalar(expression, self.where)
            check_known(expression, self.input.columns, self.id)

    def _check_names_known(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.input.columns:
                raise unknown_column(name, self.input.columns, self.where)


@dataclass(frozen=True, eq=False)
class _SameColumns(_OneInput):
    """A step that lets the columns through as they are."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the input."""
        return self.input.columns

    @property
    def schema_hint(self) -> Schema | None:
        """The types of the input."""
        return self.input.schema_hint


@dataclass(frozen=True, eq=False)
class Source(Step):
    """Where records come from; its id is the source's name in the ledger."""

    stateful = False
    runs_python = False
    spec: SourceSpec

    def _check(self) -> None:
        check_names(self.spec.schema.names, self.where)

    @property
    def inputs(self) -> tuple[Step, ...]:
        """None: it is a beginning."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the source's records."""
        return self.spec.schema.names

    @property
    def schema_hint(self) -> Schema | None:
        """The source's schema."""
        return self.spec.schema


@dataclass(frozen=True, eq=False)
class Filter(_SameColumns):
    """Keep the records for which a condition holds."""

    stateful = False
    runs_python = False
    condition: Expression

    def _check(self) -> None:
        self._check_values(self.expressions)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The condition."""
        return (self.condition,)


@dataclass(frozen=True, eq=False)
class Select(_OneInput):
    """Records made of these columns only."""

    stateful = False
    runs_python = False
    selection: Named

    def _check(self) -> None:
        _check_not_empty(self.selection, "select", self.where, '.select("user", total=F.col("a") + F.col("b"))')
        check_names(self.columns, self.where)
        self._check_values(self.expressions)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The selected values."""
        return tuple(value for _, value in self.selection)

    @property
    def columns(self) -> tuple[str, ...]:
        """The selected names."""
        return tuple(name for name, _ in self.selection)

    @property
    def schema_hint(self) -> Schema | None:
        """Known if only columns were selected."""
        before = self.input.schema_hint
        fields = []
        for name, expression in self.selection:
            if before is None or not isinstance(expression, Column) or expression.name not in before.names:
                return None
            fields.append(Field(name, before.type_of(expression.name)))
        return Schema(tuple(fields))


@dataclass(frozen=True, eq=False)
class WithColumns(_OneInput):
    """Records with columns added, or replaced where the name is there already; all read the input, not each other."""

    stateful = False
    runs_python = False
    additions: Named

    def _check(self) -> None:
        _check_not_empty(self.additions, "with_columns", self.where, '.with_columns(total=F.col("a") + F.col("b"))')
        check_names([name for name, _ in self.additions], self.where)
        check_names(self.columns, self.where)
        self._check_values(self.expressions)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The added values."""
        return tuple(value for _, value in self.additions)

    @property
    def columns(self) -> tuple[str, ...]:
        """The input's columns, then the new ones."""
        added = [name for name, _ in self.additions if name not in self.input.columns]
        return (*self.input.columns, *added)


@dataclass(frozen=True, eq=False)
class Drop(_OneInput):
    """Records without these columns."""

    stateful = False
    runs_python = False
    names: tuple[str, ...]

    def _check(self) -> None:
        _check_not_empty(self.names, "drop", self.where, '.drop("password")')
        self._check_names_known(self.names)
        if not self.columns:
            raise PlanError(
                "LS0132", f"{self.where} drops every column", why=f"the stream has: {', '.join(self.input.columns)}."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The input's columns but these."""
        return tuple(name for name in self.input.columns if name not in self.names)

    @property
    def schema_hint(self) -> Schema | None:
        """The types of what is left."""
        before = self.input.schema_hint
        return before and Schema(tuple(item for item in before.fields if item.name not in self.names))


@dataclass(frozen=True, eq=False)
class Rename(_OneInput):
    """Records with some columns under other names, in their old places."""

    stateful = False
    runs_python = False
    renames: tuple[tuple[str, str], ...]

    def _check(self) -> None:
        _check_not_empty(self.renames, "rename", self.where, '.rename(usr="user")')
        self._check_names_known([old for old, _ in self.renames])
        check_names(self.columns, self.where)

    @property
    def columns(self) -> tuple[str, ...]:
        """The input's columns under their new names."""
        new_names = dict(self.renames)
        return tuple(new_names.get(name, name) for name in self.input.columns)

    @property
    def schema_hint(self) -> Schema | None:
        """The input's types."""
        before = self.input.schema_hint
        if before is None:
            return None
        return Schema(tuple(Field(name, old.type) for name, old in zip(self.columns, before.fields, strict=True)))


@dataclass(frozen=True, eq=False)
class Union(Step):
    """The records of several streams in one, matched by column name."""

    stateful = False
    runs_python = False
    streams: tuple[Step, ...]

    def _check(self) -> None:
        if len(self.streams) < 2:
            raise PlanError("LS0132", f"{self.where} unites only one stream", hint=".union(another_stream)")
        for other in self.streams[1:]:
            self._check_same_columns(self.streams[0], other)
        self._check_event_times()

    def _check_same_columns(self, first: Step, other: Step) -> None:
        absent = [name for name in first.columns if name not in other.columns]
        extra = [name for name in other.columns if name not in first.columns]
        if not absent and not extra:
            return
        lines = [f'"{other.id}" lacks: {", ".join(absent)}.'] if absent else []
        lines += [f'"{first.id}" lacks: {", ".join(extra)}.'] if extra else []
        raise PlanError(
            "LS0110",
            f'{self.where} unites "{first.id}" and "{other.id}", which have different columns',
            why="\n".join(lines),
            hint=".select(...) the common columns, .rename(...) them, or add one with .with_columns(name=F.lit(None)).",
        )

    def _check_event_times(self) -> None:
        with_time = [stream.id for stream in self.streams if event_times_before(stream)]
        # After a step with state there may be no window to come: results of several kinds can go to one sink.
        if any(step.stateful for stream in self.streams for step in upstream(stream)):
            return
        if with_time and len(with_time) < len(self.streams):
            without = [stream.id for stream in self.streams if stream.id not in with_time]
            raise PlanError(
                "LS0119",
                f"{self.where} unites streams with and without an event time",
                why=f"with: {', '.join(with_time)}; without: {', '.join(without)}. Windows after it need one for all.",
                hint=".event_time(...) on each of them before the union, or once after it.",
            )

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The united steps."""
        return self.streams

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the first stream."""
        return self.streams[0].columns

    @property
    def schema_hint(self) -> Schema | None:
        """The first stream's types, if all of them are known to be the same."""
        first = self.streams[0].schema_hint
        for other in self.streams[1:]:
            if first is None or other.schema_hint is None or set(first.fields) != set(other.schema_hint.fields):
                return None
        return first


@dataclass(frozen=True, eq=False)
class EventTime(_SameColumns):
    """Say which time a record happened at, and how late records may come."""

    stateful = False
    runs_python = False
    time: Expression
    out_of_order_us: int
    idle_after_us: int | None

    def _check(self) -> None:
        self._check_values(self.expressions)
        if self.out_of_order_us < 0 or (self.idle_after_us is not None and self.idle_after_us < 0):
            raise PlanError("LS0111", f"{self.where} has a negative duration", hint='out_of_order="5 seconds"')
        before = event_times_before(self.input)
        # After a step with state the records are new ones, in a stage of their own.
        if before and not any(step.stateful for step in upstream(self.input)):
            raise PlanError(
                "LS0111",
                f"{self.where} is a second event time on the same path",
                why=f'"{before[0].id}" before it has declared one, and a record has one event time.',
                hint="keep one of them; the time it uses can be any expression over the record's columns.",
            )

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The time."""
        return (self.time,)


@dataclass(frozen=True, eq=False)
class Aggregate(_OneInput):
    """One record for each key (and window): updated in every epoch, or with a window once, when that closes."""

    stateful = True
    runs_python = False
    keys: Named
    window: Window | None
    aggregates: Named
    exact_floats: bool = True
    updates: bool = False
    """With a window: a record for each window and epoch that has changed it, instead of one when it closes."""

    def _check(self) -> None:
        _check_not_empty(self.aggregates, "agg", self.where, '.agg(n=F.count("*"))')
        self._check_place()
        check_names(self.columns, self.where)
        self._check_values([key for _, key in self.keys])
        plain_keys = [name for name, key in self.keys if isinstance(key, Column) and key.name == name]
        for name, expression in self.aggregates:
            check_aggregate(expression, plain_keys, f'"{name}" of {self.where}')
            check_known(expression, self.input.columns, self.id)

    def _check_place(self) -> None:
        assert self.window is None or is_native(self.window), "other windows are the WindowStep's"
        # Spark keeps a session's updates to itself: those are the WindowStep's too.
        assert not self.updates or isinstance(self.window, Tumbling | Sliding), "only these can be updated"
        if self.window is not None and not event_times_before(self.input):
            raise PlanError(
                "LS0112",
                f"{self.where} has a window but the stream has no event time",
                why="a window closes when event time has passed its end.",
                hint='.event_time("at", out_of_order="5 seconds") before .key_by(...).',
            )
        if self.window is None and not self.keys:
            raise PlanError(
                "LS0132", f"{self.where} has neither a key nor a window", hint='.key_by("user").agg(n=F.count("*"))'
            )

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The keys, then the aggregates."""
        return tuple(value for _, value in (*self.keys, *self.aggregates))

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys, then window_start and window_end if there are windows, then the aggregates."""
        window = WINDOW_COLUMNS if self.window is not None else ()
        return (*(name for name, _ in self.keys), *window, *(name for name, _ in self.aggregates))

    @property
    def output_mode(self) -> OutputMode | None:
        """Rolling results are updates, those of windows final unless updates are asked for."""
        return "update" if self.window is None or self.updates else "append"


@dataclass(frozen=True, eq=False)
class _PythonStep(_OneInput):
    """A step that calls the user's Python function."""

    example: ClassVar[str]

    function: Callable[..., Any]
    schema: Schema
    on_error: OnError = "fail"

    def _check(self) -> None:
        check_names(self.schema.names, self.where)
        _check_function(self)
        if self.on_error not in ("fail", "skip"):
            raise PlanError(
                "LS0131",
                f'{self.where} has on_error="{self.on_error}"',
                hint='"fail" stops the job, "skip" puts the record into the dead-letter journal and goes on.',
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the declared schema."""
        return self.schema.names

    @property
    def schema_hint(self) -> Schema | None:
        """The declared schema."""
        return self.schema


@dataclass(frozen=True, eq=False)
class Map(_PythonStep):
    """One record out for each record in."""

    stateful = False
    runs_python = True
    example: ClassVar[str] = '.map(lambda record: {"total": record["a"] + record["b"]}, schema="total bigint")'


@dataclass(frozen=True, eq=False)
class FlatMap(_PythonStep):
    """Any number of records out for each record in."""

    stateful = False
    runs_python = True
    example: ClassVar[str] = (
        '.flat_map(lambda record: [{"word": w} for w in record["text"].split()], schema="word string")'
    )


@dataclass(frozen=True, eq=False)
class MapBatches(_PythonStep):
    """A table out for each table of records in, as Arrow."""

    stateful = False
    runs_python = True
    example: ClassVar[str] = '.map_batches(lambda table: table.select(["user"]), schema="user string")'


@dataclass(frozen=True, eq=False)
class Sink(_SameColumns):
    """Where an output goes, and what is wished for there."""

    stateful = False
    runs_python = False
    spec: SinkSpec
    guarantee: Guarantee

    @property
    def given(self) -> Guarantee:
        """What is promised: a sink with a fence is exactly-once whatever was wished for, since that costs no more."""
        return "exactly-once" if self.spec.guarantee == "exactly-once" else self.guarantee

    def _check(self) -> None:
        if self.guarantee not in GUARANTEES:
            raise PlanError(
                "LS0118",
                f'"{self.guarantee}" is not a guarantee',
                hint='guarantee= is "exactly-once", "at-least-once" or "at-most-once".',
            )
        # At-most-once is last: it can be had from any sink, since it asks the sink nothing.
        if GUARANTEES.index(self.guarantee) < GUARANTEES.index(self.spec.guarantee):
            raise PlanError(
                "LS0118",
                f'sink "{self.id}" cannot be {self.guarantee}',
                why=f"{self.spec.describe()} has no way to know that an epoch was already written.",
                hint=f'.to(ls.files("out/{self.id}")), or accept guarantee="{self.spec.guarantee}" '
                "(`lockstep explain LS0118` says what a crash may do then).",
            )


def check_id(id: str, what: str) -> None:
    """Refuse a step's id that is no plain word (LS0102): it stands in files, metrics and the ledger."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise PlanError(
            "LS0102",
            f"{id!r} cannot be the name of a {what}",
            why="it has to be a letter, then letters, digits, _ or -, at most 64 in all.",
            hint='name="failed_only"',
        )


def upstream(step: Step, inputs_of: Callable[[Step], Iterable[Step]] = lambda step: step.inputs) -> Iterator[Step]:
    """The step and everything before it, nearest first, each once; ``inputs_of`` says what comes before a step."""
    seen: set[int] = set()
    waiting = [step]
    while waiting:
        current = waiting.pop(0)
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(inputs_of(current))


def sources_before(step: Step) -> tuple[str, ...]:
    """The names of the sources whose records reach a step, in the order of the alphabet."""
    return tuple(sorted({before.id for before in upstream(step) if isinstance(before, Source)}))


def event_times_before(step: Step) -> tuple[EventTime, ...]:
    """The event times that hold for a step's output, in order of creation; empty if there is none."""
    found = [earlier for earlier in upstream(step, _timed_inputs) if isinstance(earlier, EventTime)]
    return tuple(sorted(found, key=lambda earlier: earlier.order))


def _timed_inputs(step: Step) -> tuple[Step, ...]:
    """Where the event times of a step's records come from: nowhere else if it declares them, or has none."""
    return step.inputs if _keeps_time(step) and not isinstance(step, EventTime) else ()


def _keeps_time(step: Step) -> bool:
    """Whether the records of a step have event times if those before it have: rolling results have none."""
    if isinstance(step, Aggregate):
        return step.window is not None
    return step.keeps_times and (not isinstance(step, Union) or all(map(event_times_before, step.streams)))


def _check_not_empty(values: Sequence[object], method: str, where: str, example: str) -> None:
    if not values:
        raise PlanError("LS0132", f"{method} in {where} was given nothing", hint=example)


def _check_function(step: _PythonStep) -> None:
    function, example = step.function, type(step).example
    if isinstance(function, Expression):
        raise ExpressionError(
            "LS0223",
            f"{step.where} was given an expression, not a Python function",
            why=f"it was given: {function}.",
            hint="expressions go into .select(...) and .with_columns(...), and run without Python.",
        )
    if not callable(function):
        raise PlanError("LS0131", f"{step.where} was given {function!r}, not a function", hint=f"write {example}.")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise PlanError("LS0131", f"the function of {step.where} is async", why="nothing would await it.")
    if isinstance(step, Map) and inspect.isgeneratorfunction(function):
        raise PlanError(
            "LS0131",
            f"the function of {step.where} yields",
            why=".map makes one record of each.",
            hint=".flat_map(function, schema=...) makes as many as the function yields.",
        )
    check_one_argument(function, f"the function of {step.where}", example)
