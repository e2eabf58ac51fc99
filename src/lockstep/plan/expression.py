"""Expressions as small immutable trees: what `F` and the records in lambdas build, and `compile` turns into Columns.

A real pyspark Column cannot be made without a running JVM; a tree can be checked, drawn, compared and printed without.
"""

# Methods carry pyspark's own camel-case names, so that what people know from Column works here unchanged.
# ruff: noqa: N802

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.errors import ExpressionError
from lockstep.plan.schema import did_you_mean
from lockstep.plan.typo_hints import no_truth_value, real_column

OPERATORS: Mapping[str, str] = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "truediv",
    "mod": "mod",
    "pow": "pow",
    "neg": "neg",
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "and": "and_",
    "or": "or_",
    "not": "invert",
}
"""``operator.<key>`` as a call's name -> the function of Python's `operator` module that does it on real Columns."""

_INTEGER_MAX = 2**63


class UnknownName(ExpressionError, AttributeError):
    """LS0206 as an AttributeError, so that ``hasattr`` and tools that look around behave."""


class Expression:
    """A value computed from a record: a column, a literal, or a call on other expressions.

    >>> amount = Column("price") * Column("pieces")
    >>> str((amount > 100) & ~Column("paid"))
    'price * pieces > 100 AND NOT paid'
    """

    __hash__ = object.__hash__

    def __str__(self) -> str:
        from lockstep.plan.expression_text import text

        return text(self)

    def __repr__(self) -> str:
        return f"<expression {self}>"

    @property
    def children(self) -> tuple[Expression, ...]:
        """The expressions directly inside this one."""
        return ()

    def to_json(self) -> Any:
        """The tree as plain data, the same for equal trees."""
        return _json(self)

    def same_as(self, other: Expression) -> bool:
        """Whether both trees are built alike (``==`` builds an expression instead of comparing).

        >>> (Column("a") + 1).same_as(Column("a") + 1), (Column("a") + 1).same_as(Column("a") + 2)
        (True, False)
        """
        return json.dumps(self.to_json(), sort_keys=True) == json.dumps(other.to_json(), sort_keys=True)

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            methods = [known for known in dir(Expression) if not known.startswith("_")]
            raise UnknownName(
                "LS0206",
                f'an expression has no method "{name}"',
                why=f"it was asked of: {self}.",
                hint=did_you_mean(name, methods) or f'for the field of a struct write .getField("{name}").',
            )

    def __add__(self, other: Any) -> Expression:
        return _operator("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _operator("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _operator("sub", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _operator("sub", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _operator("mul", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _operator("mul", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _operator("div", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _operator("div", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _operator("mod", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _operator("mod", other, self)

    def __pow__(self, other: Any) -> Expression:
        return _operator("pow", self, other)

    def __rpow__(self, other: Any) -> Expression:
        return _operator("pow", other, self)

    def __neg__(self) -> Expression:
        return _operator("neg", self)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _operator("eq", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _operator("ne", self, other)

    def __lt__(self, other: Any) -> Expression:
        return _operator("lt", self, other)

    def __le__(self, other: Any) -> Expression:
        return _operator("le", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _operator("gt", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _operator("ge", self, other)

    def __and__(self, other: Any) -> Expression:
        return _operator("and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return _operator("and", other, self)

    def __or__(self, other: Any) -> Expression:
        return _operator("or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return _operator("or", other, self)

    def __invert__(self) -> Expression:
        return _operator("not", self)

    def __bool__(self) -> NoReturn:
        raise no_truth_value()

    def __contains__(self, item: object) -> NoReturn:
        raise ExpressionError(
            "LS0201",
            '"in" does not work on expressions',
            why="Python would want the answer now, before there is a record.",
            hint="for a text: column.contains(value); for an array: F.array_contains(column, value).",
        )

    def __len__(self) -> NoReturn:
        raise ExpressionError(
            "LS0201",
            "len() does not work on expressions",
            why="Python would want the answer now, before there is a record.",
            hint="for a text: F.length(column); for an array or a map: F.size(column).",
        )

    def __iter__(self) -> NoReturn:
        raise ExpressionError(
            "LS0201",
            "an expression cannot be iterated over",
            why="it stands for one value of a record that is not there yet.",
            hint="for each element of an array: F.transform(column, lambda item: ...); a record for each: .flat_map.",
        )

    def __getitem__(self, key: Any) -> Expression:
        if isinstance(key, slice):
            return _method("substr", self, key.start, key.stop)
        return _method("getItem", self, key)

    def alias(self, name: str) -> Expression:
        """The same value under a name: ``select(F.lower("user").alias("who"))``."""
        return Alias(self, name)

    def cast(self, type: Any) -> Expression:
        """The value as another type: ``F.col("n").cast("bigint")``."""
        return _method("cast", self, type)

    astype = cast

    def try_cast(self, type: Any) -> Expression:
        """The value as another type, null where that is not possible."""
        return _method("try_cast", self, type)

    def isin(self, *values: Any) -> Expression:
        """Whether the value is one of these: ``F.col("code").isin(401, 403)``."""
        return _method("isin", self, *values)

    def isNull(self) -> Expression:
        """Whether there is no value."""
        return _method("isNull", self)

    def isNotNull(self) -> Expression:
        """Whether there is a value."""
        return _method("isNotNull", self)

    def isNaN(self) -> Expression:
        """Whether the value is a float's "not a number"."""
        return _method("isNaN", self)

    def eqNullSafe(self, other: Any) -> Expression:
        """Equality for which two nulls are equal."""
        return _method("eqNullSafe", self, other)

    def between(self, lower: Any, upper: Any) -> Expression:
        """Whether ``lower <= value <= upper``."""
        return _method("between", self, lower, upper)

    def like(self, pattern: str) -> Expression:
        """SQL's LIKE: ``%`` is any text, ``_`` any character."""
        return _method("like", self, pattern)

    def ilike(self, pattern: str) -> Expression:
        """LIKE without regard to case."""
        return _method("ilike", self, pattern)

    def rlike(self, pattern: str) -> Expression:
        """Whether a regular expression matches somewhere in the text."""
        return _method("rlike", self, pattern)

    def startswith(self, other: Any) -> Expression:
        """Whether the text starts so."""
        return _method("startswith", self, other)

    def endswith(self, other: Any) -> Expression:
        """Whether the text ends so."""
        return _method("endswith", self, other)

    def contains(self, other: Any) -> Expression:
        """Whether the text contains this."""
        return _method("contains", self, other)

    def substr(self, start: Any, length: Any) -> Expression:
        """A part of the text; the first character is number 1."""
        return _method("substr", self, start, length)

    def getItem(self, key: Any) -> Expression:
        """An element of an array by index, or of a map by key."""
        return _method("getItem", self, key)

    def getField(self, name: Any) -> Expression:
        """A field of a struct."""
        return _method("getField", self, name)

    def withField(self, name: str, value: Expression) -> Expression:
        """The struct with one field added or replaced."""
        return _method("withField", self, name, value)

    def dropFields(self, *names: str) -> Expression:
        """The struct without these fields."""
        return _method("dropFields", self, *names)

    def bitwiseAND(self, other: Any) -> Expression:
        """Bits set in both."""
        return _method("bitwiseAND", self, other)

    def bitwiseOR(self, other: Any) -> Expression:
        """Bits set in either."""
        return _method("bitwiseOR", self, other)

    def bitwiseXOR(self, other: Any) -> Expression:
        """Bits set in one of them only."""
        return _method("bitwiseXOR", self, other)

    def transform(self, function: Callable[[Expression], Expression]) -> Expression:
        """``function`` applied to this expression: for chains of helpers."""
        return operand(function(self))

    def when(self, condition: Expression, value: Any) -> Expression:
        """The next case after ``F.when(...)``."""
        return _method("when", self._cases("when"), check_condition(condition, "when"), value)

    def otherwise(self, value: Any) -> Expression:
        """The value if no case of ``F.when(...)`` holds."""
        return _method("otherwise", self._cases("otherwise"), value)

    def over(self, window: object) -> NoReturn:
        """Refused: a stream has no rows before and after to look at."""
        raise ExpressionError(
            "LS0221",
            ".over() cannot be used in a stream",
            why=f"rows before and after are not known while a stream runs (window: {type(window).__name__}).",
            hint=".key_by(...).window(ls.tumbling(...)).agg(...) computes over windows of time.",
        )

    def _cases(self, method: str) -> Expression:
        if isinstance(self, Call) and self.name in ("when", "column.when"):
            return self
        raise ExpressionError(
            "LS0222",
            f".{method}() can only follow F.when(...)",
            why=f"it follows: {self}.",
            hint="start with F.when(...).",
        )


@dataclass(frozen=True, eq=False, repr=False)
class Column(Expression):
    """A column by name; ``a.b`` is the field b of the struct a."""

    name: str


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expression):
    """A plain value."""

    value: Any


@dataclass(frozen=True, eq=False, repr=False)
class Sql(Expression):
    """A text in SQL, opaque until Spark reads it."""

    text: str


@dataclass(frozen=True, eq=False, repr=False)
class Alias(Expression):
    """A value with a name."""

    of: Expression
    name: str

    @property
    def children(self) -> tuple[Expression, ...]:
        """What has the name."""
        return (self.of,)


@dataclass(frozen=True, eq=False, repr=False)
class Variable(Expression):
    """A parameter of a :class:`Lambda`: one element while a higher-order function walks an array or a map."""

    name: str


@dataclass(frozen=True, eq=False, repr=False)
class Lambda(Expression):
    """A Python lambda given to a higher-order function such as ``F.transform``, already called on its variables."""

    parameters: tuple[str, ...]
    body: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        """What the lambda gave."""
        return (self.body,)


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expression):
    """A function, operator or method by name.

    ``lower`` is a function of `pyspark.sql.functions`, ``operator.add`` an operator (see OPERATORS), ``column.cast`` a
    method whose first argument is its target, ``lockstep.epoch_time`` our own. Plain values are kept as given: pyspark
    takes a string as a column's name in some places and as a text in others.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    @property
    def children(self) -> tuple[Expression, ...]:
        """The expressions among the arguments, also those in lists."""
        return tuple(_expressions_in([*self.args, *(value for _, value in self.kwargs)]))


def epoch_time() -> Expression:
    """The time sealed for the epoch: the only clock a job may read, the same in every replica.

    >>> str(Column("at") > epoch_time())
    'at > epoch_time()'
    """
    return Call("lockstep.epoch_time")


def literal(value: Any) -> Literal:
    """A plain value as an expression; LS0223 if it is nothing a column can hold."""
    return Literal(_plain(value))


def operand(value: Any) -> Expression:
    """An expression as it is, a plain value as a literal."""
    if isinstance(value, Expression):
        return value
    return literal(value)


def call(name: str, *args: Any, **kwargs: Any) -> Call:
    """A call of a function of `pyspark.sql.functions` with arguments as given."""
    return Call(name, tuple(argument(a) for a in args), tuple((key, argument(a)) for key, a in kwargs.items()))


def argument(value: Any) -> Any:
    """What a call keeps of an argument: expressions, plain values, lists of them; a Python lambda becomes a Lambda."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(argument(item) for item in value)
    if isinstance(value, Mapping):
        return {key: argument(item) for key, item in value.items()}
    if inspect.isfunction(value) or inspect.ismethod(value):
        return _lambda(value)
    return _plain(value)


def check_condition(value: Any, where: str) -> Expression:
    """The condition of a ``when``: an expression, nothing else."""
    if isinstance(value, Expression):
        return value
    if (error := real_column(value)) is not None:
        raise error
    raise ExpressionError(
        "LS0222",
        f"the condition of {where}() is a {type(value).__name__}, not an expression",
        why=f"it was given {value!r}.",
        hint='write F.when(F.col("code") == 200, ...), or F.when(F.expr("code = 200"), ...).',
    )


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it, outside first."""
    yield expression
    for child in expression.children:
        yield from walk(child)


def unaliased(expression: Expression) -> Expression:
    """The expression without a name around it: where a keyword names the column, the keyword wins."""
    return expression.of if isinstance(expression, Alias) else expression


def _expressions_in(values: Sequence[Any]) -> Iterator[Expression]:
    for value in values:
        if isinstance(value, Expression):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _expressions_in(value)
        elif isinstance(value, dict):
            yield from _expressions_in(list(value.values()))


def _operator(name: str, *operands: Any) -> Expression:
    return Call(f"operator.{name}", tuple(operand(value) for value in operands))


def _method(name: str, target: Expression, *args: Any) -> Expression:
    return Call(f"column.{name}", (target, *(argument(value) for value in args)))


def _lambda(function: Callable[..., Any]) -> Lambda:
    names = tuple(inspect.signature(function).parameters)
    return Lambda(names, operand(function(*(Variable(name) for name in names))))


def _plain(value: Any) -> Any:
    """A value a column can hold, in Python's own types; everything else is explained (LS0223)."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int) and not -_INTEGER_MAX <= value < _INTEGER_MAX:
        raise ExpressionError(
            "LS0223",
            f"{value} is too large for a column",
            why="whole numbers have 64 bits.",
            hint="use decimal.Decimal, up to 38 digits.",
        )
    if isinstance(value, (int, float, str, bytes, Decimal, date, datetime)):
        return value
    if isinstance(value, (list, tuple)):
        return [item if isinstance(item, Expression) else _plain(item) for item in value]
    if (error := real_column(value)) is not None:
        raise error
    if type(value).__module__.startswith("pyspark.sql.types") and hasattr(value, "simpleString"):
        return value.simpleString()
    raise ExpressionError(
        "LS0223",
        f"a {type(value).__name__} cannot stand in an expression",
        why=f"it was given {value!r}.",
        hint="expressions are made of columns (F.col), plain values (text, numbers, dates) and functions (F.lower).",
    )


def _json(value: Any) -> Any:  # noqa: PLR0911, PLR0912  (one line per kind of value)
    match value:
        case Column():
            return {"column": value.name}
        case Literal():
            return {"literal": _json(value.value)}
        case Sql():
            return {"sql": value.text}
        case Alias():
            return {"alias": value.name, "of": _json(value.of)}
        case Variable():
            return {"variable": value.name}
        case Lambda():
            return {"lambda": list(value.parameters), "body": _json(value.body)}
        case Call():
            made = {"call": value.name, "args": [_json(item) for item in value.args]}
            return {**made, "kwargs": {key: _json(item) for key, item in value.kwargs}} if value.kwargs else made
        case list() | tuple():
            return [_json(item) for item in value]
        case dict():
            return {"dict": {str(key): _json(item) for key, item in value.items()}}
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case bytes():
            return {"bytes": value.hex()}
        case _:
            return {type(value).__name__.lower(): str(value)}
