"""What the ON of a join says, sorted: equal keys, bounds in time, and whatever else has to hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from lockstep.api.sql.expressions import check_parts, is_unit
from lockstep.api.sql.scope import Scope
from lockstep.api.sql.windows import interval_us
from lockstep.plan.event_times import distance_us

Side = Literal["left", "right"]
_COMPARISONS = (exp.GTE, exp.LTE)


@dataclass
class On:
    """Equal expressions (left, right); bounds of the right time minus the left time; the other conditions by side."""

    pairs: list[tuple[exp.Expression, exp.Expression]] = field(default_factory=list)
    lower_us: int | None = None
    upper_us: int | None = None
    rest: dict[Side | None, list[exp.Expression]] = field(default_factory=dict)

    def at_least(self, us: int) -> None:
        """The right record happened at least so much after the left one."""
        self.lower_us = us if self.lower_us is None else max(self.lower_us, us)

    def at_most(self, us: int) -> None:
        """The right record happened at most so much after the left one."""
        self.upper_us = us if self.upper_us is None else min(self.upper_us, us)


def on_of(join: exp.Join, left: Scope, right: Scope) -> On:
    """The conditions of ``ON ...`` or ``USING (...)``."""
    on = On()
    for name in join.args.get("using") or ():
        on.pairs.append((exp.column(name.copy()), exp.column(name.copy())))
    condition = join.args.get("on")
    if condition is not None:
        check_parts(condition, left.query)
        for part in condition.unnest().flatten() if isinstance(condition.unnest(), exp.And) else [condition.unnest()]:
            _take(part.unnest(), on, left, right)
    return on


def _take(part: exp.Expression, on: On, left: Scope, right: Scope) -> None:
    if isinstance(part, exp.Between):
        low, high = (
            exp.GTE(this=part.this, expression=part.args["low"]),
            exp.LTE(this=part.this, expression=part.args["high"]),
        )
        if _take_bound(low, on, left, right) and _take_bound(high, on, left, right):
            return
    if isinstance(part, _COMPARISONS) and _take_bound(part, on, left, right):
        return
    if isinstance(part, exp.EQ):
        sides = side_of(part.this, left, right), side_of(part.expression, left, right)
        if sides == ("left", "right"):
            on.pairs.append((part.this, part.expression))
            return
        if sides == ("right", "left"):
            on.pairs.append((part.expression, part.this))
            return
    on.rest.setdefault(side_of(part, left, right), []).append(part)


def _take_bound(part: exp.Expression, on: On, left: Scope, right: Scope) -> bool:
    """Take ``b.at >= a.at - INTERVAL ...`` as a bound; False if it is something else."""
    first, second = _moment(part.this, left, right), _moment(part.expression, left, right)
    if first is None or second is None or first[0] == second[0]:
        return False
    greater, less = (first, second) if isinstance(part, exp.GTE) else (second, first)
    if greater[0] == "right":
        on.at_least(less[1] - greater[1])
    else:
        on.at_most(greater[1] - less[1])
    return True


def _moment(node: exp.Expression, left: Scope, right: Scope) -> tuple[Side, int] | None:
    """The event time of one side, moved by so many microseconds; None if it is anything else."""
    node = node.unnest()
    if isinstance(node, (exp.Add, exp.Sub)):
        moment, moved = _moment(node.this, left, right), interval_us(node.expression)
        if moment is None or moved is None:
            return None
        return moment[0], moment[1] + (moved if isinstance(node, exp.Add) else -moved)
    side = side_of(node, left, right)
    if not isinstance(node, exp.Column) or side is None:
        return None
    scope = left if side == "left" else right
    found = scope.require(node)
    distance = None if found.fields else distance_us(found.column, scope.stream._step)
    return None if distance is None else (side, distance)


def side_of(node: exp.Expression, left: Scope, right: Scope) -> Side | None:
    """Which side all the columns of an expression belong to; None if they belong to both, or there are none."""
    sides: set[Side] = set()
    for column in node.find_all(exp.Column):
        if is_unit(column):
            continue
        both = Scope(left.query, left.stream, (*left.tables, *right.tables))
        both.require(column)
        sides.add("left" if left.find(column) is not None else "right")
    return sides.pop() if len(sides) == 1 else None
