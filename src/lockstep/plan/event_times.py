"""Which columns are the event time of a stream, or a fixed distance from it: windows and joins can go by these."""

from __future__ import annotations

from lockstep.plan.expression import Column
from lockstep.plan.joins import WindowJoin
from lockstep.plan.steps import Aggregate, EventTime, Rename, Select, Step, WithColumns
from lockstep.plan.windowed import WindowStep
from lockstep.plan.windows import Sliding, Tumbling, Window, window_time


def distance_us(column: str, step: Step) -> int | None:
    """How far a column of a step's output lies after the event time: 0 if it is that; None if it is neither.

    A window's result happens at the last instant of its window, which is a microsecond before ``window_end``.
    """
    if isinstance(step, EventTime):
        return 0 if isinstance(step.time, Column) and step.time.name == column else None
    before = column
    if isinstance(step, (Select, WithColumns)):
        named = dict(step.selection if isinstance(step, Select) else step.additions)
        value = named.get(column, Column(column))
        if not isinstance(value, Column):
            return None
        before = value.name
    elif isinstance(step, Rename):
        before = {new: old for old, new in step.renames}.get(column, column)
    elif step.stateful:
        return _of_window(column, step)
    found = {distance_us(before, given) if before in given.columns else None for given in step.inputs}
    return found.pop() if len(found) == 1 else None


def _of_window(column: str, step: Step) -> int | None:
    window: Window | None = step.window if isinstance(step, Aggregate | WindowStep | WindowJoin) else None
    if window is None or window_time(window) != "event":
        return None
    if column == "window_end":
        return 1
    if column == "window_start" and isinstance(window, Tumbling | Sliding):
        return 1 - window.size_us
    return None
