"""GROUP BY, aggregates and HAVING: one aggregation, and what is computed from its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from lockstep.api.functions import F
from lockstep.api.sql.expressions import (
    EPOCH_TIME,
    WINDOW_BOUNDS,
    WINDOW_FUNCTIONS,
    aggregates_in,
    as_expression,
    column_node,
    function_of,
    is_aggregate_call,
    is_epoch_time,
    is_unit,
    replaced,
    row_expression,
    row_text,
)
from lockstep.api.sql.scope import Resolved, Scope
from lockstep.api.sql.select_list import Item, free_name
from lockstep.api.sql.windows import time_of, window_of
from lockstep.api.stream import Stream
from lockstep.errors import ExpressionError
from lockstep.plan.expression import Column, Expression, Literal
from lockstep.plan.steps import WINDOW_COLUMNS
from lockstep.plan.windows import Session, Sliding, Tumbling

_WINDOW_NAMES = {
    ("window_start",): "window_start",
    ("window_end",): "window_end",
    ("window", "start"): "window_start",
    ("window", "end"): "window_end",
    ("session_window", "start"): "window_start",
    ("session_window", "end"): "window_end",
}
_SAME = {"any": "some"}
"""Aggregates that `F` knows under another name only."""
_NULLS_COUNT = ("first", "first_value", "any_value", "last", "last_value")


@dataclass
class Grouping:
    """One aggregation in the making. Ask for all values first: each adds the aggregates it needs; then the stream."""

    scope: Scope
    items: list[Item]
    keys: dict[str, tuple[str, Expression]] = field(default_factory=dict)
    window: Tumbling | Sliding | Session | None = None
    over: str = ""
    """The column that puts records into the window."""
    aggregates: dict[str, tuple[str, Expression]] = field(default_factory=dict)

    def group_by(self, group: exp.Group | None) -> None:
        """Take the keys and the window of a GROUP BY clause."""
        for written in group.expressions if group is not None else ():
            node = self._meant(written)
            inside = aggregates_in(node)
            if inside:
                raise self.scope.query.error(
                    "LS0235", "GROUP BY has an aggregate function", inside[0], why="keys are known before aggregates."
                )
            if function_of(node) in WINDOW_FUNCTIONS:
                self._take_window(node)
            else:
                self._take_key(node)

    def value(self, node: exp.Expression, *, aliases: bool = False) -> Expression:
        """An expression over the aggregation's result; with ``aliases``, names of the SELECT list may be used."""
        return as_expression(node, self.scope.query, lambda part: self._part(part, aliases))

    def stream(self) -> Stream:
        """The aggregation as a stream: keys, window, aggregates."""
        keys = [value.alias(name) for name, value in self.keys.values()]
        aggregates = [value.alias(name) for name, value in self.aggregates.values()]
        if not aggregates:
            aggregates = [F.count("*").alias(self._free("count"))]
        if not keys and self.window is None:
            keys = [Literal(1).alias(self._free("everything"))]
        if self.window is None:
            return self.scope.stream.key_by(*keys).agg(*aggregates)
        if not keys:
            return self.scope.stream.window(self.window, over=self.over).agg(*aggregates)
        return self.scope.stream.key_by(*keys).window(self.window, over=self.over).agg(*aggregates)

    def _meant(self, node: exp.Expression) -> exp.Expression:
        """What GROUP BY groups by: a number is a column of the SELECT list, a name may be an alias from there."""
        inner = node.unnest()
        if isinstance(inner, exp.Literal) and not inner.is_string:
            number = int(inner.name) if inner.name.isdigit() else 0
            if not 1 <= number <= len(self.items):
                raise self.scope.query.error(
                    "LS0235", f"GROUP BY {inner.name}: the SELECT list has {len(self.items)} columns", inner
                )
            return self.items[number - 1].node.unnest()
        if isinstance(inner, exp.Column) and self.scope.find(inner) is None and len(inner.parts) == 1:
            return self._aliased(inner.name) or inner
        return inner

    def _aliased(self, name: str) -> exp.Expression | None:
        found = [item.node for item in self.items if item.alias and item.name.lower() == name.lower()]
        return found[0].unnest() if found else None

    def _take_window(self, call: exp.Anonymous) -> None:
        if self.window is not None:
            raise self.scope.query.error("LS0234", "there are two windows in GROUP BY", call, hint="keep one of them.")
        self.window = window_of(call, self.scope)
        self.over = time_of(call, self.scope)

    def _take_key(self, node: exp.Expression) -> None:
        if isinstance(node, exp.Column) and self.scope.find(node) is None:
            raise self.scope.unknown(node, [item.name for item in self.items if item.alias])
        expression = row_expression(node, self.scope)
        text = str(row_text(node, self.scope))
        if text in self.keys:
            return
        wanted = self._wanted_name(text) or (expression.name if isinstance(expression, Column) else "key")
        self.keys[text] = (self._free(wanted), expression)

    def _wanted_name(self, text: str) -> str | None:
        """The name that the SELECT list gives to an expression, to spare a step that only renames."""
        return next((item.name for item in self.items if row_text(item.node, self.scope) == text), None)

    def _free(self, wanted: str) -> str:
        taken = [name for name, _ in (*self.keys.values(), *self.aggregates.values())]
        return free_name(wanted, [*taken, *WINDOW_COLUMNS])

    def _part(self, part: exp.Expression, aliases: bool) -> exp.Expression | None:
        """What stands for a part of an expression after the aggregation."""
        found = self._window_part(part)
        if found is not None:
            return found
        if is_aggregate_call(part):
            return column_node(Resolved(self._aggregate(part)))
        text = row_text(part, self.scope)
        if text is not None and text in self.keys:
            return column_node(Resolved(self.keys[text][0]))
        if isinstance(part, exp.Column) and not is_unit(part):
            return self._column(part, aliases)
        if is_epoch_time(part):
            raise self.scope.query.error(
                "LS0207",
                f"{EPOCH_TIME}() stands beside an aggregation",
                part,
                why="an aggregated row belongs to many epochs, so there is no one epoch time to give it.",
                hint=f"inside an aggregate function there is: max({EPOCH_TIME}()).",
            )
        return None

    def _window_part(self, part: exp.Expression) -> exp.Expression | None:
        """window_start and window_end, however they are written; the window itself is a struct of both."""
        is_name = isinstance(part, exp.Column)
        names = tuple(one.name.lower() for one in part.parts) if is_name else ()
        bound = _WINDOW_NAMES.get(names) or WINDOW_BOUNDS.get(function_of(part))
        whole = names in (("window",), ("session_window",)) or function_of(part) in WINDOW_FUNCTIONS
        if bound is None and not whole:
            return None
        if self.window is None:
            if is_name:
                return None
            raise self.scope.query.error(
                "LS0234",
                f"{function_of(part)}() is not in GROUP BY",
                part,
                hint="GROUP BY ..., window(at, '1 minute').",
            )
        if bound is not None:
            return column_node(Resolved(bound))
        start, end = (column_node(Resolved(name)) for name in WINDOW_COLUMNS)
        return exp.Anonymous(
            this="named_struct", expressions=[exp.Literal.string("start"), start, exp.Literal.string("end"), end]
        )

    def _column(self, column: exp.Column, aliases: bool) -> exp.Expression:
        aliased = self._aliased(column.name) if aliases and len(column.parts) == 1 else None
        if aliased is not None:
            made = replaced(aliased, self.scope.query, lambda part: self._part(part, aliases=False))
            return exp.paren(made, copy=False) if isinstance(made, (exp.Binary, exp.Unary)) else made
        if self.scope.find(column) is None:
            raise self.scope.unknown(column, [item.name for item in self.items] if aliases else ())
        raise self._not_grouped(column)

    def _not_grouped(self, column: exp.Column) -> ExpressionError:
        return self.scope.query.error(
            "LS0235",
            f'"{column.name}" is neither in GROUP BY nor inside an aggregate function',
            column,
            why="many records become one: which of their values would it be?",
            hint=f"max({column.name}), or GROUP BY ..., {column.name}.",
        )

    def _aggregate(self, node: exp.Expression) -> str:
        """The column of the aggregation that holds this aggregate; added if it is not there yet."""
        nested = [found for child in node.iter_expressions() for found in aggregates_in(child)]
        inner = [found for found in nested if found is not node and found is not node.this]
        if inner:
            raise self.scope.query.error(
                "LS0235",
                "an aggregate function stands inside another",
                inner[0],
                hint="aggregate twice: FROM (SELECT ...).",
            )
        text = self._aggregate_text(node)
        if text not in self.aggregates:
            call = node.this if isinstance(node, exp.Filter) else node
            named = next((item.name for item in self.items if self._is_same(item.node, node)), None)
            self.aggregates[text] = (self._free(named or function_of(call)), self._aggregate_call(node))
        return self.aggregates[text][0]

    def _is_same(self, node: exp.Expression, other: exp.Expression) -> bool:
        return is_aggregate_call(node.unnest()) and self._aggregate_text(node.unnest()) == self._aggregate_text(other)

    def _aggregate_text(self, node: exp.Expression) -> str:
        for column in node.find_all(exp.Column):
            if not is_unit(column):
                self.scope.require(column)
        return str(row_text(node, self.scope))

    def _aggregate_call(self, node: exp.Expression) -> Expression:
        call = node.this if isinstance(node, exp.Filter) else node
        condition = node.expression.this if isinstance(node, exp.Filter) else None
        name = function_of(call)
        distinct = any(isinstance(given, exp.Distinct) for given in call.expressions)
        name = "count_distinct" if distinct and name == "count" else _SAME.get(name, name)
        arguments = [argument for given in call.expressions for argument in _without_distinct(given)]
        if condition is not None and name in _NULLS_COUNT:
            raise self.scope.query.error(
                "LS0233",
                f"{name}(...) FILTER cannot be used in a stream",
                node,
                why="what does not count is left out by making it null, and to this function null is a value.",
                hint=f"{name}(..., true) without FILTER passes over nulls; or put the condition into WHERE.",
            )
        made = [self._argument(argument, condition) for argument in arguments[:1]]
        made += [self._further(argument, condition) for argument in arguments[1:]]
        try:
            result: Expression = getattr(F, name)(*made)
        except ExpressionError as error:
            raise self.scope.query.located(error, call) from None
        return result

    def _further(self, argument: exp.Expression, condition: exp.Expression | None) -> object:
        constant = _constant(argument)
        return self._argument(argument, condition) if constant is None else constant

    def _argument(self, argument: exp.Expression, condition: exp.Expression | None) -> object:
        """What is aggregated: with FILTER, null for the records that do not count, which aggregates pass over."""
        if condition is None:
            return "*" if isinstance(argument, exp.Star) else row_expression(argument, self.scope)
        value = exp.Literal.number(1) if isinstance(argument, exp.Star) else argument.copy()
        chosen = exp.Case(ifs=[exp.If(this=condition.copy(), true=value)])
        return row_expression(chosen, self.scope)


def _without_distinct(argument: exp.Expression) -> list[exp.Expression]:
    return list(argument.expressions) if isinstance(argument, exp.Distinct) else [argument]


def _constant(argument: exp.Expression) -> object:
    """A number, true or false, or an array of numbers: pyspark wants them as they are, not as columns."""
    if isinstance(argument, exp.Boolean):
        return bool(argument.this)
    if isinstance(argument, exp.Literal) and not argument.is_string:
        return float(argument.name) if not argument.name.isdigit() else int(argument.name)
    if isinstance(argument, exp.Array) or function_of(argument) == "array":
        items = [_constant(item) for item in argument.expressions]
        return items if None not in items else None
    return None
