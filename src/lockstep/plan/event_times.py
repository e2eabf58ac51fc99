"""Which columns are the event time of a stream, or a fixed distance from it: windows and joins can go by these.

And for which streams it is kept by partition.
"""

from __future__ import annotations

import re

from lockstep.plan.distinct import Distinct
from lockstep.plan.expression import Column, Expression, Sql
from lockstep.plan.joins import WindowJoin
from lockstep.plan.loops import LoopHead
from lockstep.plan.steps import Aggregate, EventTime, MapBatches, Rename, Select, Source, Step, WithColumns, upstream
from lockstep.plan.windowed import WindowStep
from lockstep.plan.windows import Sliding, Tumbling, Window, window_time

_MOVED = re.compile(r"timestamp_micros\(unix_micros\(`(\w+)`\) \+ (-?\d+)\)")

BY_PARTITION_KINDS = frozenset({"kafka"})
"""The kinds of sources whose partitions are each in order by itself, and may be far apart in event time."""


def goes_by_partition(step: EventTime) -> bool:
    """Whether the time of a step is kept for each partition of its source, so that the slowest one counts.

    It is where each record that reaches the step is known to be of one partition of one source. After a union there is
    one time for all; and nobody can tell of which partition a result with state is, a row of a new batch, or a record
    that came round a loop.
    """
    before = list(upstream(step))
    sources = [one for one in before if isinstance(one, Source)]
    mixed = any(one.stateful or isinstance(one, MapBatches | LoopHead) for one in before)
    return len(sources) == 1 and not mixed and _is_in_order_by_partition(sources[0], step.time)


def _is_in_order_by_partition(source: Source, time: Expression) -> bool:
    """Whether the partitions of a source are each in order: a topic's are meant to be, a journal's by arrival are."""
    if source.spec.kind in BY_PARTITION_KINDS:
        return True
    # How many partitions a journal has is not known here: one that is there keeps its own number.
    arrived = source.spec.to_json().get("timestamp_column")
    return bool(arrived) and isinstance(time, Column) and time.name == arrived


def moved(column: str, by_us: int) -> Expression:
    """A time that lies so much after that of a column.

    >>> moved("window_end", -60_000_000)
    <expression timestamp_micros(unix_micros(`window_end`) + -60000000)>
    """
    return Sql(f"timestamp_micros(unix_micros(`{column}`) + {by_us})")


def distance_us(column: str, step: Step) -> int | None:
    """How far a column of a step's output lies after the event time: 0 if it is that; None if it is neither.

    A window's result happens at the last instant of its window, which is a microsecond before ``window_end``.
    """
    if isinstance(step, EventTime):
        return 0 if isinstance(step.time, Column) and step.time.name == column else None
    before, after_us = column, 0
    if isinstance(step, (Select, WithColumns)):
        named = dict(step.selection if isinstance(step, Select) else step.additions)
        found_there = _moved_column(named.get(column, Column(column)))
        if found_there is None:
            return None
        before, after_us = found_there
    elif isinstance(step, Rename):
        before = {new: old for old, new in step.renames}.get(column, column)
    elif isinstance(step, Distinct):
        after_us = -step.delay_us
    elif step.stateful:
        return _of_window(column, step)
    found = {distance_us(before, given) if before in given.columns else None for given in step.inputs}
    distance = found.pop() if len(found) == 1 else None
    return None if distance is None else distance + after_us


def _moved_column(value: Expression) -> tuple[str, int] | None:
    """The column that a value is, and by how much it was moved (:func:`moved`); None if it is anything else."""
    if isinstance(value, Column):
        return value.name, 0
    text = _MOVED.fullmatch(value.text) if isinstance(value, Sql) else None
    return None if text is None else (text[1], int(text[2]))


def _of_window(column: str, step: Step) -> int | None:
    window: Window | None = step.window if isinstance(step, Aggregate | WindowStep | WindowJoin) else None
    if window is None or window_time(window) != "event":
        return None
    if column == "window_end":
        return 1
    if column == "window_start" and isinstance(window, Tumbling | Sliding):
        return 1 - window.size_us
    return None
