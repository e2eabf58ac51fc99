"""Spark's complaints about a plan, in the words of the job."""

from __future__ import annotations

import re
from difflib import get_close_matches

from pyspark.errors import AnalysisException, ParseException

from lockstep.errors import ExpressionError, LockstepError, PlanError
from lockstep.plan.determinism import refuse, refused


def explained(error: AnalysisException, step: str, columns: tuple[str, ...]) -> LockstepError:
    """What went wrong in ``step``, whose input has ``columns``."""
    if (own := _unknown_column(error, step, columns)) is not None:
        return own
    condition = error.getCondition() or ""
    message = _first_sentence(str(error))
    if isinstance(error, ParseException):
        return ExpressionError(
            "LS0210", f'step "{step}" has SQL that does not parse', why=_place(str(error)), hint="mend the SQL text."
        )
    if condition.startswith("DATATYPE_MISMATCH"):
        return ExpressionError(
            "LS0209",
            f'step "{step}" puts together types that do not fit',
            why=message,
            hint='convert one side first, e.g. F.col("x").cast("bigint").',
        )
    if condition == "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION":
        return _not_deterministic(message, step)
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return ExpressionError("LS0206", f'step "{step}" calls a function that Spark does not have', why=message)
    return ExpressionError("LS0211", f'Spark refuses step "{step}"', why=message)


def _not_deterministic(message: str, step: str) -> ExpressionError:
    for name in re.findall(r"(\w+)\(", message):
        if (refusal := refuse(name)) is not None:
            return refused(name, refusal, f'step "{step}"')
    return ExpressionError("LS0213", f'step "{step}" aggregates what is not deterministic', why=message)


def _unknown_column(error: AnalysisException, step: str, columns: tuple[str, ...]) -> PlanError | None:
    if not (error.getCondition() or "").startswith(("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")):
        return None
    found = re.search(r"name `([^`]+)`", str(error))
    name = found.group(1) if found else "?"
    near = get_close_matches(name, columns, n=1)
    return PlanError(
        "LS0107",
        f'step "{step}" uses an unknown column "{name}"',
        why=f"the stream has: {', '.join(columns)}.",
        hint=f'did you mean "{near[0]}"?' if near else "use one of those.",
    )


def _first_sentence(text: str) -> str:
    return text.split(" SQLSTATE", maxsplit=1)[0].split("\n", maxsplit=1)[0].strip()


def _place(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("JVM", "\tat"))]
    return "\n".join(lines[:6])
