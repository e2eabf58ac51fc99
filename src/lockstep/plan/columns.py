"""Expressions meet the columns of a stream: what a user passes becomes an expression, and its columns are checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from lockstep.errors import ExpressionError, PlanError
from lockstep.plan.expression import Call, Column, Expression, Sql, literal, walk
from lockstep.plan.schema import unknown_column
from lockstep.plan.signatures import column_strings
from lockstep.plan.typo_hints import real_column

_SQL_WORDS = (
    *("true", "false", "null"),
    *("current_date", "current_time", "current_timestamp", "localtimestamp", "current_user", "session_user", "user"),
)
"""Words that SQL understands on their own; any other single word is a column."""


class RecordColumns:
    """What a lambda receives in place of a record: its attributes and items are columns.

    >>> RecordColumns(("user", "ok")).user
    <expression user>
    >>> RecordColumns(("user", "ok"))["usr"]
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.PlanError: LS0107 unknown column "usr"
      why:  the stream has: user, ok.
      try:  did you mean "user"?
    """

    __slots__ = ("__columns",)

    def __init__(self, columns: Sequence[str]) -> None:
        self.__columns = tuple(columns)

    def __getitem__(self, name: str) -> Expression:
        if name not in self.__columns:
            raise unknown_column(name, self.__columns)
        return Column(name)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __dir__(self) -> list[str]:
        return list(self.__columns)


Condition = str | Expression | Callable[[RecordColumns], Expression]
"""A condition: an expression, a text in SQL, or a lambda over the record's columns."""

Value = Any
"""A value: as a condition, or a plain Python value that stands for itself (texts are SQL)."""


def condition(value: Condition, columns: Sequence[str]) -> Expression:
    """The expression of a condition.

    >>> str(condition(lambda r: ~r.ok, ["user", "ok"])), str(condition("n > 5", ["n"]))
    ('NOT ok', 'n > 5')
    """
    made = _called(value, columns) if callable(value) else value
    if isinstance(made, (str, Expression, bool)):
        return value_of(made, columns)
    if (error := real_column(made)) is not None:
        raise error
    raise ExpressionError(
        "LS0223",
        f"a {type(made).__name__} is not a condition",
        why=f"it was given {made!r}.",
        hint='write F.col("ok"), "failures >= 5", or lambda r: r.failures >= 5.',
    )


def value_of(value: Value, columns: Sequence[str]) -> Expression:
    """The expression of a value.

    >>> str(value_of("price * 2", ["price"])), str(value_of(lambda r: r.price * 2, ["price"])), str(value_of(7, []))
    ('price * 2', 'price * 2', '7')
    """
    made = _called(value, columns) if callable(value) else value
    if isinstance(made, Expression):
        return made
    if isinstance(made, str):
        return _from_text(made, columns)
    return literal(made)


def first_part(name: str) -> str:
    """The column that a name with dots begins with: ``address.city`` reads ``address``.

    >>> first_part("address.city"), first_part("`a.b`.c")
    ('address', 'a.b')
    """
    if name.startswith("`") and (end := name.find("`", 1)) > 0:
        return name[1:end]
    return name.split(".", 1)[0]


def referenced_columns(expression: Expression) -> tuple[str, ...]:
    """The columns an expression reads, each once, as far as can be seen: texts in SQL are opaque.

    >>> referenced_columns(Call("concat_ws", ("-", "first", Column("address.city"))))
    ('address', 'first')
    """
    names: dict[str, None] = {}
    for node in walk(expression):
        if isinstance(node, Column):
            names.setdefault(first_part(node.name))
    for name in _names_in_calls(expression):
        names.setdefault(first_part(name))
    return tuple(name for name in names if name != "*")


def check_known(expression: Expression, columns: Sequence[str], step_id: str) -> None:
    """Refuse an expression that reads a column which is not there (LS0107)."""
    as_strings = {first_part(name) for name in _names_in_calls(expression)}
    for name in referenced_columns(expression):
        if name not in columns:
            hint = f'if the text itself is meant: F.lit("{name}").' if name in as_strings else ""
            raise unknown_column(name, columns, f'step "{step_id}"', hint)


def _names_in_calls(expression: Expression) -> list[str]:
    calls = [node for node in walk(expression) if isinstance(node, Call)]
    return [name for call in calls for name in column_strings(call.name, call.args, call.kwargs)]


def _from_text(text: str, columns: Sequence[str]) -> Expression:
    """A single word is a column, so that a wrong one is found now; anything else is SQL, read by Spark."""
    word = text.strip()
    if not word:
        raise ExpressionError("LS0223", "the expression is empty", hint='write it like "failures >= 5".')
    if word in columns:
        return Column(word)
    if not word.isidentifier() or word.lower() in _SQL_WORDS:
        return Sql(word)
    for name in columns:
        if name.lower() == word.lower():
            return Column(name)
    raise unknown_column(word, columns, hint=f'''if the text itself is meant: F.lit("{word}").''')


def _called(function: Callable[..., Any], columns: Sequence[str]) -> Any:
    check_one_argument(function, "a lambda over columns", "lambda r: r.ok")
    return function(RecordColumns(columns))


def check_one_argument(function: Callable[..., Any], what: str, example: str) -> None:
    """Refuse a function that cannot be called with exactly one argument (LS0131)."""
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise PlanError(
            "LS0131",
            f"{what} is called with one argument, and this function does not take that",
            why=f"{getattr(function, '__name__', function)}: {error}.",
            hint=f"write it like: {example}",
        ) from None
    except ValueError:
        return  # Some built-in functions have no readable signature: the first record will tell.
