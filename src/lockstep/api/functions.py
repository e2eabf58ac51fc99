"""`F`: the functions of `pyspark.sql.functions`, by their names, building expressions instead of Columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.errors import ExpressionError
from lockstep.plan.determinism import REFUSED_SCALARS, refused
from lockstep.plan.expression import Column, Expression, Sql, UnknownName, call, check_condition, literal
from lockstep.plan.schema import did_you_mean
from lockstep.plan.signatures import check_arguments, function_names, signature

if TYPE_CHECKING:
    # A stub, made from pyspark by scripts/function_stubs.py: every function with its parameters.
    from lockstep.api.spark_functions import SparkFunctions
else:
    SparkFunctions = object


class Functions(SparkFunctions):
    """All functions of `pyspark.sql.functions`; a name is looked up when it is used.

    >>> F.lower("user")
    <expression lower(user)>
    >>> F.when(F.col("code") >= 500, "error").otherwise("fine")
    <expression CASE WHEN code >= 500 THEN 'error' ELSE 'fine' END>
    >>> F.lowr("user")
    Traceback (most recent call last):
    ...
    lockstep.plan.expression.UnknownName: LS0206 there is no function F.lowr
      try:  did you mean "lower"?
    """

    def col(self, name: str) -> Expression:
        """A column by name; ``a.b`` is the field b of the struct a."""
        if not isinstance(name, str):
            raise ExpressionError(
                "LS0223", f"F.col was given a {type(name).__name__}, not a name", why=f"it was given {name!r}."
            )
        return Column(name)

    column = col

    def lit(self, value: Any) -> Expression:
        """A plain value: text, number, date, or None."""
        return value if isinstance(value, Expression) else literal(value)

    def expr(self, text: str) -> Expression:
        """A text in SQL: ``F.expr("price * pieces")``."""
        if not isinstance(text, str) or not text.strip():
            raise ExpressionError("LS0223", "F.expr needs a text in SQL", why=f"it was given {text!r}.")
        return Sql(text.strip())

    def when(self, condition: Expression, value: Any) -> Expression:
        """A value that depends on conditions: ``F.when(a, x).when(b, y).otherwise(z)``."""
        return call("when", check_condition(condition, "when"), value)

    if not TYPE_CHECKING:  # whoever checks types has the stub: a misspelt name is an error there

        def __getattr__(self, name: str) -> Callable[..., Expression]:
            if name.startswith("_"):
                raise AttributeError(name)
            refusal = REFUSED_SCALARS.get(name)
            if refusal is not None and refusal.kind == "stream":
                raise refused(f"F.{name}", refusal, "a job")
            if signature(name) is None:
                raise UnknownName(
                    "LS0206",
                    f"there is no function F.{name}",
                    hint=did_you_mean(name, function_names()) or "dir(F) lists them all.",
                )

            def build(*args: Any, **kwargs: Any) -> Expression:
                check_arguments(name, args, kwargs)
                return call(name, *args, **kwargs)

            build.__name__ = build.__qualname__ = name
            return build

    def __dir__(self) -> list[str]:
        return [
            name for name in function_names() if name not in REFUSED_SCALARS or REFUSED_SCALARS[name].kind != "stream"
        ]

    def __repr__(self) -> str:
        return "<F: the functions of pyspark.sql.functions, as expressions>"


F = Functions()
"""The functions of `pyspark.sql.functions`; ``from lockstep import F``."""
