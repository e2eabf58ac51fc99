"""Windows that Spark has no operator for: any assigner, any trigger, lateness, and Python over a window's records."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lockstep.durations import duration_text
from lockstep.errors import PlanError
from lockstep.plan.accumulated import Accumulated, Layout, lay_out
from lockstep.plan.aggregates import MEANINGS
from lockstep.plan.draw import words
from lockstep.plan.encode import details, function_name, named_json
from lockstep.plan.expression import Call, Column, Expression
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.schema import Schema, check_names
from lockstep.plan.steps import WINDOW_COLUMNS, Named, event_times_before
from lockstep.plan.triggers import AT_WATERMARK, EACH_EPOCH, Trigger, trigger_json
from lockstep.plan.updates import Added, Updates, aggregation_of, rolling_updates, updates_of
from lockstep.plan.windows import Count, Custom, GlobalWindow, Session, Window, window_json, window_time

LATE = "late"
"""The side output of records that came too late for all their windows."""


TOP_MAX = 1000
"""The most records that ``top`` keeps for a key and window: they are looked through for each record that comes."""


@dataclass(frozen=True)
class Aggregation:
    """Aggregates of a window's records, added up as they come."""

    aggregates: Named
    accumulated: tuple[Accumulated, ...]

    @property
    def ordered(self) -> bool:
        """Whether the records have to be kept and put in order before they are added up."""
        return any(MEANINGS[one.function].ordered for one in self.accumulated)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.aggregates)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the plan and for checkpoints."""
        return {"aggregates": named_json(self.aggregates)}


@dataclass(frozen=True)
class Reduction:
    """Two records become one, again and again, by a Python function."""

    function: Callable[[Any, Any], Any]

    def __str__(self) -> str:
        return f"reduce {function_name(self.function)}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the plan and for checkpoints."""
        return {"reduce": function_name(self.function)}


@dataclass(frozen=True)
class Folding:
    """A value that each record changes, by a Python function; it begins as ``initial``."""

    initial: Any
    function: Callable[[Any, Any], Any]
    schema: Schema

    def __str__(self) -> str:
        return f"fold {function_name(self.function)}: {self.schema.ddl()}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the plan and for checkpoints."""
        return {"fold": function_name(self.function), "initial": repr(self.initial), "schema": self.schema.to_json()}


@dataclass(frozen=True)
class Accumulation:
    """An accumulator of the user's own class, and what that makes of it."""

    aggregator: Any
    schema: Schema
    merges: bool = False
    """Whether accumulators are made one when sessions meet; without that sessions keep their records."""

    @property
    def function(self) -> Callable[[Any, Any], Any]:
        """What each record is given to."""
        added: Callable[[Any, Any], Any] = self.aggregator.add
        return added

    @property
    def name(self) -> str:
        """What the class is called."""
        return type(self.aggregator).__qualname__

    def __str__(self) -> str:
        return f"aggregate {self.name}: {self.schema.ddl()}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the plan and for checkpoints."""
        merges = {"merges": True} if self.merges else {}
        return {"aggregate": self.name, "schema": self.schema.to_json(), **merges}


@dataclass(frozen=True)
class Processing:
    """A Python function over all records of a window."""

    function: Callable[[Any, Any], Any]
    schema: Schema

    def __str__(self) -> str:
        return f"process {function_name(self.function)}: {self.schema.ddl()}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the plan and for checkpoints."""
        return {"process": function_name(self.function), "schema": self.schema.to_json()}


@dataclass(frozen=True)
class Top:
    """The records of a window with the largest (or smallest) values, each with its rank in a column of its own.

    Without a name for that column it is the one best record: ``max_by``, ``min_by``.
    """

    number: int
    by: Expression
    ascending: bool
    rank: str | None

    @property
    def ranked(self) -> Accumulated:
        """What Spark has to compute of each record."""
        return Accumulated(self.rank or "__by", "top", (self.by,))

    @property
    def rank_columns(self) -> tuple[str, ...]:
        """The column of the rank, if it is wanted."""
        return () if self.rank is None else (self.rank,)

    def __str__(self) -> str:
        if self.rank is None:
            return f"{'min' if self.ascending else 'max'}_by {self.by}"
        return f"top {self.number} by {self.by}{', ascending' if self.ascending else ''}: {self.rank}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the plan and for checkpoints."""
        return {"top": self.number, "by": self.by.to_json(), "ascending": self.ascending, "rank": self.rank}


Computation = Aggregation | Top | Reduction | Folding | Accumulation | Processing


