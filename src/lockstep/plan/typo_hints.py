"""Recognising common slips, so that the error can say the right spelling."""

from __future__ import annotations

import inspect
import linecache
import re

from lockstep.errors import ExpressionError

_SPELLINGS = {
    "a < b < c": "a.between(low, high), or (a < b) & (b < c)",
    "and": "(a) & (b), with both sides in parentheses",
    "or": "(a) | (b), with both sides in parentheses",
    "not": "~(a)",
    "in": "a.isin(1, 2, 3)",
    "if": "F.when(condition, a).otherwise(b)",
}
_CHAINED = re.compile(r"[<>]=?[^<>=&|,]+[<>]=?")
_PACKAGE = __name__.rsplit(".", 2)[0]


def no_truth_value() -> ExpressionError:
    """LS0201 for ``bool(expression)``, naming the word in the caller's code that asked for it."""
    code = _asking_code()
    bare = _without_strings(code)
    words = [word for word in _SPELLINGS if word.isalpha() and re.search(rf"\b{word}\b", bare)]
    if _CHAINED.search(bare):
        words = ["a < b < c", *words]
    fact = f'"{words[0]}" does not work on expressions' if words else "an expression is neither true nor false yet"
    why = "Python would want the answer now, before there is a record."
    return ExpressionError(
        "LS0201",
        fact,
        why=f"{why}\nin: {code}" if code else why,
        hint="\n".join(f"for {word}: {_SPELLINGS[word]}" for word in words or _SPELLINGS),
    )


def real_column(value: object) -> ExpressionError | None:
    """LS0202 if ``value`` is one of pyspark's own Columns (found by name: importing pyspark here would cost time)."""
    for cls in type(value).__mro__:
        if cls.__name__ == "Column" and cls.__module__.startswith("pyspark."):
            return ExpressionError(
                "LS0202",
                "this is a Column of pyspark, not an expression of Lockstep",
                why="a pyspark Column belongs to one JVM; a job is compiled anew in the JVM of every replica.",
                hint="from lockstep import F   (instead of: from pyspark.sql import functions as F)",
            )
    return None


def _asking_code() -> str:
    """The piece of code outside Lockstep that is being evaluated, empty if it cannot be read."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE + "."):
        frame = frame.f_back
    if frame is None:
        return ""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals).rstrip("\n")
    _, line_end, start, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if line_end != frame.f_lineno or start is None:
        return line.strip()
    return line.encode()[start:end].decode().strip()  # Positions count bytes.


def _without_strings(line: str) -> str:
    return re.sub(r"#.*", "", re.sub(r"\"[^\"]*\"|'[^']*'", "''", line))
