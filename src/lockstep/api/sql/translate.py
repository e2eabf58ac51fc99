"""A query as steps: each clause becomes the step that the method of the same meaning would make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from lockstep.api.sql.expressions import EPOCH_TIME, aggregates_in, check_parts, is_epoch_time, row_expression
from lockstep.api.sql.grouping import Grouping
from lockstep.api.sql.joins import joined
from lockstep.api.sql.laterals import exploded
from lockstep.api.sql.locations import QueryText
from lockstep.api.sql.ranking import Ranking, bound_of, ranking_of
from lockstep.api.sql.refusals import check_clauses
from lockstep.api.sql.scope import Named, Scope, stream_named
from lockstep.api.sql.select_list import Item, free_name, items_of
from lockstep.api.stream import Stream
from lockstep.plan.expression import Column, Expression, epoch_time
from lockstep.plan.schema import did_you_mean

Values = list[tuple[str, Expression]]


@dataclass(frozen=True)
class Translator:
    """Turns the trees of one query into streams; ``streams`` and ``tables`` are those that it may name."""

    query: QueryText
    streams: Mapping[str, Stream]
    tables: Mapping[str, Any]
    rankings: Mapping[str, tuple[Translator, Ranking]] = field(default_factory=dict)
    """Queries of a WITH clause that number the rows of windows, by name: who reads them says how many are wanted."""

    def stream(self, node: exp.Expression) -> Stream:
        """The stream of a SELECT, a UNION ALL, or one of them in parentheses."""
        inside = self._with_ctes(node)
        if isinstance(node, exp.Subquery):
            check_clauses(node, self.query)
            return inside.stream(node.this)
        if isinstance(node, exp.SetOperation):
            return inside._union(node)
        return inside._select(node)

    def _with_ctes(self, node: exp.Expression) -> Translator:
        """The same with the queries of a WITH clause as further streams; each may use those before it."""
        clause = node.args.get("with_")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            raise self.query.error(
                "LS0233",
                "WITH RECURSIVE cannot be used in a stream",
                clause,
                hint="loops are written stream.iterate(body).",
            )
        inside = self
        for cte in clause.expressions:
            # A name of the query hides a stream of the job, whatever its case.
            name = cte.alias.lower()
            streams = {other: one for other, one in inside.streams.items() if other.lower() != name}
            rankings = {other: one for other, one in inside.rankings.items() if other != name}
            ranking = ranking_of(cte.this)
            if ranking is None:
                streams[cte.alias] = inside._renamed(inside.stream(cte.this), cte)
            elif cte.args["alias"].args.get("columns"):
                raise self.query.error(
                    "LS0233",
                    "a list of columns behind WITH cannot be used for a query with row_number()",
                    cte.args["alias"],
                    hint="name the columns inside, with AS.",
                )
            else:
                rankings[name] = inside._with_ctes(cte.this), ranking
            inside = replace(inside, streams=streams, rankings=rankings)
        return inside

    def _renamed(self, stream: Stream, node: exp.Expression) -> Stream:
        """The stream with the names of ``AS x(a, b)``, if there are any."""
        alias = node.args.get("alias")
        names = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
        if not names:
            return stream
        if len(names) != len(stream.columns):
            raise self.query.error(
                "LS0236",
                f"{len(names)} names for {len(stream.columns)} columns",
                alias,
                why=f"columns: {', '.join(stream.columns)}.",
            )
        return _selected(stream, [(new, Column(old)) for new, old in zip(names, stream.columns, strict=True)])

    def _union(self, node: exp.SetOperation) -> Stream:
        check_clauses(node, self.query)
        streams = [self.stream(side) for side in _sides(node)]
        first = streams[0]
        for side, other in zip(_sides(node), streams, strict=True):
            if len(other.columns) != len(first.columns):
                raise self.query.error(
                    "LS0236",
                    f"UNION ALL of {len(first.columns)} and of {len(other.columns)} columns",
                    side,
                    why=f"the first has: {', '.join(first.columns)}; this one: {', '.join(other.columns)}.",
                )
        # SQL counts columns, streams name them.
        alike = [
            _selected(one, [(new, Column(old)) for new, old in zip(first.columns, one.columns, strict=True)])
            for one in streams[1:]
        ]
        return first.union(*alike)

    def _select(self, select: exp.Select) -> Stream:
        scope = self._records(select, select.expressions)
        items = items_of(select, scope)
        group, having = select.args.get("group"), select.args.get("having")
        if group is not None or having is not None or any(aggregates_in(item.node) for item in items):
            return self._grouped(scope, items, group, having)
        return _selected(scope.stream, [(item.name, row_expression(item.node, scope)) for item in items])

    def _records(self, select: exp.Select, selected: list[exp.Expression]) -> Scope:
        """What FROM gives, as far as WHERE lets it through; ``selected`` are the parts of the SELECT list to check."""
        check_clauses(select, self.query)
        scope = self._with_epoch_time(self._from(select), select)
        for node in (*selected, *_clauses(select)):
            check_parts(node, self.query)
        where = select.args.get("where")
        if where is None:
            return scope
        self._check_no_aggregate(where, "WHERE")
        return replace(scope, stream=scope.stream.filter(row_expression(where.this, scope)))

    def _first_rows(self, ranking: Ranking, number: int) -> Stream:
        """The first rows of each window, with the columns of the SELECT that numbers them."""
        select = ranking.select
        plain = [item for item in select.expressions if item.this is not ranking.over]
        for part in (*(ranking.over.args.get("partition_by") or ()), *filter(None, [ranking.over.args.get("order")])):
            check_parts(part, self.query)
        scope = self._records(select, plain)
        items = items_of(select, scope)
        ranked, rank = ranking.ranked(scope, number)
        return _selected(
            ranked.stream,
            [
                (item.name, Column(rank) if item.node is ranking.over else row_expression(item.node, ranked))
                for item in items
            ],
        )

    def _grouped(self, scope: Scope, items: list[Item], group: Any, having: Any) -> Stream:
        grouping = Grouping(scope, items)
        grouping.group_by(group)
        values = [(item.name, grouping.value(item.node)) for item in items]
        condition = grouping.value(having.this, aliases=True) if having is not None else None
        stream = grouping.stream()
        return _selected(stream if condition is None else stream.filter(condition), values)

    def _from(self, select: exp.Select) -> Scope:
        clause = select.args.get("from_")
        if clause is None:
            raise self.query.error("LS0231", "the query has no FROM", select, hint="SELECT ... FROM logins.")
        name, stream = self._first_table(clause.this, select)
        scope = Scope(self.query, stream, (Named(name, {column: column for column in stream.columns}),))
        for lateral in select.args.get("laterals") or ():
            scope = exploded(scope, lateral)
        for join in select.args.get("joins") or ():
            scope = joined(scope, join, *self._joined_table(join.this))
        return scope

    def _first_table(self, node: exp.Expression, select: exp.Select) -> tuple[str, Stream]:
        """What stands behind FROM; of a query that numbers rows as many as the SELECT around it lets through."""
        found = self.rankings.get(node.name.lower()) if _is_plain(node) else None
        if isinstance(node, exp.Subquery) and (ranking := ranking_of(node.this)) is not None:
            found = self._with_ctes(node.this), ranking
        if found is None:
            return self._table(node)
        check_clauses(node, self.query)
        inside, ranking = found
        alias = node.alias_or_name
        stream = inside._first_rows(ranking, bound_of(select, ranking, alias, self.query))
        return alias or "subquery", self._renamed(stream, node)

    def _joined_table(self, node: exp.Expression) -> tuple[str, Any]:
        """The name and the stream, or the table, of what stands behind JOIN."""
        if isinstance(node, exp.Table):
            found = next((name for name in self.tables if name.lower() == node.name.lower()), None)
            if found is not None:
                return node.alias_or_name, self.tables[found]
        return self._table(node)

    def _table(self, node: exp.Expression) -> tuple[str, Stream]:
        """What a part of FROM is called, and its stream."""
        check_clauses(node, self.query)
        if isinstance(node, exp.Subquery):
            return node.alias or "subquery", self._renamed(self.stream(node.this), node)
        found = stream_named(node.name, self.streams) if _is_plain(node) else None
        if found is not None:
            return node.alias_or_name, self._renamed(found, node)
        if node.name.lower() in {name.lower() for name in self.tables}:
            raise self.query.error(
                "LS0231",
                f'"{node.name}" is a table, not a stream',
                node,
                why="a table never changes: a query starts from a stream.",
                hint=f"FROM a_stream JOIN {node.name} ON ...",
            )
        raise self.query.error(
            "LS0231",
            f'unknown stream "{node.sql()}"',
            node.this,
            why=f"the job has: {', '.join(self.streams) or 'no streams yet'}.",
            hint=did_you_mean(node.name, list(self.streams)) or "pass it by name: job.sql(..., logins=logins).",
        )

    def _with_epoch_time(self, scope: Scope, select: exp.Select) -> Scope:
        """The scope with a column for the epoch time, if the query asks for it: texts in SQL cannot read it."""
        own = (*select.expressions, *_clauses(select))
        if not any(is_epoch_time(part) for node in own for part in node.find_all(exp.Anonymous)):
            return scope
        name = free_name(EPOCH_TIME, list(scope.stream.columns))
        return replace(scope, stream=scope.stream.with_columns(epoch_time().alias(name)), epoch_column=name)

    def _check_no_aggregate(self, node: exp.Expression, clause: str) -> None:
        found = aggregates_in(node)
        if found:
            raise self.query.error(
                "LS0235",
                f"{clause} has an aggregate function",
                found[0],
                why=f"{clause} looks at one record at a time, before they are grouped.",
                hint="HAVING looks at groups.",
            )


def _clauses(select: exp.Select) -> list[exp.Expression]:
    return [select.args[name] for name in ("where", "group", "having") if select.args.get(name) is not None]


def _sides(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.SetOperation) and node.args.get("with_") is None:
        return [*_sides(node.this), *_sides(node.expression)]
    return [node]


def _is_plain(table: exp.Expression) -> bool:
    return isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) and not table.db


def _selected(stream: Stream, values: Values) -> Stream:
    """The stream with these columns only; the very stream where that changes nothing."""
    same = [name for name, value in values if isinstance(value, Column) and value.name == name]
    if len(same) == len(values) and tuple(same) == stream.columns:
        return stream
    return stream.select(*(value.alias(name) for name, value in values))
