"""JOIN: the equalities and the time bound of ON become an interval join, or a join with a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from lockstep.api.sql.conditions import On, on_of
from lockstep.api.sql.expressions import row_expression
from lockstep.api.sql.scope import Named, Scope
from lockstep.api.sql.select_list import free_name
from lockstep.api.stream import Stream
from lockstep.errors import ExpressionError
from lockstep.plan.expression import Column, Expression
from lockstep.plan.specs import TableSpec

How = Literal["inner", "left", "right", "full"]
_HOWS: dict[str, How] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True)
class _Join:
    """Both sides before they are joined. The right one knows its columns by the names they will have afterwards."""

    left: Scope
    right: Scope
    how: How
    node: exp.Join

    @property
    def tables(self) -> tuple[Named, ...]:
        """The tables of both sides."""
        return (*self.left.tables, *self.right.tables)

    def error(
        self, fact: str, place: exp.Expression | None = None, *, why: str = "", hint: str = ""
    ) -> ExpressionError:
        """LS0237 at a place of the join."""
        return self.left.query.error("LS0237", fact, place or self.node.args.get("on") or self.node, why=why, hint=hint)


def joined(left: Scope, node: exp.Join, name: str, right: Stream | TableSpec) -> Scope:
    """The scope after one JOIN with a stream or a table."""
    how = _how(node, left)
    if name.lower() in {table.name.lower() for table in left.tables}:
        raise left.query.error(
            "LS0237", f'two tables are called "{name}"', node.this, hint=f"JOIN {name} AS other ON ..."
        )
    if not isinstance(right, Stream):
        return _with_table(left, node, name, right, how)
    names = _new_names(name, right.columns, left)
    if any(old != new for old, new in names.items()):
        right = right.select(*(Column(old).alias(new) for old, new in names.items()))
    return _with_stream(_Join(left, Scope(left.query, right, (Named(name, names),)), how, node))


def _how(node: exp.Join, scope: Scope) -> How:
    kind, side, method = (str(node.args.get(key) or "").upper() for key in ("kind", "side", "method"))
    if kind in ("", "INNER", "OUTER") and not method and (node.args.get("on") or node.args.get("using")):
        if node.args.get("using") and side in ("RIGHT", "FULL"):
            raise scope.query.error(
                "LS0237", f"USING does not go with a {side} JOIN here", node.this, hint="ON a.id = b.id."
            )
        return _HOWS[side]
    words = " ".join(word for word in (method, side, kind) if word)
    raise scope.query.error(
        "LS0237",
        f"{words} JOIN cannot be used in a stream" if words else "the join has no ON",
        node.this,
        why="records are brought together by equal keys.",
        hint="FROM a [LEFT | RIGHT | FULL] JOIN b ON a.id = b.id AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR.",
    )


def _new_names(table: str, columns: tuple[str, ...], left: Scope) -> dict[str, str]:
    """What the right columns are called after the join: with the table's name before them where both sides have one."""
    names: dict[str, str] = {}
    for column in columns:
        taken = [*left.stream.columns, *names.values()]
        clashes = column.lower() in {name.lower() for name in taken}
        names[column] = free_name(f"{table}_{column}" if clashes else column, taken)
    return names


def _with_stream(join: _Join) -> Scope:
    on = on_of(join.node, join.left, join.right)
    _check_pairs(on, join)
    if on.lower_us is None or on.upper_us is None:
        raise join.error(
            "the join of two streams has no time bound"
            if on.lower_us == on.upper_us
            else "the time bound has one side only",
            why="a record would have to be kept for ever, since its partner may still come.\n"
            "The bound compares the event times of both streams.",
            hint="ON a.id = b.id AND b.at BETWEEN a.at - INTERVAL 5 MINUTES AND a.at + INTERVAL 10 MINUTES.",
        )
    join = _filtered_before(join, on)
    left = [row_expression(value, join.left) for value, _ in on.pairs]
    right = [row_expression(value, join.right) for _, value in on.pairs]
    left_stream, left_keys = _keyed(join, join.left.stream, left, right)
    right_stream, right_keys = _keyed(join, join.right.stream, right, left)
    stream = left_stream.join(
        right_stream,
        on=dict(zip(left_keys, right_keys, strict=True)),
        how=join.how,
        between=(f"{on.lower_us} us", f"{on.upper_us} us"),
    )
    merged = dict(zip(right_keys, left_keys, strict=True))
    tables = tuple(_without(table, merged, stream.columns) for table in join.tables)
    return _filtered_after(replace(join.left, stream=stream, tables=_using(join, tables)), join, on)


