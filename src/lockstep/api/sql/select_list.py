"""The columns of a SELECT list: what each is called and what it is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from lockstep.api.sql.expressions import function_of
from lockstep.api.sql.scope import Scope


@dataclass(frozen=True)
class Item:
    """One column of the result; ``alias`` if the query gave it a name itself."""

    name: str
    node: exp.Expression
    alias: bool = False


def items_of(select: exp.Select, scope: Scope) -> list[Item]:
    """The columns of a SELECT list, ``*`` written out, and a name for each that has none."""
    items: list[Item] = []
    for node in select.expressions:
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            items += _star(node, scope)
        else:
            items.append(_item(node, scope, [item.name for item in items]))
    _check_names(items, scope)
    return items


def _check_names(items: list[Item], scope: Scope) -> None:
    seen: set[str] = set()
    for item in items:
        if item.name.lower() in seen:
            raise scope.query.error(
                "LS0236",
                f'the result would have two columns called "{item.name}"',
                item.node,
                hint=f"give one of them another name: ... AS {free_name(item.name, list(seen))}.",
            )
        seen.add(item.name.lower())


def _item(node: exp.Expression, scope: Scope, taken: list[str]) -> Item:
    if isinstance(node, exp.Alias):
        return Item(node.alias, node.this, alias=True)
    inner = node.unnest()
    if isinstance(inner, exp.Column):
        found = scope.find(inner)
        # A field of a struct is called like the field, a column as it is called in the stream.
        plain = found.column if found is not None and not found.fields and len(scope.tables) == 1 else inner.name
        return Item(plain, inner)
    call = inner.this if isinstance(inner, exp.Filter) else inner
    return Item(free_name(function_of(call) or f"column_{len(taken) + 1}", taken), node)


def free_name(wanted: str, taken: list[str]) -> str:
    """``wanted``, or with a number if it is taken.

    >>> free_name("count", ["user", "Count"])
    'count_2'
    """
    low = {name.lower() for name in taken}
    number, found = 1, wanted
    while found.lower() in low:
        number += 1
        found = f"{wanted}_{number}"
    return found


def _star(star: exp.Expression, scope: Scope) -> list[Item]:
    node = star.this if isinstance(star, exp.Column) else star
    for argument in ("except_", "except", "replace", "rename"):
        if node.args.get(argument):
            raise scope.query.error(
                "LS0233", "* cannot be changed", star, hint="write the columns you want one by one."
            )
    table = star.table if isinstance(star, exp.Column) else ""
    items = []
    for name, column in scope.star(star):
        made = exp.column(exp.to_identifier(name, quoted=True), table=_table_of(table, name, column, scope))
        made.this.meta.update(node.meta)
        items.append(Item(column if len(scope.tables) > 1 else name, made))
    return items


def _table_of(table: str, name: str, column: str, scope: Scope) -> exp.Identifier:
    owner = table or next(one.name for one in scope.tables if one.columns.get(name) == column)
    return exp.to_identifier(owner, quoted=True)
