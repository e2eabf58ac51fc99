"""The first rows of each window: ``row_number() OVER (PARTITION BY window_start, window_end, ... ORDER BY ...) <= n``.

The number alone would need all rows of a window. With an upper bound around it, it is ``.top(n, by=...)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from lockstep.api.sql.expressions import aggregates_in, function_of, row_expression
from lockstep.api.sql.locations import QueryText
from lockstep.api.sql.scope import Scope
from lockstep.api.sql.select_list import free_name
from lockstep.errors import ExpressionError, PlanError
from lockstep.plan.event_times import distance_us, moved
from lockstep.plan.expression import Column, Expression
from lockstep.plan.steps import WINDOW_COLUMNS
from lockstep.plan.windows import Tumbling

INSTANT_US = 1
"""Results of a window happen a microsecond before its end. So a window of that length holds those of one window."""
_EXAMPLE = (
    "SELECT ... FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end, user ORDER BY n DESC) "
    "AS place FROM minutes) WHERE place <= 3."
)


@dataclass(frozen=True)
class Ranking:
    """A SELECT whose list has ``row_number() OVER (...) AS name``."""

    select: exp.Select
    name: str
    over: exp.Window

    def ranked(self, scope: Scope, number: int) -> tuple[Scope, str]:
        """The scope of the SELECT with the first ``number`` rows of each window only, and the column of their rank."""
        self._check_plain(scope)
        size_us = self._size_us(scope)
        keys = [name for name in self._partition(scope) if name not in WINDOW_COLUMNS]
        order, ascending = self._order(scope)
        rank = free_name(self.name, list(scope.stream.columns))
        by_key = scope.stream.key_by(*(Column(name) for name in keys)) if keys else scope.stream
        try:
            best = by_key.window(Tumbling(INSTANT_US)).top(number, by=order, ascending=ascending, as_=rank)
        except PlanError as error:
            raise scope.query.located(error, self.over) from None
        stream = best.with_columns(moved("window_end", -size_us).alias("window_start"))
        return replace(scope, stream=stream), rank

    def _check_plain(self, scope: Scope) -> None:
        select = self.select
        inside = [found for item in select.expressions for found in aggregates_in(item)]
        if inside or select.args.get("group") is not None or select.args.get("having") is not None:
            raise self._refused(scope.query, "stands beside an aggregation", "aggregate in a query of its own, inside.")

    def _partition(self, scope: Scope) -> list[str]:
        """The columns of PARTITION BY."""
        found = [row_expression(node, scope) for node in self.over.args.get("partition_by") or ()]
        names = [value.name for value in found if isinstance(value, Column)]
        if len(names) < len(found):
            raise self._refused(
                scope.query, "is divided by something that is no column", "compute it in a query inside."
            )
        return names

    def _size_us(self, scope: Scope) -> int:
        """How long the windows are that the rows are results of."""
        bounds = set(self._partition(scope)) & set(WINDOW_COLUMNS)
        start_us, end_us = (
            distance_us(name, scope.stream._step) if name in scope.stream.columns else None for name in WINDOW_COLUMNS
        )
        if not bounds or start_us is None or end_us != INSTANT_US:
            raise self._refused(
                scope.query,
                "is not divided by window",
                f'{_EXAMPLE} Without windows: stream.key_by("user").top(3, by="n"), as updates.',
                "rows are numbered when a window has ended. It is one of event time with a fixed length, and its "
                "window_start and window_end come from the query inside.",
            )
        return INSTANT_US - start_us

    def _order(self, scope: Scope) -> tuple[Expression, bool]:
        """What rows are ordered by, nulls where SQL puts them, and whether the smallest comes first."""
        clause = self.over.args.get("order")
        parts = clause.expressions if clause is not None else []
        ways = {bool(part.args.get("desc")) for part in parts}
        if len(ways) != 1:
            raise self._refused(
                scope.query,
                "has no ORDER BY" if not parts else "is ordered up and down",
                "ORDER BY n DESC; of a number, ORDER BY n DESC, -place DESC goes the other way.",
            )
        fields: list[exp.Expression] = []
        for number, part in enumerate(parts):
            fields += [exp.Literal.string(f"known_{number}"), _known(part)]
            fields += [exp.Literal.string(f"value_{number}"), part.this.copy()]
        return row_expression(exp.Anonymous(this="named_struct", expressions=fields), scope), ways == {False}

    def _refused(self, query: QueryText, fact: str, hint: str, why: str = "") -> ExpressionError:
        return query.error("LS0233", f"row_number() {fact}", self.over, why=why, hint=hint)


def ranking_of(node: exp.Expression) -> Ranking | None:
    """The ranking of a SELECT that has one; None for anything else."""
    if not isinstance(node, exp.Select):
        return None
    over = [item for item in node.expressions if any(isinstance(part, exp.Window) for part in item.walk())]
    if len(over) != 1 or not isinstance(over[0], exp.Alias) or not isinstance(over[0].this, exp.Window):
        return None
    numbered = function_of(over[0].this.this) == "row_number" and not over[0].this.args.get("spec")
    return Ranking(node, over[0].alias, over[0].this) if numbered else None


def bound_of(select: exp.Select, ranking: Ranking, alias: str, query: QueryText) -> int:
    """The highest number that the WHERE of the query around a ranking (``alias`` there) lets through (LS0233 if there
    is none)."""
    where = select.args.get("where")
    rank = exp.column(ranking.name, table=alias or None)
    bounds = [] if where is None else [_upper(part, rank) for part in _conjuncts(where.this)]
    known = [bound for bound in bounds if bound is not None]
    if not known:
        raise query.error(
            "LS0233",
            "row_number() without an upper bound cannot be used in a stream",
            ranking.over,
            why="all rows of a window would have to be kept until it ends.",
            hint=f"in the query around it: WHERE {ranking.name} <= 3.",
        )
    return min(known)


def _known(part: exp.Expression) -> exp.Expression:
    """Whether a value of ORDER BY is null, or whether it is none: what puts nulls where they belong comes before it."""
    is_null: exp.Expression = exp.Is(this=exp.paren(part.this.copy(), copy=False), expression=exp.Null())
    usual = bool(part.args.get("desc")) != bool(part.args.get("nulls_first"))
    return exp.Not(this=is_null) if usual else is_null


def _conjuncts(condition: exp.Expression) -> Iterator[exp.Expression]:
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        yield from _conjuncts(inner.this)
        yield from _conjuncts(inner.expression)
    else:
        yield inner


def _upper(condition: exp.Expression, rank: exp.Column) -> int | None:
    """The highest whole number that fulfils a comparison of the rank with a number; None for anything else."""
    match condition:
        case exp.LTE() | exp.EQ() | exp.LT() if _is_rank(condition.this, rank):
            bound, below = _whole(condition.expression), isinstance(condition, exp.LT)
        case exp.GTE() | exp.EQ() | exp.GT() if _is_rank(condition.expression, rank):
            bound, below = _whole(condition.this), isinstance(condition, exp.GT)
        case exp.Between() if _is_rank(condition.this, rank):
            bound, below = _whole(condition.args["high"]), False
        case _:
            return None
    return None if bound is None else bound - below


def _is_rank(node: exp.Expression, rank: exp.Column) -> bool:
    if not isinstance(node, exp.Column) or node.name.lower() != rank.name.lower():
        return False
    return node.table.lower() in ("", rank.table.lower())


def _whole(node: exp.Expression) -> int | None:
    inner = node.unnest()
    return int(inner.name) if isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdigit() else None
