"""Which row of a key is the newest: what a step with state in Spark has to remember so that a keyed sink can tell."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.plan.expression import Column, Expression
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.loops import ROUND, LoopHead
from lockstep.plan.stages import Stage
from lockstep.plan.steps import Aggregate, Drop, Rename, Select, Step, Union, WithColumns, _SameColumns


def keeps_positions(stage: Stage) -> frozenset[int]:
    """The ids of the aggregations and joins that keep the newest position of what they put together.

    Their results have no position of their own. A keyed sink needs one where it may get several rows of a key in one
    epoch: from a join, from an aggregation by more than the sink's key, from several aggregations through a union.
    State grows by it, so nobody else pays.
    """
    found: set[int] = set()
    for sink in stage.sinks:
        if sink.spec.key:
            _look(stage, sink, frozenset(sink.spec.key), found)
    return frozenset(found)


def drops_positions(step: Step) -> bool:
    """Whether the results of a step have no position of their own: Spark's steps with state."""
    return step.stateful and not isinstance(step, KeyedStep)


def _look(stage: Stage, step: Step, told_apart: frozenset[str], found: set[int]) -> None:
    """Go up from a sink; ``told_apart`` are the columns here that are equal in all rows of one of its keys."""
    if drops_positions(step):
        keys = {name for name, _ in step.keys} if isinstance(step, Aggregate) else None
        if keys is None or not keys <= told_apart:
            found.add(id(step))
    if step.stateful:
        return
    # Each of several streams may have a row of a key, however well it tells its own apart.
    kept = frozenset() if isinstance(step, Union) and len(step.streams) > 1 else columns_before(step, told_apart)
    for before in step.inputs:
        if not stage.is_cut(step, before):
            _look(stage, before, kept, found)


def columns_before(step: Step, names: frozenset[str]) -> frozenset[str]:
    """Those columns that come into a step which go out, unchanged, under some of these names, as far as it is known."""
    match step:
        case Select():
            return _plain(value for name, value in step.selection if name in names)
        case WithColumns():
            added = dict(step.additions)
            return frozenset(names - added.keys()) | _plain(value for name, value in added.items() if name in names)
        case Rename():
            old = {new: name for name, new in step.renames}
            return frozenset(old.get(name, name) for name in names)
        case LoopHead():
            return names - {ROUND}
        case _SameColumns() | Drop() | Union():
            return names
        case _:
            return frozenset()


def _plain(values: Iterable[Expression]) -> frozenset[str]:
    return frozenset(value.name for value in values if isinstance(value, Column))
