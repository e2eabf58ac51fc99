"""Rolling results by key: from what a user passes to the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.api.arguments import python_schema, step_name
from lockstep.api.windowed import aggregate
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.plan.accumulated import needs_lockstep
from lockstep.plan.columns import value_of
from lockstep.plan.distinct import Distinct
from lockstep.plan.expression import unaliased
from lockstep.plan.rolling import RollingAggregate, RollingExtreme, RollingFold, RollingReduce
from lockstep.plan.steps import Named

if TYPE_CHECKING:
    from lockstep.api.stream import Stream


def rolling_aggregate(
    stream: Stream, name: str | None, keys: Named, values: Named, *, exact_floats: bool, per_record: bool
) -> Stream:
    """Spark's where it can: it has no operator that gives a result per record, and not all aggregates."""
    if not values or not (per_record or needs_lockstep(values)):
        return aggregate(stream, name, keys, values, exact_floats=exact_floats)
    step_id = stream._id("agg", step_name(name, stream.columns, "agg"))
    return stream._then(RollingAggregate(step_id, (stream._step,), (keys,), per_record, values))


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