@dataclass(frozen=True, eq=False)
class WindowStep(KeyedStep):
    """Computes something over windows, for each key: windows, triggers and lateness kept by Lockstep itself.

    Results have the keys, window_start and window_end (null in windows without a beginning and an end), then values.
    """

    stateful = True
    runs_python = True
    window: Window
    trigger: Trigger
    computation: Computation
    allowed_lateness_us: int = 0
    late_to_side: bool = False

    def _check(self) -> None:
        super()._check()
        check_names(self.columns, self.where)
        if isinstance(self.computation, Top):
            _check_number(self.computation.number, self.where)
        elif not isinstance(self.computation, Aggregation):
            check_two_arguments(self.computation.function, f"the function of {self.where}")
        self._check_time()
        self._check_trigger()

    def _check_time(self) -> None:
        if self.allowed_lateness_us < 0:
            raise PlanError(
                "LS0161",
                f"the allowed lateness of {self.where} is negative",
                why="it says how long after its end a window still takes records.",
                hint='.allowed_lateness("1 minute")',
            )
        by_event_time = window_time(self.window) == "event"
        if (self.allowed_lateness_us or self.late_to_side) and not by_event_time:
            raise PlanError(
                "LS0162",
                f"{self.where} has an option for late records, and in its windows ({self.window}) none is ever late",
                why="a record is late when event time has passed the end of its window.",
                hint="leave .allowed_lateness(...) and .late_to_side() out, or use windows of event time.",
            )
        if (by_event_time or self._fires_by_event_time) and not event_times_before(self.streams[0]):
            raise PlanError(
                "LS0112",
                f"{self.where} has a window but the stream has no event time",
                why="a window closes when event time has passed its end.",
                hint='.event_time("at", out_of_order="5 seconds") before .key_by(...), or time="processing".',
            )

    @property
    def _fires_by_event_time(self) -> bool:
        firings = [firing for firing in (self.trigger.early, self.trigger.late) if firing is not None]
        return any(firing.every_us is not None and firing.time == "event" for firing in firings)

    def _check_trigger(self) -> None:
        if isinstance(self.window, GlobalWindow) and self.trigger.early is None:
            raise PlanError(
                "LS0160",
                f"{self.where} would never give a result",
                why="a global window has no end, and its trigger waits for one.",
                hint='.trigger(ls.every("10 seconds")) or .trigger(ls.on_count(100)).',
            )
        late = self.trigger.late not in (EACH_EPOCH, self.trigger.early)
        if late and not self.allowed_lateness_us:
            raise PlanError(
                "LS0160",
                f"{self.where} has a trigger for late records, and none can come",
                why="without allowed lateness a window is gone when it has ended.",
                hint='.allowed_lateness("1 minute")',
            )
        if isinstance(self.window, Count) and self.trigger != AT_WATERMARK:
            raise PlanError(
                "LS0162",
                f"{self.where} has a trigger, and a count window gives its result when it is full",
                hint=f".window(ls.global_()).trigger(ls.on_count({self.window.every})) counts all records of a key.",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys, window_start and window_end, then the values."""
        return (*self.key_names, *WINDOW_COLUMNS, *self.value_names)

    @property
    def value_names(self) -> tuple[str, ...]:
        """The columns after the window's. What is reduced keeps its columns, without those that come before."""
        match self.computation:
            case Aggregation(aggregates):
                return tuple(name for name, _ in aggregates)
            case Reduction():
                return self.other_columns
            case Top():
                return (*self.computation.rank_columns, *self.other_columns)
            case Folding() | Accumulation() | Processing():
                return self.computation.schema.names

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The columns of a record that a result does not have before its values."""
        before = (*self.key_names, *WINDOW_COLUMNS)
        return tuple(name for name in self.streams[0].columns if name not in before)

    @property
    def layout(self) -> Layout:
        """Where the aggregates, or the ranks, find their inputs."""
        accumulated: tuple[Accumulated, ...] = ()
        if isinstance(self.computation, Aggregation):
            accumulated = self.computation.accumulated
        elif isinstance(self.computation, Top):
            accumulated = (self.computation.ranked,)
        return lay_out(accumulated, self.streams[0].columns)

    def computed(self, number: int) -> Named:  # noqa: ARG002
        """The inputs of the aggregates that are not columns already, then the keys that are none: for their types."""
        keys = tuple((f"__key_{name}", value) for name, value in self.keys[0] or () if not self._is_column(value))
        return (*self.layout.computed, *keys)

    def key_places(self) -> tuple[int, ...]:
        """Where a record's values have the keys."""
        columns, places = self.streams[0].columns, []
        after = len(columns) + len(self.layout.computed)
        for _, value in self.keys[0] or ():
            if isinstance(value, Column) and self._is_column(value):
                places.append(columns.index(value.name))
            else:
                places.append(after)
                after += 1
        return tuple(places)

    def _is_column(self, value: Expression) -> bool:
        return isinstance(value, Column) and value.name in self.streams[0].columns

    @property
    def function(self) -> Callable[..., Any] | None:
        """The user's function, None where only Lockstep's own code runs."""
        if not isinstance(self.computation, Aggregation | Top):
            return self.computation.function
        return self.window.assigner.assign if isinstance(self.window, Custom) else None

    @property
    def side_outputs(self) -> dict[str, tuple[str, ...]]:
        """Late records, if they are wanted, with all columns they came with."""
        return {LATE: self.streams[0].columns} if self.late_to_side else {}

    def side_schema(self, output: str) -> Schema | None:  # noqa: ARG002
        """The types of the input, where they are known."""
        return self.streams[0].schema_hint

    @property
    def keeps_records(self) -> bool:
        """Whether its state holds records as they came, so that their columns give it its meaning."""
        return (
            not isinstance(self.computation, Aggregation) or self.computation.ordered or isinstance(self.window, Count)
        )

    @property
    def calls_user_code(self) -> bool:  # type: ignore[override]
        """Not if it aggregates by expressions in windows of Lockstep's own."""
        return self.function is not None


@words.register
def _(step: WindowStep) -> str:
    by = f" by {', '.join(step.key_names)}" if step.key_names else ""
    parts = [str(step.window)]
    parts += [str(step.trigger)] if step.trigger != AT_WATERMARK else []
    if step.allowed_lateness_us:
        parts.append(f"allowed lateness {duration_text(step.allowed_lateness_us)}")
    parts += ["late records aside"] if step.late_to_side else []
    return f"window{by}, {'; '.join(parts)}: {step.computation}"


@details.register
def _(step: WindowStep) -> dict[str, Any]:
    return {
        "keys": named_json(step.keys[0] or ()),
        "window": window_json(step.window),
        "trigger": trigger_json(step.trigger),
        "allowed_lateness_us": step.allowed_lateness_us,
        "late_to_side": step.late_to_side,
        "record": list(step.streams[0].columns) if step.keeps_records else None,
        **step.computation.to_json(),
    }


def _check_number(number: Any, where: str) -> None:
    if type(number) is not int or not 1 <= number <= TOP_MAX:
        raise PlanError(
            "LS0167",
            f"{where} asks for the top {number!r}",
            why=f"it is a whole number from 1 to {TOP_MAX}: so many records are kept for each key and window.",
            hint='.top(3, by="delay")',
        )


def check_two_arguments(function: Any, what: str) -> None:
    """Refuse what cannot be called with exactly two arguments (LS0163)."""
    hint = "reduce: lambda a, b: ...; fold: lambda total, record: ...; process: def summary(records, window)."
    if not callable(function) or isinstance(function, type):
        raise PlanError("LS0163", f"{what} is {function!r}, not a function", hint=hint)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise PlanError("LS0163", f"{what} is async", why="nothing would await it.", hint=hint)
    try:
        inspect.signature(function).bind(object(), object())
    except TypeError as error:
        raise PlanError(
            "LS0163",
            f"{what} is called with two arguments, and this function does not take that",
            why=f"{function_name(function)}: {error}.",
            hint=hint,
        ) from None
    except ValueError:
        return  # Some built-in functions have no readable signature: the first record will tell.


@updates_of.register
def _(step: WindowStep) -> Updates | None:
    """A window that gives a result before its end, or another one after it, and is not emptied by it."""
    several = step.trigger.early is not None or step.allowed_lateness_us
    if not several or step.trigger.purge:
        return None
    aggregates = step.computation.aggregates if isinstance(step.computation, Aggregation) else ()
    rank = step.computation.rank_columns if isinstance(step.computation, Top) else ()
    # Sessions grow together, so that no row replaces what they were; a function gives as many rows as it likes.
    one_row = not isinstance(step.window, Session | Custom) and not isinstance(step.computation, Processing)
    found = rolling_updates(step, (*step.key_names, *WINDOW_COLUMNS, *rank), aggregates, one_row=one_row)
    if found is None or found.identity is None or not isinstance(step.window, GlobalWindow):
        return found
    # A global window is one for each key: its bounds tell no rows apart.
    return replace(found, identity=found.identity - set(WINDOW_COLUMNS))


@aggregation_of.register
def _(step: WindowStep) -> Added | None:
    aggregates: Named = ()
    match step.computation:
        case Aggregation():
            aggregates = step.computation.aggregates
        case Top(by=by, rank=rank):
            # A list of records: each update would have a rank of its own.
            aggregates = ((rank or "__by", Call("collect_list", (by,))),)
        case _:
            return None
    return Added(step.keys[0] or (), aggregates, in_windows=True)
