"""A record for each element of an array or a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.errors import PlanError
from lockstep.plan.draw import words
from lockstep.plan.encode import details
from lockstep.plan.expression import Column, Expression
from lockstep.plan.kinds import takes_changes
from lockstep.plan.schema import Field, Schema, check_names
from lockstep.plan.steps import _OneInput
from lockstep.plan.updates import Updates, updates_of

MAP_NAMES = 2


@dataclass(frozen=True, eq=False)
class Explode(_OneInput):
    """A record for each element; the elements take the place of the array if that is a column, else they come last."""

    stateful = False
    runs_python = False
    value: Expression
    names: tuple[str, ...]
    """What the element is called; two names for the key and the value of a map."""
    outer: bool = False
    """Whether a record without elements is kept, with null as its element."""

    def _check(self) -> None:
        self._check_values(self.expressions)
        check_names(self.columns, self.where)
        if not 1 <= len(self.names) <= MAP_NAMES:
            raise PlanError(
                "LS0175",
                f"{self.where} has {len(self.names)} names for its elements",
                why="the element of an array has one name; that of a map two, for key and value.",
                hint='.explode("items", as_="item"), or .explode("tags", as_=("tag", "value")) for a map.',
            )

    @property
    def replaced(self) -> str | None:
        """The column that the elements take the place of."""
        found = isinstance(self.value, Column) and self.value.name in self.input.columns
        return self.value.name if found and isinstance(self.value, Column) else None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The array or map."""
        return (self.value,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The input's columns with the elements in them."""
        if self.replaced is None:
            return (*self.input.columns, *self.names)
        at = self.input.columns.index(self.replaced)
        return (*self.input.columns[:at], *self.names, *self.input.columns[at + 1 :])

    @property
    def schema_hint(self) -> Schema | None:
        """Known if the array is a column of a known type."""
        before = self.input.schema_hint
        if before is None or self.replaced is None or len(self.names) > 1:
            return None
        kind = before.type_of(self.replaced)
        if not kind.startswith("array<"):
            return None
        element = Field(self.names[0], kind[len("array<") : -1])
        return Schema(tuple(element if field.name == self.replaced else field for field in before.fields))


@words.register
def _(step: Explode) -> str:
    outer = ", records without elements kept" if step.outer else ""
    return f"explode {step.value} as {', '.join(step.names)}{outer}"


@details.register
def _(step: Explode) -> dict[str, Any]:
    return {"value": step.value.to_json(), "names": list(step.names), "outer": step.outer}


@updates_of.register
def _(step: Explode) -> Updates | None:
    """A newer array may be without an element that an older one had: that row is replaced by none."""
    found = updates_of(step.input)
    if found is None:
        return None
    key = found.key.intersection(step.columns).difference(step.names)
    hidden_by = None if found.taken_back else found.hidden_by or step
    return Updates(found.by, key, hidden_by=hidden_by, taken_back=found.taken_back)


@takes_changes.register
def _(step: Explode) -> bool:  # noqa: ARG001
    return True
