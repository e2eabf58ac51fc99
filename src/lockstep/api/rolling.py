"""Rolling results by key: from what a user passes to the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.api.arguments import python_schema, step_name
from lockstep.api.windowed import WindowedStream, aggregate, windowed
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.plan.accumulated import needs_lockstep
from lockstep.plan.changes import AggregateOfChanges, AsEvents, latest_of
from lockstep.plan.columns import value_of
from lockstep.plan.distinct import Distinct, Keep
from lockstep.plan.expression import unaliased
from lockstep.plan.kinds import kind_of
from lockstep.plan.rolling import RollingAggregate, RollingExtreme, RollingFold, RollingReduce
from lockstep.plan.steps import WINDOW_COLUMNS, Named
from lockstep.plan.windows import GlobalWindow

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


def top(
    stream: Stream,
    keys: Named,
    number: int,
    by: Any,
    window: Any,
    rank: str,
    name: str | None,
    *,
    ascending: bool,
) -> Stream:
    """The best records of each key: of each window, or of all time as they change."""
    if window is not None:
        return windowed(stream, keys, window, None).top(number, by=by, ascending=ascending, as_=rank, name=name)
    if taken := [column for column in WINDOW_COLUMNS if column in stream.columns]:
        raise PlanError(
            "LS0162",
            f".top(...) of all time would lose the column {taken[0]}",
            why="it is the top of one window without bounds, and these take the place of such columns.",
            hint=f'.rename({taken[0]}="{taken[0].removeprefix("window_")}_at") before .key_by(...), or window=.',
        )
    best = WindowedStream(stream, keys, GlobalWindow()).updates()
    made = best.top(number, by=by, ascending=ascending, as_=rank, name=name)
    return made.drop(*WINDOW_COLUMNS)


def distinct(
    stream: Stream, method: str, columns: tuple[Any, ...], within: Duration | None, name: str | None, keep: Keep
) -> Stream:
    """One of those that are alike within a time bound; without columns the whole record counts."""
    if within is None:
        raise PlanError(
            "LS0173",
            f".{method}(...) needs within=",
            why="without a bound every record ever seen would have to be remembered: the state would grow for ever.",
            hint=f'.{method}("id", within="10 minutes"): longer than a duplicate can come after its first.',
        )
    keys = stream._values(method, columns or stream.columns, {})
    return stream._then(Distinct(stream._id(method, name), (stream._step,), (keys,), duration_us(within), keep))
