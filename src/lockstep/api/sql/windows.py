"""Windows in a GROUP BY: ``window(at, '1 minute')`` and the like, over the event time of the stream."""

from __future__ import annotations

from sqlglot import exp

from lockstep.api.sql.expressions import function_of
from lockstep.api.sql.scope import Scope
from lockstep.durations import duration_us
from lockstep.errors import ExpressionError, LockstepError, PlanError
from lockstep.plan.event_times import distance_us
from lockstep.plan.steps import event_times_before
from lockstep.plan.windows import Session, Sliding, Tumbling

_WRITTEN = {
    "tumble": "tumble(at, INTERVAL 1 MINUTE)",
    "hop": "hop(at, INTERVAL 10 SECONDS, INTERVAL 1 MINUTE): the step, then the size",
    "session": "session(at, INTERVAL 5 MINUTES)",
    "window": "window(at, '1 minute'), or window(at, '1 minute', '10 seconds'): the size, then the step",
    "session_window": "session_window(at, '5 minutes')",
}
_SIZES = {"tumble": (1,), "hop": (2,), "session": (1,), "window": (1, 2), "session_window": (1,)}


def window_of(call: exp.Anonymous, scope: Scope) -> Tumbling | Sliding | Session:
    """The window that a call in GROUP BY means."""
    name = function_of(call)
    if len(call.expressions) - 1 not in _SIZES[name]:
        raise scope.query.error(
            "LS0234", f"{name}() has {len(call.expressions)} arguments", call, hint=f"{_WRITTEN[name]}."
        )
    sizes = [_duration(argument, call, scope) for argument in call.expressions[1:]]
    try:
        return _made(name, sizes)
    except PlanError as error:
        raise scope.query.located(error, call) from None


def _made(name: str, sizes_us: list[int]) -> Tumbling | Sliding | Session:
    if name in ("session", "session_window"):
        return Session(sizes_us[0])
    if len(sizes_us) == 1:
        return Tumbling(sizes_us[0])
    size_us, every_us = reversed(sizes_us) if name == "hop" else sizes_us
    return Tumbling(size_us) if size_us == every_us else Sliding(size_us, every_us)


def interval_us(node: exp.Expression) -> int | None:
    """The length of ``INTERVAL 1 MINUTE``, of several added, or of ``'1 minute'``; None if it is none.

    >>> from lockstep.api.sql.parse import parse
    >>> from lockstep.api.sql.locations import QueryText
    >>> [interval_us(one) for one in parse(QueryText("select interval 1 minute 30 seconds, '10 ms', at")).expressions]
    [90000000, 10000, None]
    """
    if isinstance(node, exp.Paren):
        return interval_us(node.this)
    if isinstance(node, exp.Add):
        left, right = interval_us(node.this), interval_us(node.expression)
        return None if left is None or right is None else left + right
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        text = node.this.name if unit is None else f"{node.this.name} {unit.name}"
    elif isinstance(node, exp.Literal) and node.is_string:
        text = node.name
    else:
        return None
    try:
        return duration_us(text)
    except LockstepError:
        return None


def _duration(argument: exp.Expression, call: exp.Anonymous, scope: Scope) -> int:
    found = interval_us(argument)
    if found is None:
        raise scope.query.error(
            "LS0234",
            "this is not a length of time",
            argument,
            why="weeks, days, hours, minutes, seconds and parts of seconds have a fixed length; months do not.",
            hint=f"{_WRITTEN[function_of(call)]}.",
        )
    return found


def time_of(call: exp.Anonymous, scope: Scope) -> str:
    """The column that a window is over: the event time of the stream, or a bound of an earlier window (LS0234)."""
    time = call.expressions[0]
    declared = event_times_before(scope.stream._step)
    if not declared:
        raise _no_event_time(time, call, scope)
    resolved = scope.require(time) if isinstance(time, exp.Column) else None
    if resolved is not None and not resolved.fields:
        if distance_us(resolved.column, scope.stream._step) is not None:
            return resolved.column
        if resolved.column == "window_start":
            raise scope.query.error(
                "LS0234",
                "window_start does not follow event time here",
                time,
                why="the windows before it have no fixed length: results do not come in the order of their starts.",
                hint=f"{function_of(call)}(window_end, ...).",
            )
    raise scope.query.error(
        "LS0234",
        f"the window is not over the stream's event time, {declared[-1].time}",
        time,
        why="a window closes when event time has passed its end, and a stream has one event time.",
        hint=f"{function_of(call)}({declared[-1].time}, ...), or declare the other one with .event_time(...).",
    )


def _no_event_time(time: exp.Expression, call: exp.Anonymous, scope: Scope) -> ExpressionError:
    table = scope.tables[0].name
    column = time.name if isinstance(time, exp.Column) else "at"
    return scope.query.error(
        "LS0234",
        "there is a window but the stream has no event time",
        call,
        why="a window closes when event time has passed its end.",
        hint=f'{table} = {table}.event_time("{column}", out_of_order="5 seconds"), then job.sql(..., {table}={table}).',
    )
