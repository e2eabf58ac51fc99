"""Aggregate expressions as keyed operators read them: a known function, and scalar inputs that Spark computes.

A native aggregation gives Spark the whole expression. A keyed operator adds records up itself, in their order, so that
`first`, `collect_list` or `max_by` are allowed here; what stands around an aggregate is left to the step after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.errors import PlanError
from lockstep.plan.expression import Alias, Call, Column, Expression, Literal, Sql, literal, unaliased
from lockstep.plan.schema import did_you_mean
from lockstep.plan.steps import Named

_SAME = {
    "mean": "avg",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "first_value": "first",
    "any_value": "first",
    "last_value": "last",
    "array_agg": "collect_list",
}
_INPUTS: dict[str, tuple[int, int | None]] = {
    "count": (1, 1),
    "count_if": (1, 1),
    "count_distinct": (1, None),
    "sum": (1, 1),
    "avg": (1, 1),
    "min": (1, 1),
    "max": (1, 1),
    "min_by": (2, 2),
    "max_by": (2, 2),
    "bool_and": (1, 1),
    "bool_or": (1, 1),
    "bit_and": (1, 1),
    "bit_or": (1, 1),
    "bit_xor": (1, 1),
    "collect_set": (1, 1),
    "collect_list": (1, 1),
    "first": (1, 2),
    "last": (1, 2),
}
"""The known functions, with the fewest and the most arguments they take."""
_PICKS = ("first", "last")
_CALLED = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_DISTINCT = re.compile(r"distinct\b\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Accumulated:
    """One column of results: its name, the function that adds records up, and the function's inputs."""

    name: str
    function: str
    inputs: tuple[Expression, ...]
    ignore_nulls: bool = False


@dataclass(frozen=True)
class Layout:
    """Where the inputs of several accumulated columns stand among an arrival's values."""

    computed: Named
    """What Spark has to compute besides the stream's columns (``KeyedStep.computed``)."""
    places: tuple[tuple[int, ...], ...]
    """For each accumulated column, the indexes of its inputs in the values: columns first, then computed ones."""


def accumulated(expression: Expression, name: str, where: str) -> Accumulated:
    """The aggregate that ``expression`` is; LS0170 if it is none that a keyed operator knows.

    >>> accumulated(Call("sum", ("ms",)), "total", 'step "agg"').function
    'sum'
    >>> accumulated(Sql("count(distinct user, day)"), "n", 'step "agg"').inputs
    (<expression user>, <expression day>)
    """
    plain = unaliased(expression)
    called = _from_sql(plain.text) if isinstance(plain, Sql) else _from_call(plain)
    if called is None:
        raise _unknown(plain, name, where)
    function, arguments = called
    fewest, most = _INPUTS[function]
    if len(arguments) < fewest or (most is not None and len(arguments) > most):
        raise _unknown(plain, name, where)
    if function in _PICKS:
        return Accumulated(name, function, arguments[:1], _is_true(arguments[1:]))
    if function == "count" and _is_there(arguments[0]):
        return Accumulated(name, function, ())
    return Accumulated(name, function, arguments)


def as_call(expression: Expression) -> Expression:
    """A text in SQL that is one aggregate of known ones, as the call it is: it is then computed like ``F``'s.

    >>> as_call(Sql("sum(price * pieces)")), as_call(Sql("1 + sum(price)"))
    (<expression sum(price * pieces)>, <expression 1 + sum(price)>)
    >>> isinstance(as_call(Sql("sum(price * pieces)")), Call)
    True
    """
    called = _from_sql(expression.text) if isinstance(expression, Sql) else None
    if called is None or len(called[1]) != 1 or _is_there(called[1][0]):
        return expression
    return Call(*called)


def lay_out(values: Sequence[Accumulated], columns: Sequence[str]) -> Layout:
    """Columns are read where they are; every other input is computed, each once."""
    computed: list[tuple[str, Expression]] = []
    known: dict[str, int] = {}
    places = []
    for value in values:
        places.append(tuple(_place(one, columns, computed, known) for one in value.inputs))
    return Layout(tuple(computed), tuple(places))


def known_functions() -> tuple[str, ...]:
    """The aggregate functions that keyed operators know, by their names in ``F``."""
    return (*_INPUTS, *_SAME)


def _place(
    value: Expression, columns: Sequence[str], computed: list[tuple[str, Expression]], known: dict[str, int]
) -> int:
    if isinstance(value, Column) and value.name in columns:
        return columns.index(value.name)
    text = str(value.to_json())
    if text not in known:
        known[text] = len(columns) + len(computed)
        computed.append((f"__input_{len(computed)}", value))
    return known[text]


def _from_call(expression: Expression) -> tuple[str, tuple[Expression, ...]] | None:
    if not isinstance(expression, Call):
        return None
    function = _SAME.get(expression.name, expression.name)
    if function not in _INPUTS:
        return None
    given: list[Any] = [*expression.args, *(value for _, value in expression.kwargs)]
    return function, tuple(_argument(value) for value in given if value is not None)


def _argument(value: Any) -> Expression:
    if isinstance(value, Alias):
        return value.of
    if isinstance(value, Expression):
        return value
    return Column(value) if isinstance(value, str) else literal(value)


def _from_sql(text: str) -> tuple[str, tuple[Expression, ...]] | None:
    """``sum(a * b)`` as a text: one call around everything, nothing beside it."""
    match = _CALLED.fullmatch(text.strip())
    if match is None:
        return None
    parts = list(_arguments(match[2]))
    if any(part is None for part in parts):
        return None
    function = _SAME.get(match[1].lower(), match[1].lower())
    texts = [part for part in parts if part]
    if texts and (distinct := _DISTINCT.match(texts[0])):
        if function != "count":
            return None
        function, texts[0] = "count_distinct", texts[0][distinct.end() :]
    return (function, tuple(_sql_argument(part) for part in texts)) if function in _INPUTS else None


def _sql_argument(text: str) -> Expression:
    bare = text.strip("`") if text.startswith("`") and text.count("`") == 2 else text
    if text.lower() in ("true", "false"):
        return Literal(text.lower() == "true")
    return Column(bare) if bare.isidentifier() or text == "*" or bare != text else Sql(text)


def _arguments(text: str) -> Iterator[str | None]:
    """The parts between commas outside brackets and quotes; None where a bracket closes that was never opened."""
    depth, quote, start = 0, "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
            if depth < 0:
                yield None
        elif character == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def _is_there(value: Expression) -> bool:
    """Whether a counted value can never be null: ``count("*")``, ``count(lit(1))``."""
    if isinstance(value, Column):
        return value.name == "*"
    if isinstance(value, Sql):
        return value.text.isdigit()
    return isinstance(value, Literal) and value.value is not None


def _is_true(values: Sequence[Expression]) -> bool:
    return any(isinstance(value, Literal) and value.value is True for value in values)


def _unknown(expression: Expression, name: str, where: str) -> PlanError:
    near = did_you_mean(expression.name, list(_INPUTS)) if isinstance(expression, Call) else ""
    return PlanError(
        "LS0170",
        f'"{name}" of {where} is not an aggregate that can be added up record by record',
        why=f"it is: {expression}. Known are, each on its own: {', '.join(_INPUTS)}.",
        hint=near or "aggregate the parts under names of their own, and put them together in .with_columns(...) after.",
    )
