"""Aggregate expressions as keyed operators read them: a known function, and scalar inputs that Spark computes.

A native aggregation gives Spark the whole expression. A keyed operator adds records up itself, in their order, so that
`first`, `collect_list` or `max_by` are allowed here; what stands around an aggregate is left to the step after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lockstep.errors import PlanError
from lockstep.plan.aggregates import MEANINGS, canonical, names_by
from lockstep.plan.expression import Alias, Call, Column, Expression, Literal, Sql, literal, unaliased, walk
from lockstep.plan.schema import did_you_mean
from lockstep.plan.steps import Named

_PICKS = ("first", "last")
_QUANTILES = ("median", "percentile")
_SEVERAL_INPUTS = ("count_distinct", "percentile")
RELATIVE_ERROR = 0.05
"""Of ``approx_count_distinct``, where nothing else is said."""
_CALLED = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_ARRAY = re.compile(r"array\s*\((.*)\)", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)d?", re.IGNORECASE)
_DISTINCT = re.compile(r"distinct\b\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Accumulated:
    """One column of results: its name, the function that adds records up, and the function's inputs."""

    name: str
    function: str
    inputs: tuple[Expression, ...]
    ignore_nulls: bool = False
    fractions: tuple[float, ...] = ()
    """Which percentiles, each from 0 to 1."""
    several: bool = False
    """Whether the percentiles were asked for in a list: then they come in one, too."""


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
    called = called_aggregate(plain)
    if called is None:
        raise _unknown(plain, name, where)
    function, arguments = called
    fewest, most = MEANINGS[function].inputs
    if len(arguments) < fewest or (most is not None and len(arguments) > most):
        raise _unknown(plain, name, where)
    if function in _PICKS:
        return Accumulated(name, function, arguments[:1], _is_true(arguments[1:]))
    if function == "count" and _is_there(arguments[0]):
        return Accumulated(name, function, ())
    if function in _QUANTILES:
        fractions, several = _fractions(arguments[1:], name, where)
        return Accumulated(name, function, arguments[:1], fractions=fractions, several=several)
    if function == "approx_count_distinct":
        return Accumulated(name, function, (_hash(arguments, name, where),))
    return Accumulated(name, function, arguments)


def called_aggregate(expression: Expression) -> tuple[str, tuple[Expression, ...]] | None:
    """The aggregate that an expression is one call of, with its arguments; None if it is anything else.

    >>> called_aggregate(Sql("max(100 - n)")), called_aggregate(Sql("max(n) + 1"))
    (('max', (<expression 100 - n>,)), None)
    """
    plain = unaliased(expression)
    return _from_sql(plain.text) if isinstance(plain, Sql) else _from_call(plain)


def needs_lockstep(values: Named) -> bool:
    """Whether Spark cannot be given one of these aggregates, so that Lockstep has to add records up itself.

    >>> needs_lockstep((("n", Call("count", ("*",))),)), needs_lockstep((("s", Call("stddev", ("ms",))),))
    (False, True)
    >>> needs_lockstep((("w", Sql("max_by(user, ms)")),)), needs_lockstep((("w", Sql("max_by(user, ms) || 'x'")),))
    (True, False)
    """
    own = names_by("lockstep")
    for _, value in values:
        plain = unaliased(value)
        if any(isinstance(node, Call) and node.name in own for node in walk(plain)):
            return True
        called = _from_sql(plain.text) if isinstance(plain, Sql) else None
        if called is not None and called[0] in own:
            return True
    return False


def as_call(expression: Expression) -> Expression:
    """A text in SQL that is one aggregate of known ones, as the call it is: it is then computed like ``F``'s.

    >>> as_call(Sql("sum(price * pieces)")), as_call(Sql("1 + sum(price)"))
    (<expression sum(price * pieces)>, <expression 1 + sum(price)>)
    >>> isinstance(as_call(Sql("sum(price * pieces)")), Call)
    True
    """
    called = _from_sql(expression.text) if isinstance(expression, Sql) else None
    if called is None or not called[1] or _is_there(called[1][0]):
        return expression
    return Call(*called) if len(called[1]) == 1 or called[0] in _SEVERAL_INPUTS else expression


def lay_out(values: Sequence[Accumulated], columns: Sequence[str]) -> Layout:
    """Columns are read where they are; every other input is computed, each once."""
    computed: list[tuple[str, Expression]] = []
    known: dict[str, int] = {}
    places = []
    for value in values:
        places.append(tuple(_place(one, columns, computed, known) for one in value.inputs))
    return Layout(tuple(computed), tuple(places))


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
    function = canonical(expression.name)
    if function not in MEANINGS:
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
    function = canonical(match[1].lower())
    texts = [part for part in parts if part]
    if texts and (distinct := _DISTINCT.match(texts[0])):
        if function != "count":
            return None
        function, texts[0] = "count_distinct", texts[0][distinct.end() :]
    return (function, tuple(_sql_argument(part) for part in texts)) if function in MEANINGS else None


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


def _fractions(values: Sequence[Expression], name: str, where: str) -> tuple[tuple[float, ...], bool]:
    """Which percentiles are asked for (the median if nothing is said), and whether in a list."""
    if not values:
        return (0.5,), False
    found = _plain_value(values[0])
    several = isinstance(found, list | tuple)
    numbers = found if several else [found]
    if not numbers or not all(isinstance(one, int | float | Decimal) and 0 <= one <= 1 for one in numbers):
        raise PlanError(
            "LS0170",
            f'"{name}" of {where} asks for a percentile that is not a number from 0 to 1',
            why=f"it was given: {values[0]}.",
            hint='F.percentile("ms", 0.95), or several in one list: F.percentile("ms", [0.5, 0.95]).',
        )
    return tuple(float(one) for one in numbers), several


def _plain_value(value: Expression) -> Any:
    """The number, or the list of numbers, that a literal or a text in SQL is; None if it is anything else."""
    if isinstance(value, Literal):
        return value.value
    if not isinstance(value, Sql):
        return None
    array = _ARRAY.fullmatch(value.text.strip())
    if array is not None:
        return [_plain_value(Sql(part or "")) for part in _arguments(array[1])]
    return float(value.text.strip().rstrip("dD")) if _NUMBER.fullmatch(value.text.strip()) else None


def _hash(arguments: Sequence[Expression], name: str, where: str) -> Expression:
    """What a sketch of distinct values takes in: the hash that Spark's own sketch uses; null for null."""
    if len(arguments) > 1 and _plain_value(arguments[1]) != RELATIVE_ERROR:
        raise PlanError(
            "LS0170",
            f'"{name}" of {where} asks for a relative error of its own',
            why=f"where Lockstep adds records up itself, approx_count_distinct has one of {RELATIVE_ERROR}.",
            hint="leave it out, or count exactly: F.count_distinct(...).",
        )
    value = arguments[0]
    return Call("when", (Call("isnotnull", (value,)), Call("xxhash64", (value,))))


def _unknown(expression: Expression, name: str, where: str) -> PlanError:
    inside = any(isinstance(node, Call) and canonical(node.name) in MEANINGS for node in walk(expression))
    near = did_you_mean(expression.name, list(MEANINGS)) if isinstance(expression, Call) and not inside else ""
    return PlanError(
        "LS0170",
        f'"{name}" of {where} is not an aggregate that can be added up record by record',
        why=f"it is: {expression}. Known are, each on its own: {', '.join(MEANINGS)}.",
        hint=near or "aggregate the parts under names of their own, and put them together in .with_columns(...) after.",
    )