def _keyed(join: _Join, stream: Stream, own: list[Expression], other: list[Expression]) -> tuple[Stream, list[str]]:
    """The stream with a column for each key. A join merges the key columns of both sides into one, so outer joins get
    columns of their own for it: ``b.id`` is null where there is no b."""
    names = [value.name for value in own if isinstance(value, Column)]
    plain = len(set(names)) == len(own) and all(isinstance(value, Column) for value in other)
    others = {value.name for value in other if isinstance(value, Column)}
    if join.how == "inner" and plain and len(others) == len(other):
        return stream, names
    taken = [*join.left.stream.columns, *join.right.stream.columns]
    fresh: list[str] = []
    for _ in own:
        fresh.append(free_name("join_key", [*taken, *fresh]))
    return stream.with_columns(*(value.alias(name) for value, name in zip(own, fresh, strict=True))), fresh


def _without(table: Named, merged: dict[str, str], columns: tuple[str, ...]) -> Named:
    """The table with its merged key columns where they are now."""
    return Named(
        table.name, {name: column if column in columns else merged[column] for name, column in table.columns.items()}
    )


def _using(join: _Join, tables: tuple[Named, ...]) -> tuple[Named, ...]:
    """With USING a key is one column, that of the left side, also without the table's name before it."""
    using = {name.name.lower() for name in join.node.args.get("using") or ()}
    *left, right = tables
    return (
        *left,
        Named(right.name, {name: column for name, column in right.columns.items() if name.lower() not in using}),
    )


def _check_pairs(on: On, join: _Join) -> None:
    for value, other in on.pairs:
        for node, scope in ((value, join.left), (other, join.right)):
            if isinstance(node, exp.Column):
                scope.require(node)
    if not on.pairs:
        raise join.error(
            "the join compares no keys",
            why="records are brought together by equal keys.",
            hint="ON a.id = b.id AND ...",
        )


def _filtered_before(join: _Join, on: On) -> _Join:
    """Conditions on one side of an outer join that only decide who may be a partner: that side is filtered first."""
    if join.how == "left" and "right" in on.rest:
        return replace(join, right=_filtered(join.right, on.rest.pop("right")))
    if join.how == "right" and "left" in on.rest:
        return replace(join, left=_filtered(join.left, on.rest.pop("left")))
    return join


def _filtered_after(scope: Scope, join: _Join, on: On) -> Scope:
    rest = [condition for conditions in on.rest.values() for condition in conditions]
    if not rest:
        return scope
    if join.how != "inner":
        raise join.error(
            f"this condition cannot be part of a {join.how.upper()} JOIN",
            rest[0],
            why="records without a partner come out too, and it compares more than keys and event times.",
            hint="put it into WHERE, or filter that side in a query before the join.",
        )
    return _filtered(scope, rest)


def _filtered(scope: Scope, conditions: list[exp.Expression]) -> Scope:
    stream = scope.stream
    for condition in conditions:
        stream = stream.filter(row_expression(condition, scope))
    return replace(scope, stream=stream)


def _with_table(left: Scope, node: exp.Join, name: str, table: TableSpec, how: How) -> Scope:
    if how not in ("inner", "left"):
        raise left.query.error(
            "LS0237", f"a table cannot be the kept side of a {how.upper()} JOIN", node.this, hint="JOIN or LEFT JOIN."
        )
    columns = {column: column for column in table.schema.names}
    join = _Join(left, replace(left, tables=(Named(name, columns),)), how, node)
    on = on_of(node, left, join.right)
    _check_pairs(on, join)
    keys = [other for _, other in on.pairs]
    for key in keys:
        if not isinstance(key, exp.Column):
            raise join.error("the key of a table has to be one of its columns", key, hint="compute it in the file.")
    own = [row_expression(value, left) for value, _ in on.pairs]
    stream, names = _table_keys(left.stream, own)
    pairs = dict(zip(names, (join.right.require(key).column for key in keys), strict=True))
    made = stream.join(table, on=pairs, how=how, suffixes=("", f"_{name}"))
    merged = {right: left_name for left_name, right in pairs.items()}
    return _filtered_after(_table_scope(join, made, merged), join, on)


def _table_keys(stream: Stream, own: list[Expression]) -> tuple[Stream, list[str]]:
    names = [value.name for value in own if isinstance(value, Column)]
    if len(set(names)) == len(own):
        return stream, names
    fresh: list[str] = []
    for _ in own:
        fresh.append(free_name("join_key", [*stream.columns, *fresh]))
    return stream.with_columns(*(value.alias(name) for value, name in zip(own, fresh, strict=True))), fresh


def _table_scope(join: _Join, stream: Stream, merged: dict[str, str]) -> Scope:
    """The names after a join with a table. Its key is the stream's; where a row may be missing, it has none."""
    suffixed: dict[str, str] = {}
    for column in join.right.tables[0].columns:
        if column in merged:
            if join.how == "inner":
                suffixed[column] = merged[column]
            continue
        ended = f"{column}_{join.right.tables[0].name}"
        suffixed[column] = ended if ended in stream.columns else column
    tables = (*join.left.tables, Named(join.right.tables[0].name, suffixed))
    return replace(join.left, stream=stream, tables=_using(join, tables))
