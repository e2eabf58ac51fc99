"""Expressions as text, close to SQL: for `lockstep plan` and for errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.plan.expression import Alias, Call, Column, Expression, Lambda, Literal, Sql, Variable
from lockstep.plan.signatures import reading

_INFIX = {
    "or": ("OR", 1),
    "and": ("AND", 2),
    "eq": ("=", 4),
    "ne": ("!=", 4),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "add": ("+", 5),
    "sub": ("-", 5),
    "mul": ("*", 6),
    "div": ("/", 6),
    "mod": ("%", 6),
    "pow": ("**", 8),
}
_NOT_ASSOCIATIVE = ("sub", "div", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge")
_PREFIX = {"not": ("NOT ", 3), "neg": ("-", 7)}
_METHOD_STRENGTH = 4
_STRONGEST = 9


def text(expression: Expression) -> str:
    """The expression as a person would write it in SQL.

    >>> text(Call("lower", ("user",)) == Literal("bo"))
    "lower(user) = 'bo'"
    """
    return _text(expression)[0]


def value_text(value: Any) -> str:  # noqa: PLR0911  (one line per kind of value)
    """A plain value or an expression as text.

    >>> value_text("it's"), value_text(None), value_text([1, 2.5, True])
    ("'it''s'", 'NULL', '[1, 2.5, true]')
    """
    if isinstance(value, Expression):
        return text(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return str(value) if isinstance(value, (int, float)) else f"'{value}'"


def _text(expression: Expression) -> tuple[str, int]:  # noqa: PLR0911  (one line per kind of node)
    """The text and how strongly it holds together: weaker parts are put in parentheses."""
    match expression:
        case Column() | Variable():
            return expression.name, _STRONGEST
        case Literal():
            return value_text(expression.value), _STRONGEST
        case Sql():
            return expression.text, _STRONGEST if expression.text.isidentifier() else 0
        case Alias():
            return f"{_inside(expression.of, 1)} AS {expression.name}", 0
        case Lambda():
            return f"({', '.join(expression.parameters)}) -> {text(expression.body)}", 0
        case Call() if expression.name.startswith("operator."):
            return _operator_text(expression.name.removeprefix("operator."), expression.args)
        case Call() if expression.name.startswith("column."):
            return _method_text(expression.name.removeprefix("column."), expression)
        case Call() if expression.name == "when":
            return _cases_text(expression), _STRONGEST
        case Call():
            return _function_text(expression), _STRONGEST
        case _:
            raise AssertionError(f"no text for {type(expression).__name__}")


def _inside(value: Any, strength: int) -> str:
    if not isinstance(value, Expression):
        return value_text(value)
    made, own = _text(value)
    return made if own >= strength else f"({made})"


def _operator_text(name: str, args: tuple[Any, ...]) -> tuple[str, int]:
    if name in _PREFIX:
        sign, strength = _PREFIX[name]
        inside = _inside(args[0], strength)
        # Two minus signs in a row would begin a comment in SQL.
        return f"{sign}({inside})" if inside.startswith("-") else f"{sign}{inside}", strength
    sign, strength = _INFIX[name]
    right_strength = strength + 1 if name in _NOT_ASSOCIATIVE else strength
    left_strength = strength + 1 if strength == _METHOD_STRENGTH else strength
    return f"{_inside(args[0], left_strength)} {sign} {_inside(args[1], right_strength)}", strength


def _function_text(call: Call) -> str:
    how = reading(call.name)
    parts = [_argument_text(value, how.reads_column(index)) for index, value in enumerate(call.args)]
    parts += [f"{key} => {_argument_text(value, how.reads_column(key))}" for key, value in call.kwargs]
    return f"{call.name.removeprefix('lockstep.')}({', '.join(parts)})"


def _argument_text(value: Any, reads_column: bool) -> str:
    if isinstance(value, str) and reads_column:
        return value
    if isinstance(value, (list, tuple)) and reads_column:
        return ", ".join(_argument_text(item, reads_column) for item in value)
    return value_text(value)


def _cases_text(call: Expression, last: str = "END") -> str:
    """CASE text of a chain of when: the outermost call is the last case."""
    match call:
        case Call(name="column.otherwise"):
            return _cases_text(call.args[0], f"ELSE {value_text(call.args[1])} END")
        case Call(name="column.when"):
            return _cases_text(call.args[0], f"WHEN {value_text(call.args[1])} THEN {value_text(call.args[2])} {last}")
        case Call(name="when"):
            condition, value = (*call.args, *(value for _, value in call.kwargs))
            return f"CASE WHEN {value_text(condition)} THEN {value_text(value)} {last}"
        case _:
            raise AssertionError(f"not a chain of when: {call!r}")


_Words = Callable[[str, list[str]], str]
_METHODS: dict[str, _Words] = {
    "isNull": lambda target, _: f"{target} IS NULL",
    "isNotNull": lambda target, _: f"{target} IS NOT NULL",
    "eqNullSafe": lambda target, args: f"{target} <=> {args[0]}",
    "between": lambda target, args: f"{target} BETWEEN {args[0]} AND {args[1]}",
    "isin": lambda target, args: f"{target} IN ({', '.join(args)})",
    "like": lambda target, args: f"{target} LIKE {args[0]}",
    "ilike": lambda target, args: f"{target} ILIKE {args[0]}",
    "rlike": lambda target, args: f"{target} RLIKE {args[0]}",
}
_STRONG_METHODS: dict[str, _Words] = {
    "cast": lambda target, args: f"CAST({target} AS {args[0].strip(chr(39))})",
    "try_cast": lambda target, args: f"TRY_CAST({target} AS {args[0].strip(chr(39))})",
    "getItem": lambda target, args: f"{target}[{args[0]}]",
    "getField": lambda target, args: f"{target}.{args[0].strip(chr(39))}",
}


def _method_text(name: str, call: Call) -> tuple[str, int]:
    if name in ("when", "otherwise"):
        return _cases_text(call), _STRONGEST
    values = call.args[1:]
    if name == "isin" and len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = tuple(values[0])
    if name in _METHODS:
        args = [_inside(value, _METHOD_STRENGTH + 1) for value in values]
        return _METHODS[name](_inside(call.args[0], _METHOD_STRENGTH + 1), args), _METHOD_STRENGTH
    args = [value_text(value) for value in values]
    if name in ("cast", "try_cast"):
        return _STRONG_METHODS[name](text(call.args[0]), args), _STRONGEST
    if name in _STRONG_METHODS:
        return _STRONG_METHODS[name](_inside(call.args[0], _STRONGEST), args), _STRONGEST
    return f"{name.lower()}({', '.join([text(call.args[0]), *args])})", _STRONGEST
