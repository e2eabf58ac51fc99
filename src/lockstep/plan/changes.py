"""Steps that know of rows which replace each other: the newest row of each key, aggregates of rows that change, events.

    updates ──latest──▶ changes ──filter, select──▶ changes ──agg──▶ changes ──▶ a keyed sink, which deletes
       └─────as_events──▶ records

A change is a row that begins to hold, or one that is taken back because it holds no longer. The sign travels in a
hidden column beside the row, so that steps which look at one row at a time need not know of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lockstep.errors import PlanError
from lockstep.plan.accumulated import called_aggregate
from lockstep.plan.aggregates import MEANINGS
from lockstep.plan.draw import words
from lockstep.plan.encode import details, named_json
from lockstep.plan.expression import Call, Column, Expression
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.kinds import SIGN, kind_of, takes_changes
from lockstep.plan.rolling import _Aggregating
from lockstep.plan.schema import Schema, check_names
from lockstep.plan.steps import Named, Step, _SameColumns
from lockstep.plan.updates import Updates, updates_of

CHANGE = Call(SIGN)
"""The sign of a row: 1 if it begins to hold, -1 if it is taken back. A record begins to hold."""


@dataclass(frozen=True, eq=False)
class AsEvents(_SameColumns):
    """Every result as a record of its own, whether or not another one replaces it."""

    stateful = False
    runs_python = False

    def _check(self) -> None:
        """There is nothing that could be wrong with it."""


@dataclass(frozen=True, eq=False)
class Latest(KeyedStep):
    """The newest row of each key. A new one takes back the row that it replaces, and then comes itself."""

    stateful = True
    runs_python = True
    calls_user_code = False
    keeps_times = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the input."""
        return self.streams[0].columns

    @property
    def schema_hint(self) -> Schema | None:
        """The types of the input."""
        return self.streams[0].schema_hint


@dataclass(frozen=True, eq=False)
class AggregateOfChanges(_Aggregating):
    """Aggregates of the rows that hold now: a row that is taken back counts no longer, a key without rows is gone."""

    stateful = True
    runs_python = True
    calls_user_code = False
    keeps_times = False
    aggregates: Named

    def _check(self) -> None:
        super()._check()
        check_names(self.columns, self.where)
        assert self.accumulated, "an aggregation without aggregates"
        for name, value in self.aggregates:
            _check_order_free(name, value, self.where)

    def computed(self, number: int) -> Named:  # noqa: ARG002
        """The inputs of the aggregates that are no columns, then such keys; the sign comes last."""
        return (*self.layout.computed, *self.computed_keys, ("__change", CHANGE))

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys, then the aggregates."""
        return (*self.key_names, *(name for name, _ in self.aggregates))


def latest_of(step: Step, step_id: str) -> Latest:
    """The newest row of each key of updates that are told apart by columns."""
    key = kind_of(step).key
    assert key is not None, "rows that nothing tells apart"
    return Latest(step_id, (step,), (tuple((name, Column(name)) for name in key),))


def _check_order_free(name: str, value: Expression, where: str) -> None:
    """Rows that change have no order: the newest change of a row says nothing about the other rows."""
    function = (called_aggregate(value) or ("", ()))[0]
    if function and MEANINGS[function].ordered:
        raise PlanError(
            "LS0128",
            f'"{name}" of {where} is {function} of rows that change',
            why=f"{function} asks which row came first, and rows that replace each other have no such order.",
            hint="use an aggregate that does not depend on the order (min, max, collect_set), or .as_events() before "
            "the aggregation: then every result is a record, in the order in which it came.",
        )


@takes_changes.register(AsEvents)
@takes_changes.register(AggregateOfChanges)
def _(step: AsEvents | AggregateOfChanges) -> bool:  # noqa: ARG001
    return True


@updates_of.register
def _(step: Latest) -> Updates | None:
    found = updates_of(step.streams[0])
    return found and replace(found, by=step, rising=frozenset(), falling=frozenset(), hidden_by=None, taken_back=True)


@updates_of.register
def _(step: AggregateOfChanges) -> Updates:
    names = frozenset(step.key_names)
    return Updates(step, names, identity=names, taken_back=True)


@words.register
def _(step: AsEvents) -> str:  # noqa: ARG001
    return "every result as a record of its own"


@words.register
def _(step: Latest) -> str:
    return f"the newest row by {', '.join(step.key_names)}"


@words.register
def _(step: AggregateOfChanges) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in step.aggregates)
    return f"aggregate by {', '.join(step.key_names)} of the rows that hold: {values}"


@details.register
def _(step: AsEvents) -> dict[str, Any]:  # noqa: ARG001  (its input says it all)
    return {}


@details.register
def _(step: Latest) -> dict[str, Any]:
    return {"keys": named_json(step.keys[0] or ()), "record": list(step.columns)}


@details.register
def _(step: AggregateOfChanges) -> dict[str, Any]:
    return {"keys": named_json(step.keys[0] or ()), "aggregates": named_json(step.aggregates)}
