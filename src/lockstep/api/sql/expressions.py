"""Expressions of a query: checked, their names replaced by columns, and kept as texts that Spark reads."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from lockstep.api.sql.locations import QueryText
from lockstep.api.sql.parse import Verbatim
from lockstep.api.sql.scope import Resolved, Scope, refused_here
from lockstep.plan.aggregates import meaning_of
from lockstep.plan.determinism import is_aggregate, refuse, refused
from lockstep.plan.expression import Column, Expression, Sql

WINDOW_FUNCTIONS = frozenset({"window", "tumble", "hop", "session", "session_window"})
WINDOW_BOUNDS = {
    f"{kind}_{edge}": f"window_{edge}" for kind in ("tumble", "hop", "session") for edge in ("start", "end")
}
EPOCH_TIME = "epoch_time"
_UNIT_FIRST = frozenset({"timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff"})
"""Functions whose first of three arguments is a unit of time, written like a column."""

Replace = Callable[[exp.Expression], exp.Expression | None]
"""What stands for a part of an expression; None leaves it and looks inside."""


def row_expression(node: exp.Expression, scope: Scope) -> Expression:
    """An expression over one record of the scope's stream.

    >>> import lockstep as ls
    >>> from lockstep.api.sql.parse import parse
    >>> from lockstep.api.sql.scope import Named
    >>> from lockstep.api.sql.locations import QueryText
    >>> query = QueryText("select lower(User) from logins")
    >>> logins = ls.Job("doc").source("logins", ls.journal("logins", schema="user string"))
    >>> row_expression(parse(query).expressions[0], Scope(query, logins, (Named("logins", {"user": "user"}),)))
    <expression lower(`user`)>
    """
    return as_expression(node, scope.query, lambda part: row_part(part, scope))


def row_text(node: exp.Expression, scope: Scope) -> str | None:
    """The text of an expression over a record, to compare expressions by; None if a name in it is no column."""
    if any(scope.find(column) is None for column in node.find_all(exp.Column) if not is_unit(column)):
        return None
    made = replaced(node, scope.query, lambda part: row_part(part, scope))
    return str(made.sql(dialect=Verbatim, comments=False))


def row_part(part: exp.Expression, scope: Scope) -> exp.Expression | None:
    """The column that stands for a name of the query, or for the epoch time; None for anything else."""
    if isinstance(part, exp.Column) and not is_unit(part):
        return column_node(scope.require(part))
    if scope.epoch_column is not None and is_epoch_time(part):
        return column_node(Resolved(scope.epoch_column))
    return None


def as_expression(node: exp.Expression, query: QueryText, replace: Replace) -> Expression:
    """The expression of a tree in which ``replace`` has put columns in the place of names."""
    made = replaced(node, query, replace)
    if isinstance(made, exp.Column) and len(made.parts) == 1:
        return Column(made.name)
    return Sql(made.sql(dialect=Verbatim, normalize_functions=False, comments=False))


def replaced(node: exp.Expression, query: QueryText, replace: Replace) -> exp.Expression:
    """A copy of a tree in which ``replace`` has put other parts in the place of some."""

    def part_of(part: exp.Expression) -> exp.Expression:
        found = replace(part)
        return _literal_as_written(part, query) if found is None else found

    return node.unnest().copy().transform(part_of, copy=False)


def column_node(resolved: Resolved) -> exp.Expression:
    """A column of the stream as a tree, its name in quotes so that no word is mistaken."""
    parts = [exp.to_identifier(part, quoted=True) for part in (resolved.column, *resolved.fields)]
    return exp.Column(this=parts[0]) if len(parts) == 1 else exp.Dot.build(parts)


def _literal_as_written(part: exp.Expression, query: QueryText) -> exp.Expression:
    """A text in quotes exactly as it was written: Spark has rules of its own for what a backslash means."""
    start, end = part.meta.get("start"), part.meta.get("end")
    if (
        not isinstance(part, exp.Literal)
        or not part.is_string
        or start is None
        or isinstance(part.parent, exp.Interval)
    ):
        return part
    return exp.Var(this=query.text[start : end + 1])


def is_unit(column: exp.Column) -> bool:
    """Whether a name is a unit of time, as in ``timestampadd(HOUR, 1, at)``."""
    call = column.parent
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in _UNIT_FIRST:
        return False
    return len(call.expressions) == 3 and call.expressions[0] is column


def function_of(node: exp.Expression) -> str:
    """The name of the function that ``node`` calls, in small letters; empty if it is no call."""
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""


def is_aggregate_call(node: exp.Expression) -> bool:
    """Whether ``node`` is an aggregate, with or without a FILTER."""
    return is_aggregate(function_of(node.this if isinstance(node, exp.Filter) else node))


def aggregates_in(node: exp.Expression) -> list[exp.Expression]:
    """The outermost aggregates of an expression."""
    if is_aggregate_call(node):
        return [node]
    return [found for child in node.iter_expressions() for found in aggregates_in(child)]


def check_parts(node: exp.Expression, query: QueryText) -> None:
    """Refuse what a stream cannot compute, wherever it stands in an expression: at its place in the text."""
    for part in node.walk():
        if isinstance(part, exp.Window):
            raise query.error(
                "LS0233",
                "OVER cannot be used in a stream",
                part,
                why="rows before and after are not known while a stream runs.",
                hint="GROUP BY user, window(at, '1 minute') computes over windows of time. The first rows of each: "
                "row_number() OVER (PARTITION BY window_start, window_end ORDER BY n) AS place in a query inside, and "
                "WHERE place <= 3 around it.",
            )
        if isinstance(part, (exp.Query, exp.Exists)):
            raise query.error(
                "LS0233",
                "a query inside an expression cannot be used in a stream",
                part,
                why="its answer would change with every epoch, also for records that are long gone.",
                hint="join the streams: FROM a JOIN b ON a.id = b.id AND b.at BETWEEN a.at - INTERVAL 1 HOUR AND a.at.",
            )
        if isinstance(part, (exp.Placeholder, exp.Parameter)):
            raise query.error(
                "LS0233",
                "a query has no parameters",
                part,
                hint="write the value into the text, e.g. with an f-string.",
            )
        _check_function(part, query)


def _check_function(part: exp.Expression, query: QueryText) -> None:
    name = function_of(part)
    if not name or name in WINDOW_FUNCTIONS:
        return
    distinct = any(isinstance(argument, exp.Distinct) for argument in part.expressions)
    asked = f"{name}_distinct" if distinct and name in ("count", "sum") else name
    refusal = refuse(asked, len(part.expressions))
    if refusal is not None and meaning_of(asked) is None:
        raise refused_here(query, part, asked, refused(asked, refusal, "a query"))
    if distinct and name not in ("count", "min", "max", "collect_set", "bool_and", "bool_or"):
        raise query.error("LS0233", f"{name}(DISTINCT ...) cannot be used in a stream", part)


def is_epoch_time(node: exp.Expression) -> bool:
    """Whether ``node`` asks for the epoch time."""
    return function_of(node) == EPOCH_TIME and not node.expressions
