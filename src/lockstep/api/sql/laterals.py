"""LATERAL VIEW: a record for each element of an array or a map."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from lockstep.api.sql.expressions import check_parts, function_of, row_expression
from lockstep.api.sql.scope import Named, Scope
from lockstep.api.sql.select_list import free_name
from lockstep.plan.expression import Column, Sql

_HINT = "LATERAL VIEW [OUTER] explode(tags) t AS tag, or AS key, value for a map."


def exploded(scope: Scope, lateral: exp.Lateral) -> Scope:
    """The scope after one ``LATERAL VIEW explode(...) t AS tag``: its elements are the columns of the table ``t``."""
    call = lateral.this
    function = function_of(call)
    if function not in ("explode", "explode_outer") or len(call.expressions) != 1:
        raise scope.query.error("LS0233", f"LATERAL VIEW {function or ''}(...) cannot be used", call, hint=_HINT)
    (array,) = call.expressions
    check_parts(array, scope.query)
    value = row_expression(array, scope)
    if isinstance(value, Column):
        # An array that is given as a column would be replaced by its elements; here both are there.
        value = Sql(f"`{value.name}`")
    alias = lateral.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
    table = alias.name if alias is not None else "view"
    named: dict[str, str] = {}
    for name in names or ["col"]:
        named[name] = free_name(name, [*scope.stream.columns, *named.values()])
    if len(named) > 2:
        raise scope.query.error("LS0233", f"{len(named)} names for an element", lateral, hint=_HINT)
    outer = bool(lateral.args.get("outer")) or function == "explode_outer"
    first, *others = named.values()
    stream = scope.stream.explode(value, as_=(first, others[0]) if others else first, outer=outer)
    return replace(scope, stream=stream, tables=(*scope.tables, Named(table, named)))
