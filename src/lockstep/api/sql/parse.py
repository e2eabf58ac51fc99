"""A text in SQL to a tree: Spark's own grammar, with every function kept as it was written."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from lockstep.api.sql.locations import QueryText, Span
from lockstep.errors import ExpressionError

_SYNTAX_OF_THEIR_OWN = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")
_EXPLAINED = {
    "Invalid expression / Unexpected token": "this is not expected here.",
    "Expecting )": "a closing parenthesis is missing before this.",
}


class Verbatim(Spark):  # type: ignore[misc]
    """Spark's SQL, read so that it can be written again word for word: Spark has the last word on what it means."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        """Knows that a quote is written twice inside quotes, and that ``window`` and ``session`` are functions."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        KEYWORDS: ClassVar[dict[str, Any]] = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word not in ("WINDOW", "SESSION")
        }

    class Parser(Spark.Parser):  # type: ignore[misc]
        """Leaves functions alone, but for those whose arguments are not a list."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser for name, parser in Spark.Parser.FUNCTION_PARSERS.items() if name in _SYNTAX_OF_THEIR_OWN
        }


def parse(query: QueryText) -> exp.Expression:
    """The tree of a query: a SELECT, or several joined by UNION ALL.

    >>> type(parse(QueryText("select user from logins"))).__name__
    'Select'
    >>> parse(QueryText("select user fro logins"))
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.ExpressionError: LS0230 the query cannot be read
      why:  line 1, column 17 of the query:
              select user fro logins
                              ^^^^^^
            this is not expected here.
      try:  a query is: SELECT ... FROM ... [WHERE ...] [GROUP BY ...] [HAVING ...].
    """
    try:
        statements = [found for found in Verbatim().parse(query.text) if found is not None]
    except ParseError as error:
        raise _unreadable(query, error) from None
    except TokenError:
        raise _unreadable_quote(query) from None
    if len(statements) != 1:
        fact = "the query is empty" if not statements else f"there are {len(statements)} queries in one text"
        raise query.error("LS0230", fact, statements[1] if statements else None, hint=_SHAPE)
    (statement,) = statements
    if not isinstance(statement, exp.Query) or isinstance(statement, (exp.Values, exp.Table)):
        raise query.error("LS0230", "this is not a query", statement, hint=_SHAPE)
    return statement


_SHAPE = "a query is: SELECT ... FROM ... [WHERE ...] [GROUP BY ...] [HAVING ...]."


def _unreadable(query: QueryText, error: ParseError) -> ExpressionError:
    (found, *_) = error.errors
    description = str(found["description"])
    if description.startswith("Required keyword"):
        reason = "something is missing here."
    else:
        reason = _EXPLAINED.get(description, f"{description}.")
    highlight = str(found["highlight"] or "")
    lines = query.text.split("\n")[: int(found["line"]) - 1]
    # sqlglot's column is that of the last character, counted from one.
    end = sum(len(line) + 1 for line in lines) + int(found["col"])
    span = Span(max(0, end - max(1, len(highlight))), end)
    return query.error("LS0230", "the query cannot be read", span, why=reason, hint=_SHAPE)


def _unreadable_quote(query: QueryText) -> ExpressionError:
    opened, quote = None, ""
    for place, sign in enumerate(query.text):
        if opened is None and sign in "'\"`":
            opened, quote = place, sign
        elif opened is not None and sign == quote:
            opened = None
    span = None if opened is None else Span(opened, opened + 1)
    return query.error("LS0230", "the query cannot be read", span, why="this quote is never closed.", hint=_SHAPE)
