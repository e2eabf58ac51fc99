"""Errors about numbers that native and keyed aggregations have in common."""

from __future__ import annotations

from lockstep.errors.tree import ExpressionError

FLOAT_LIMIT = 1e20
"""A float of this size or more has no decimal of 38 digits with 18 after the point."""


def float_too_large(step: str = "") -> ExpressionError:
    """A float that cannot be added exactly came.

    >>> float_too_large("totals").fact
    'step "totals" adds a float of 1e+20 or more'
    """
    return ExpressionError(
        "LS0212",
        f"{_who(step)} adds a float of {FLOAT_LIMIT:g} or more",
        why="floats are added exactly, as decimals with 18 digits after the point and 20 before it.",
        hint="scale the values down first: divide by a power of two, which is exact; or .agg(..., exact_floats=False) "
        "adds floats of any size, and accepts differences in the last digits.",
    )


def sum_too_large(function: str, kind: str, step: str = "") -> ExpressionError:
    """An aggregate has left the range of its type.

    >>> sum_too_large("sum", "bigint").fact
    'an aggregation of the job has a sum that is too large for bigint'
    """
    larger = "double" if kind.startswith("decimal(38") else "decimal(38,0)" if kind == "bigint" else "decimal(38,10)"
    return ExpressionError(
        "LS0216",
        f"{_who(step)} has a sum that is too large for {kind}",
        why=f"the records' {function} has left the range of {kind}, which is its type.",
        hint=f'add in a larger type: F.{function}(F.col("x").cast("{larger}")).',
    )


def _who(step: str) -> str:
    return f'step "{step}"' if step else "an aggregation of the job"
