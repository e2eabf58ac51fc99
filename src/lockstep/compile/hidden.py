"""The hidden columns that travel with a user's records, and who asks for them.

A source emits only the hidden columns that the compiled plan needs: carrying one costs time in every record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import pyarrow as pa

from lockstep.plan.expression import Call, Expression, walk
from lockstep.plan.graph import Graph
from lockstep.plan.steps import EventTime, FlatMap, Map, MapBatches, Step
from lockstep.store.types import arrow_type

MARK = "__mark"
"""True in the one hidden row per source and epoch that carries the marks, null in records."""
EVENT_TIME = "__event_time"
EPOCH_TIME = "__epoch_time"
SOURCE = "__source"
PARTITION = "__partition"
OFFSET = "__offset"
POSITION = (SOURCE, PARTITION, OFFSET)

TYPES = {
    MARK: "boolean",
    EPOCH_TIME: "timestamp",
    SOURCE: "string",
    PARTITION: "string",
    OFFSET: "bigint",
}


def mark_of(step_id: str) -> str:
    """The hidden column that holds the mark of one ``event_time`` step in a mark row.

    >>> mark_of("event_time")
    '__mark_event_time'
    """
    return f"{MARK}_{step_id}"


def arrow_hidden(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """Hidden columns as Arrow fields; a user's schema may not have such names, so they are added beside it."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns])


def ddl_with_hidden(ddl: str, columns: Iterable[tuple[str, str]]) -> str:
    """A schema text for Spark with hidden columns after the user's.

    >>> ddl_with_hidden("user string", [("__mark", "boolean")])
    'user string, `__mark` boolean'
    """
    return ", ".join([ddl, *(f"`{name}` {kind}" for name, kind in columns)])


@dataclass(frozen=True)
class Hidden:
    """What one source has to emit besides its own schema."""

    event_times: tuple[str, ...] = ()
    epoch_time: bool = False
    position: bool = False

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """(name, Spark type) in the order in which a source emits them."""
        names: list[tuple[str, str]] = []
        if self.event_times:
            names.append((MARK, TYPES[MARK]))
            names += [(mark_of(step), "timestamp") for step in self.event_times]
        if self.epoch_time:
            names.append((EPOCH_TIME, TYPES[EPOCH_TIME]))
        if self.position:
            names += [(name, TYPES[name]) for name in POSITION]
        return tuple(names)


def hidden_of(graph: Graph) -> dict[str, Hidden]:
    """Per source, the hidden columns that the steps below it ask for."""
    return {source.id: _needed(_downstream(graph, source)) for source in graph.sources}


def _needed(steps: list[Step]) -> Hidden:
    return Hidden(
        event_times=tuple(step.id for step in steps if isinstance(step, EventTime)),
        epoch_time=any(_uses_epoch_time(step) for step in steps),
        position=any(isinstance(step, Map | FlatMap | MapBatches) and step.on_error == "skip" for step in steps),
    )


def _downstream(graph: Graph, source: Step) -> list[Step]:
    reached = {source.id}
    below: list[Step] = []
    for step in graph.steps:
        if any(parent.id in reached for parent in step.inputs):
            reached.add(step.id)
            below.append(step)
    return below


def _uses_epoch_time(step: Step) -> bool:
    return any(wants_epoch_time(expression) for expression in step_expressions(step))


def wants_epoch_time(expression: Expression) -> bool:
    """Whether the expression reads the epoch time."""
    return any(isinstance(node, Call) and node.name == "lockstep.epoch_time" for node in walk(expression))


def step_expressions(step: Step) -> list[Expression]:
    """Every expression that a step was given."""
    found: list[Expression] = []
    for field in fields(step):
        value = getattr(step, field.name)
        named = [item[1] for item in value if isinstance(item, tuple)] if isinstance(value, tuple) else [value]
        found += [item for item in named if isinstance(item, Expression)]
    return found
