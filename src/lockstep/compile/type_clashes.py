"""Comparisons that Spark would accept and then fail on, record by record, while the job runs."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, NullType, NumericType, StringType, StructType

from lockstep.errors import ExpressionError, PlanError
from lockstep.plan.expression import Call, Column, Expression, Literal
from lockstep.plan.steps import Union

_COMPARISONS = {
    "operator.eq": "==",
    "operator.ne": "!=",
    "operator.lt": "<",
    "operator.le": "<=",
    "operator.gt": ">",
    "operator.ge": ">=",
}


def check_comparisons(expression: Expression, frame: DataFrame, step: str) -> None:
    """Refuse to compare a column with a value of a type that only a failing cast could bring together.

    In ANSI mode Spark casts the string to a number and raises on the first one that is none: far too late.
    """
    if isinstance(expression, Call) and expression.name in _COMPARISONS:
        _check(expression, frame, step)
    for child in expression.children:
        check_comparisons(child, frame, step)


def check_same_types(step: Union, schemas: tuple[StructType, ...]) -> None:
    """Refuse to unite columns of different types: Spark would convert them, quietly. Nothing but nulls fits any."""
    for name in step.columns:
        found: dict[str, str] = {}
        for stream, schema in zip(step.streams, schemas, strict=True):
            if not isinstance(schema[name].dataType, NullType):
                found.setdefault(schema[name].dataType.simpleString(), stream.id)
        if len(found) > 1:
            (one, first), (two, other), *_ = found.items()
            raise PlanError(
                "LS0176",
                f'{step.where} unites "{first}" and "{other}", which have different types in column "{name}"',
                why=f'it is {one} in "{first}" and {two} in "{other}".',
                hint=f'convert one side first: .with_columns({name}=F.col("{name}").cast("{one}")).',
            )


def _check(call: Call, frame: DataFrame, step: str) -> None:
    columns = [arg for arg in call.args if isinstance(arg, Column)]
    values = [arg.value for arg in call.args if isinstance(arg, Literal)]
    if len(columns) != 1 or len(values) != 1 or columns[0].name not in frame.columns:
        return
    kind = frame.schema[columns[0].name].dataType
    if _clash(kind, values[0]):
        raise ExpressionError(
            "LS0209",
            f'step "{step}" compares column "{columns[0].name}" ({kind.simpleString()}) with {values[0]!r}',
            why=f"{call}: one is a {kind.simpleString()}, the other a {type(values[0]).__name__}.",
            hint=f'compare like with like, or convert first: F.col("{columns[0].name}").cast("...").',
        )


def _clash(kind: object, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(kind, StringType):
        return number or isinstance(value, bool)
    if isinstance(kind, NumericType):
        return isinstance(value, bool) or (isinstance(value, str) and not _numeric(value))
    if isinstance(kind, BooleanType):
        return number or isinstance(value, str)
    return False


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
