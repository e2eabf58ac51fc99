"""Rolling results by key: from what a user passes to the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.api.arguments import python_schema, step_name
from lockstep.api.windowed import aggregate
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.plan.accumulated import needs_lockstep
from lockstep.plan.changes import AggregateOfChanges, AsEvents, latest_of
from lockstep.plan.columns import value_of
from lockstep.plan.distinct import Distinct
from lockstep.plan.expression import Alias, Column, Expression, call, unaliased
from lockstep.plan.kinds import kind_of
from lockstep.plan.rolling import RollingAggregate, RollingExtreme, RollingFold, RollingReduce
from lockstep.plan.steps import Named

if TYPE_CHECKING:
    from lockstep.api.stream import Stream


def rolling_aggregate(
    stream: Stream, name: str | None, keys: Named, values: Named, *, exact_floats: bool, per_record: bool
) -> Stream:
    """Spark's where it can: it has no operator that gives a result per record, and not all aggregates."""
    if values and kind_of(stream._step).name == "changes":
        return _of_changes(stream, name, keys, values, per_record=per_record)
    if not values or not (per_record or needs_lockstep(values)):
        return aggregate(stream, name, keys, values, exact_floats=exact_floats)
    step_id = stream._id("agg", step_name(name, stream.columns, "agg"))
    return stream._then(RollingAggregate(step_id, (stream._step,), (keys,), per_record, values))


def _of_changes(stream: Stream, name: str | None, keys: Named, values: Named, *, per_record: bool) -> Stream:
    if per_record:
        raise PlanError(
            "LS0128",
            f'per_record=True over "{stream._step.id}", whose rows are taken back',
            why="a change is no record: there is one result for each key and epoch that changed it.",
            hint="leave it out; or .as_events() before .key_by(...), and every row that begins to hold is a record.",
        )
    step_id = stream._id("agg", step_name(name, stream.columns, "agg"))
    return stream._then(AggregateOfChanges(step_id, (stream._step,), (keys,), values))


def latest(stream: Stream, name: str | None) -> Stream:
    """The newest row of each key of a stream of updates."""
    kind = kind_of(stream._step)
    if kind.name == "updates" and kind.key is not None:
        return stream._then(latest_of(stream._step, stream._id("latest", name)))
    if kind.name == "updates":
        why = "nothing says which of its rows a new one replaces: the keys are gone, or there are several rows of one."
        hint = ".latest() right after the aggregation, before .select(...), .union(...) or .explode(...)."
    elif kind.name == "changes":
        why, hint = "its rows are taken back already when they hold no longer.", "leave .latest() out."
    else:
        why = "its rows are records, none of which replaces another."
        hint = '.key_by("user").agg(...), .max_by(...), .reduce(...) give one row for each key.'
    raise PlanError("LS0129", f'"{stream._step.id}" has no latest rows', why=why, hint=hint)


def as_events(stream: Stream, name: str | None) -> Stream:
    """Every result of a stream of updates, or every row that begins to hold, as a record."""
    if kind_of(stream._step).name == "append":
        raise PlanError(
            "LS0129",
            f'the rows of "{stream._step.id}" are events already',
            why=".as_events() is for results that replace each other.",
            hint="leave .as_events() out.",
        )
    return stream._then(AsEvents(stream._id("as_events", name), stream._step))


def one_function(stream: Stream, function: str, columns: tuple[Any, ...], named: dict[str, Any]) -> Named:
    """``sum("ms", total="a + b")``: the function of each; a result has its column's name."""
    listed = [(_result_name(value, function), value_of(value, stream.columns)) for value in columns]
    made = [*listed, *((name, value_of(value, stream.columns)) for name, value in named.items())]
    if not made:
        raise PlanError(
            "LS0132", f".{function}() was given nothing", hint=f'.{function}("ms"), .{function}(total="a + b")'
        )
    return tuple((name, call(function, unaliased(value))) for name, value in made)


def reduce(
    stream: Stream, keys: Named, function: Callable[[Any, Any], Any], name: str | None, *, per_record: bool
) -> Stream:
    """Records put together two by two."""
    return stream._then(RollingReduce(stream._id("reduce", name), (stream._step,), (keys,), per_record, function))


def fold(
    stream: Stream,
    keys: Named,
    initial: Any,
    function: Callable[[Any, Any], Any],
    schema: Any,
    name: str | None,
    *,
    per_record: bool,
) -> Stream:
    """An accumulator that each record changes."""
    made = python_schema(schema, "fold")
    step_id = stream._id("fold", name)
    return stream._then(RollingFold(step_id, (stream._step,), (keys,), per_record, initial, function, made))


def extreme(stream: Stream, keys: Named, by: Any, name: str | None, *, largest: bool, per_record: bool) -> Stream:
    """The whole record with the smallest or largest value."""
    expression = unaliased(value_of(by, stream.columns))
    step_id = stream._id("max_by" if largest else "min_by", name)
    return stream._then(RollingExtreme(step_id, (stream._step,), (keys,), per_record, expression, largest))


def distinct(stream: Stream, columns: tuple[Any, ...], within: Duration | None, name: str | None) -> Stream:
    """Each record once within a time bound; without columns the whole record counts."""
    if within is None:
        raise PlanError(
            "LS0173",
            ".distinct(...) needs within=",
            why="without a bound every record ever seen would have to be remembered: the state would grow for ever.",
            hint='.distinct("id", within="10 minutes"): longer than a duplicate can come after its first.',
        )
    keys = stream._values("distinct", columns or stream.columns, {})
    return stream._then(Distinct(stream._id("distinct", name), (stream._step,), (keys,), duration_us(within)))


def _result_name(value: Any, function: str) -> str:
    match value:
        case str() if value.isidentifier():
            return value
        case Alias():
            return value.name
        case Column():
            return value.name
    raise PlanError(
        "LS0132",
        f"a column of .{function}(...) has no name",
        why=f"it was given: {value if isinstance(value, str | Expression) else repr(value)}.",
        hint=f'.{function}(total="a + b")',
    )
