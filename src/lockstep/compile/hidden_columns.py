"""The hidden columns that travel with a user's records, and who asks for them.

A source emits only the hidden columns that the compiled plan needs: carrying one costs time in every record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lockstep.connect.protocols import ORDER
from lockstep.plan.event_times import goes_by_partition
from lockstep.plan.expression import Call, Expression, walk
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.kinds import SIGN
from lockstep.plan.loops import LoopHead, loop_journal
from lockstep.plan.newest_rows import drops_positions, keeps_positions
from lockstep.plan.stages import Stage, stage_journal
from lockstep.plan.steps import EventTime, FlatMap, Map, MapBatches, Sink, Source, Step, event_times_before
from lockstep.store.types import arrow_type

MARK = "__mark"
"""True in the one hidden row per source and epoch that carries the marks, null in records."""
EVENT_TIME = "__event_time"
WATERMARK = "__watermark"
"""In the mark rows that go on to a keyed step: how far event time has come there, null while it is not known."""
EPOCH_TIME = "__epoch_time"
SOURCE = "__source"
PARTITION = "__partition"
OFFSET = "__offset"
POSITION = (SOURCE, PARTITION, OFFSET)
PARTITION_NUMBER = "__partition_number"
"""Up to an ``event_time`` step that goes by partition: of which one a record is."""
PART = "__part"
"""Where a record was made from another one: which of them it is. Records of one position are ordered by it."""
PART_BITS = 20
ORDER_TIME = "__order_time"
"""With results of a keyed step: the latest event time among those that its key has given so far in the epoch. Later
results of a key have no earlier one, so in the order of this time they stand as they were given."""
CHANGE = "__change"
"""With changes: 1 for a row that begins to hold, -1 for one that is taken back; null is a record, which begins to."""

TYPES = {
    CHANGE: "int",
    MARK: "boolean",
    WATERMARK: "timestamp",
    EPOCH_TIME: "timestamp",
    SOURCE: "string",
    PARTITION: "string",
    OFFSET: "bigint",
    PARTITION_NUMBER: "int",
    PART: "bigint",
    ORDER: "string",
    ORDER_TIME: "timestamp",
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
    ticks: bool = False
    """Whether a mark row is wanted by a keyed step, also where there is no event time: it tells every key the time."""
    partition_number: bool = False
    """Whether event time is kept for each of its partitions."""

    @property
    def marks(self) -> bool:
        """Whether the source sends a mark row in every epoch."""
        return bool(self.event_times) or self.ticks

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """(name, Spark type) in the order in which a source emits them."""
        names: list[tuple[str, str]] = []
        if self.marks:
            names.append((MARK, TYPES[MARK]))
            names += [(mark_of(step), "timestamp") for step in self.event_times]
        if self.ticks:
            names.append((WATERMARK, TYPES[WATERMARK]))
        if self.epoch_time:
            names.append((EPOCH_TIME, TYPES[EPOCH_TIME]))
        if self.position:
            names += [(name, TYPES[name]) for name in POSITION]
        if self.partition_number:
            names.append((PARTITION_NUMBER, TYPES[PARTITION_NUMBER]))
        return tuple(names)


def ordered_sinks(stages: Sequence[Stage]) -> frozenset[str]:
    """The sinks that take their rows in order: those with a key, and journals whose readers ask for positions."""
    names = {sink.id for stage in stages for sink in stage.sinks}
    found = frozenset(sink.id for stage in stages for sink in stage.sinks if sink.spec.key)
    while True:
        asked = {name for stage in stages for name, one in hidden_of(stage, found).items() if one.position}
        if asked & names <= found:
            return found
        found |= asked & names


def hidden_of(stage: Stage, ordered: frozenset[str] = frozenset()) -> dict[str, Hidden]:
    """Per source of a stage, by its name in the ledger, the hidden columns that the steps below it ask for.

    ``ordered`` are the sinks that take their rows in order.
    """
    found: dict[str, Hidden] = {}
    for step in stage.steps:
        if isinstance(step, Source):
            found[step.id] = _needed(stage, [step], ordered)
        if isinstance(step, LoopHead):
            name, timed = loop_journal(step), bool(event_times_before(step.input))
            found[name] = _journal_hidden(name, _needed(stage, [step], ordered), timed=timed)
    for read in stage.reads:
        readers = [step for step in stage.steps if stage.is_cut(step, read)]
        # Whoever declares an event time anew has no use for the old one.
        timed = bool(event_times_before(read)) and not all(isinstance(step, EventTime) for step in readers)
        name = stage_journal(read)
        found[name] = _journal_hidden(name, _needed(stage, readers, ordered), timed=timed)
    return found


def _journal_hidden(name: str, needed: Hidden, *, timed: bool) -> Hidden:
    """A journal inside the job brings its records' event times back, like an ``event_time`` step of its own name."""
    return replace(needed, event_times=(name, *needed.event_times)) if timed else needed


