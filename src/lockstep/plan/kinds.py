"""The kind of a stream: whether its rows are records, results that replace each other, or changes.

- *append*: each row is a fact of its own, and stays one;
- *updates*: a row replaces the one that its key had before; nobody says so but the key;
- *changes*: a row begins to hold, and is taken back when it holds no longer. ``.latest()`` makes changes of updates.

It is a pure function of the plan (:func:`kind_of`). `lockstep plan` draws it, and a job is refused where a step would
take rows for what they are not (:func:`check_kinds`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import Literal

from lockstep.errors import PlanError
from lockstep.plan.expression import Call, walk
from lockstep.plan.joins import TableJoin
from lockstep.plan.loops import LoopEnd
from lockstep.plan.schema import TRAVELLING
from lockstep.plan.steps import Drop, Filter, Rename, Select, Sink, Step, Union, WithColumns
from lockstep.plan.updates import Updates, check_updates, updates_of

KindName = Literal["append", "updates", "changes"]

SIGN = "lockstep.change"
"""The function without arguments that is the sign of a row."""


@dataclass(frozen=True)
class Kind:
    """What the rows of a stream are; ``key`` are the columns that find the row which another one replaces."""

    name: KindName
    key: tuple[str, ...] | None = None
    """None where rows replace nothing, or where nobody knows which."""

    def __str__(self) -> str:
        return self.name if self.key is None else f"{self.name} by {', '.join(self.key) or 'nothing'}"


def kind_of(step: Step) -> Kind:
    """What the rows are that come out of a step."""
    found = updates_of(step)
    if found is None:
        return Kind("append")
    identity = found.identity
    key = None if identity is None else tuple(name for name in step.columns if name in identity)
    return Kind("changes" if found.taken_back else "updates", key)


def kind_words(step: Step) -> str:
    """The kind of a step's rows where it is another one than that of the rows it reads; empty elsewhere."""
    kind = kind_of(step)
    before = {kind_of(one).name for one in step.inputs} or {"append"}
    if isinstance(step, Sink) or before == {kind.name}:
        return ""
    return str(kind)


@singledispatch
def takes_changes(step: Step) -> bool:  # noqa: ARG001
    """Whether a step gets rows right that are taken back: it looks at one row at a time, or counts with signs."""
    return False


@takes_changes.register(Filter)
@takes_changes.register(Select)
@takes_changes.register(WithColumns)
@takes_changes.register(Drop)
@takes_changes.register(Rename)
@takes_changes.register(Union)
@takes_changes.register(TableJoin)
@takes_changes.register(Sink)
def _(step: Step) -> bool:
    return not isinstance(step, LoopEnd)


def check_kinds(steps: Iterable[Step]) -> None:
    """Refuse a job in which a step would take rows for what they are not (LS0126, LS0127, LS0128)."""
    found = tuple(steps)
    for step in found:
        _check_columns(step)
    check_updates(found)
    for step in found:
        changes = next((one for one in map(updates_of, step.inputs) if one is not None and one.taken_back), None)
        if changes is not None:
            _check_reader(step, changes)


def _check_columns(step: Step) -> None:
    name = next((one for one in step.columns if one.lower() in TRAVELLING), None)
    if name is not None:
        raise PlanError(
            "LS0106",
            f'"{name}" in {step.where} is a reserved name',
            why="between stages, and to sinks with a key, Lockstep's own columns travel under such names.",
            hint="give it another name.",
        )


def _check_reader(step: Step, changes: Updates) -> None:
    if not takes_changes(step):
        raise _taken_for_records(step, changes, "it would take every change for a record")
    if depends_on_epoch(step):
        raise _taken_for_records(step, changes, "the time of the epoch that takes a row back is not the row's own")
    if any(one is not None and not one.taken_back for one in map(updates_of, step.inputs)):
        raise _taken_for_records(step, changes, "the other stream has results that replace each other as well")
    if isinstance(step, Sink) and step.spec.key:
        _check_keyed_sink(step, changes)


def depends_on_epoch(step: Step) -> bool:
    """Whether a step makes something else of a row in another epoch: with the epoch's time, or the row's position."""
    calls = [part for one in step.expressions for part in walk(one) if isinstance(part, Call)]
    return any(call.name.startswith("lockstep.") and call.name != SIGN for call in calls)


def _check_keyed_sink(sink: Sink, changes: Updates) -> None:
    """A sink finds the row that is taken back by its key, so the key has to say which row that is."""
    found = updates_of(sink)
    identity = found.identity if found is not None else None
    if identity is None or not identity <= set(sink.spec.key):
        told = f"by {', '.join(sorted(identity))}" if identity else "by columns that did not come as far as the sink"
        raise PlanError(
            "LS0127",
            f'the key of the sink "{sink.id}" does not tell apart the rows of "{changes.by.id}"',
            why=f"they are told apart {told}; the key is: {', '.join(sink.spec.key)}. Taking one row back would delete "
            "another one.",
            hint="select those columns and have them in key=; or write to a sink without key=, which takes every row "
            "that begins to hold.",
        )
    if not sink.spec.deletes:
        raise PlanError(
            "LS0127",
            f'the sink "{sink.id}" would keep rows that "{changes.by.id}" takes back',
            why=f"{sink.spec.describe()} cannot delete a row yet.",
            hint="ls.sqlite(..., key=...) and ls.postgres(..., key=...) can; or leave key= out: then it takes every "
            "row that begins to hold.",
        )


def _taken_for_records(step: Step, changes: Updates, why: str) -> PlanError:
    return PlanError(
        "LS0128",
        f'{step.where} cannot read rows that are taken back, as those of "{changes.by.id}" are',
        why=f"{why}.",
        hint=".as_events() before it: then every row that begins to hold is a record, and none is taken back.",
    )
