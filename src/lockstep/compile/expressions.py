"""Expression trees to Spark Columns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as spark_functions

from lockstep.compile.hidden_columns import EPOCH_TIME, POSITION
from lockstep.plan.expression import OPERATORS, Alias, Call, Column, Expression, Lambda, Literal, Sql, Variable

_TEXT_CHARACTERS_MAX = 300
Rewrite = Callable[[Call], SparkColumn | None]
"""Asked first for every call: its own lowering, or None for the ordinary one (exact sums use it)."""


def to_column(expression: Expression, rewrite: Rewrite | None = None, *, step: str | None = None) -> SparkColumn:
    """The Spark Column of an expression tree; with ``step``, errors on a record name it. Needs a running session."""
    if step is None:
        return _Lowering(rewrite).column(expression)
    with _made_by(step, expression):
        return _Lowering(rewrite).column(expression)


@contextmanager
def _made_by(step: str, expression: Expression) -> Iterator[None]:
    """Tell Spark whose expression it is, where it would note a line of PySpark's caller, which is always this file."""
    # Not the active session, which belongs to a thread.
    context = SparkContext._active_spark_context
    assert context is not None and context._jvm is not None, "columns are made while Spark runs"
    origin = getattr(context._jvm, "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin")
    origin.set(step, str(expression).replace("\n", " ")[:_TEXT_CHARACTERS_MAX])
    try:
        yield
    finally:
        origin.clear()


@dataclass(frozen=True)
class _Lowering:
    rewrite: Rewrite | None
    variables: Mapping[str, SparkColumn] = field(default_factory=dict)

    def column(self, expression: Expression) -> SparkColumn:
        match expression:
            case Column(name=name):
                return spark_functions.col(_quoted(name))
            case Literal(value=value):
                return spark_functions.lit(value)
            case Sql(text=text):
                return spark_functions.expr(text)
            case Alias(of=of, name=name):
                return self.column(of).alias(name)
            case Variable(name=name):
                return self.variables[name]
            case Call():
                return self._call(expression)
        raise AssertionError(f"an expression of an unknown kind: {expression!r}")

    def _call(self, call: Call) -> SparkColumn:
        if call.name == "lockstep.epoch_time":
            return spark_functions.col(EPOCH_TIME)
        if call.name == "lockstep.position_hash":
            return spark_functions.xxhash64(*(spark_functions.col(name) for name in POSITION))
        if self.rewrite is not None and (own := self.rewrite(call)) is not None:
            return own
        args = [self._argument(arg) for arg in call.args]
        kwargs = {name: self._argument(value) for name, value in call.kwargs}
        kind, _, name = call.name.rpartition(".")
        if kind == "operator":
            return getattr(operator, OPERATORS[name])(*args)
        if kind == "column":
            return getattr(args[0], name)(*args[1:], **kwargs)
        return getattr(spark_functions, name)(*args, **kwargs)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Lambda):
            return self._lambda(value)
        if isinstance(value, Expression):
            return self.column(value)
        if isinstance(value, list | tuple):
            return type(value)(self._argument(item) for item in value)
        if isinstance(value, dict):
            return {key: self._argument(item) for key, item in value.items()}
        return value

    def _lambda(self, given: Lambda) -> Callable[..., SparkColumn]:
        def body(*columns: SparkColumn) -> SparkColumn:
            bound = dict(zip(given.parameters, columns, strict=True))
            return replace(self, variables={**self.variables, **bound}).column(given.body)

        # PySpark counts a lambda's parameters, so a variadic one will not do.
        shapes: dict[int, Callable[..., SparkColumn]] = {
            1: lambda x: body(x),  # noqa: PLW0108
            2: lambda x, y: body(x, y),  # noqa: PLW0108
            3: lambda x, y, z: body(x, y, z),  # noqa: PLW0108
        }
        return shapes[len(given.parameters)]


def _quoted(name: str) -> str:
    """A column's name as Spark reads it; a dot outside back-quotes would mean a field of a struct."""
    return f"`{name}`" if name.startswith("__") or not name.replace("_", "a").replace(".", "a").isalnum() else name
