"""What a query means where results replace each other: SQL speaks of the rows that hold, so these are what it gets.

The methods refuse such a step and ask what is meant (`.latest()`, `.as_events()`). In SQL there is nothing to ask:
where a step of a query needs the rows that hold, the updates before it become changes. Only there: a query whose
updates go straight to a sink stays as it is, and native.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from lockstep.plan.changes import AggregateOfChanges, Latest, latest_of
from lockstep.plan.kinds import depends_on_epoch, kind_of, takes_changes
from lockstep.plan.rolling import RollingAggregate
from lockstep.plan.steps import Aggregate, Sink, Step, Union, upstream
from lockstep.plan.updates import counted_again, kept_too_long, updates_of

_LATEST = "_latest"
"""After the id of the step whose newest rows are meant."""


def as_sql_means(sinks: Iterable[Sink], queried: frozenset[str]) -> tuple[Sink, ...]:
    """The sinks with changes before those steps of queries (``queried``: their ids) that need to know what holds."""
    given = tuple(sinks)
    made = _rewritten(given, queried, frozenset())
    reached = {id(step): step for sink in made for step in upstream(sink)}
    times = Counter(step.id for step in reached.values())
    # Some steps are needed in both ways: with the updates that they had, and with changes.
    twice = frozenset(step_id for step_id, count in times.items() if count > 1)
    return _rewritten(given, queried, twice) if twice else made


def _rewritten(sinks: tuple[Sink, ...], queried: frozenset[str], twice: frozenset[str]) -> tuple[Sink, ...]:
    rewriter = _Rewriter(queried, twice)
    return tuple(found for found in map(rewriter.meant, sinks) if isinstance(found, Sink))


class _Rewriter:
    """Makes steps anew from the first one on that needs changes before it; all others stay the very steps they were."""

    def __init__(self, queried: frozenset[str], twice: frozenset[str]) -> None:
        """``twice`` are the ids of steps that get another one where they read changes."""
        self._queried = queried
        self._twice = twice
        self._meant: dict[int, Step] = {}
        self._as_changes: dict[int, Step] = {}

    def meant(self, step: Step) -> Step:
        """The step as it is meant, with all before it."""
        if id(step) not in self._meant:
            self._meant[id(step)] = self._made(step)
        return self._meant[id(step)]

    def _made(self, step: Step) -> Step:
        made = _with_inputs(step, {id(before): self.meant(before) for before in _steps_in(step)})
        if isinstance(made, Latest) and kind_of(made.streams[0]).name == "changes":
            return made.streams[0]
        if isinstance(made, Aggregate | RollingAggregate) and made.id in self._queried:
            return self._aggregate(made)
        held = kept_too_long(made)
        if held is not None and held.hidden_by is not None and held.hidden_by.id in self._queried:
            return self._over_changes(made)
        return made

    def _aggregate(self, step: Aggregate | RollingAggregate) -> Step:
        """With changes before it if it needs them, and as one that reads changes if it does."""
        needed = counted_again(step) is not None and _is_rolling(step)
        made = self._over_changes(step) if needed else step
        (before,) = made.inputs
        if kind_of(before).name != "changes" or not _is_rolling(step):
            return made
        keys = step.keys if isinstance(step, Aggregate) else step.keys[0] or ()
        return AggregateOfChanges(step.id, (before,), (keys,), step.aggregates)

    def _over_changes(self, step: Step) -> Step:
        """The step with changes before it; as it is where that cannot be: it is refused then, as without SQL."""
        if any(_changes_impossible(before) for before in step.inputs):
            return step
        return _with_inputs(step, {id(before): self._changes(before) for before in step.inputs})

    def _changes(self, step: Step) -> Step:
        """The rows of a step, which are updates, as changes."""
        if id(step) not in self._as_changes:
            self._as_changes[id(step)] = self._changed(step)
        return self._as_changes[id(step)]

    def _changed(self, step: Step) -> Step:
        found = updates_of(step)
        if found is None or found.taken_back:
            return step
        if found.by is step:
            return latest_of(step, f"{step.id}{_LATEST}")
        made = _with_inputs(step, {id(before): self._changes(before) for before in step.inputs})
        return replace(made, id=f"{step.id}{_LATEST}") if step.id in self._twice else made


def _is_rolling(step: Aggregate | RollingAggregate) -> bool:
    return step.window is None if isinstance(step, Aggregate) else not step.per_record


def _changes_impossible(step: Step) -> bool:
    """Whether somewhere up to the steps that give the updates one is in the way, or nothing tells rows apart."""
    found = updates_of(step)
    if found is None or found.taken_back:
        return False
    if found.by is step:
        return kind_of(step).key is None
    if not takes_changes(step) or depends_on_epoch(step):
        return True
    # Of several united streams each may be in the way.
    before = step.streams if isinstance(step, Union) else step.inputs
    return any(_changes_impossible(one) for one in before)


def _steps_in(step: Step) -> list[Step]:
    """The steps that a step knows: its inputs, and of the end of a loop the head."""
    values = [getattr(step, field.name) for field in fields(step)]
    known = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return [one for one in known if isinstance(one, Step)]


def _with_inputs(step: Step, made: dict[int, Step]) -> Step:
    """The step reading others in the place of its inputs; the very step if they are the same."""

    def swapped(value: Any) -> Any:
        if isinstance(value, Step):
            return made.get(id(value), value)
        if isinstance(value, tuple) and any(isinstance(one, Step) for one in value):
            return tuple(map(swapped, value))
        return value

    old = {field.name: getattr(step, field.name) for field in fields(step) if field.init}
    new = {name: swapped(value) for name, value in old.items()}
    same = all(_is_same(new[name], value) for name, value in old.items())
    return step if same else replace(step, **new)


def _is_same(new: Any, old: Any) -> bool:
    if isinstance(new, tuple) and isinstance(old, tuple):
        return len(new) == len(old) and all(one is other for one, other in zip(new, old, strict=True))
    return new is old