def _needed(stage: Stage, readers: Sequence[Step], ordered: frozenset[str]) -> Hidden:
    """What these steps, which read a source, and all below them in the stage ask for."""
    steps = _downstream(stage, readers)
    keyed = any(isinstance(step, KeyedStep) for step in steps)
    return Hidden(
        event_times=tuple(step.id for step in steps if isinstance(step, EventTime)),
        epoch_time=keyed or any(_uses_epoch_time(step) for step in steps),
        position=keyed or any(_reads_position(step, ordered) for step in (*readers, *_with_positions(stage, readers))),
        ticks=keyed,
        partition_number=any(isinstance(step, EventTime) and goes_by_partition(step) for step in steps),
    )


def origins_wanted(stage: Stage, step: Step, ordered: frozenset[str]) -> bool:
    """Whether a step after this one reads the positions of the records that this one's rows were made from."""
    return any(_reads_position(one, ordered) for one in _with_positions(stage, [step]))


def _reads_position(step: Step, ordered: frozenset[str]) -> bool:
    if isinstance(step, Map | FlatMap | MapBatches):
        return step.on_error == "skip"
    return isinstance(step, KeyedStep) or (isinstance(step, Sink) and step.id in ordered)


def _with_positions(stage: Stage, readers: Sequence[Step]) -> list[Step]:
    """The steps below these whose records have positions, of those that these read or make."""
    keeping = keeps_positions(stage)
    below = _downstream(stage, readers, lambda step: not drops_positions(step) or id(step) in keeping)
    return below[len(readers) :]


def _downstream(stage: Stage, readers: Sequence[Step], passes: Callable[[Step], bool] = lambda _: True) -> list[Step]:
    """These steps and all below them in the stage, as far as the way down ``passes`` each."""
    reached = {id(step) for step in readers}
    return [*readers, *_below(stage, {id(step) for step in readers if passes(step)}, reached, passes)]


def _below(stage: Stage, open_steps: set[int], known: set[int], passes: Callable[[Step], bool]) -> Iterator[Step]:
    for step in stage.steps:
        if id(step) not in known and any(
            id(before) in open_steps and not stage.is_cut(step, before) for before in step.inputs
        ):
            if passes(step):
                open_steps.add(id(step))
            yield step


def _uses_epoch_time(step: Step) -> bool:
    return any(wants_epoch_time(expression) for expression in step_expressions(step))


def wants_epoch_time(expression: Expression) -> bool:
    """Whether the expression reads the epoch time."""
    return any(isinstance(node, Call) and node.name == "lockstep.epoch_time" for node in walk(expression))


def wants_sign(expression: Expression) -> bool:
    """Whether the expression is the sign of a change."""
    return isinstance(expression, Call) and expression.name == SIGN


def step_expressions(step: Step) -> list[Expression]:
    """Every expression that a step was given."""
    return list(step.expressions)
