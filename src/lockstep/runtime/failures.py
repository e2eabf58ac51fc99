"""What it means that Spark has ended a query: our own error if it carries one, else Spark's words and what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from pyspark.sql.streaming import StreamingQuery

from lockstep.errors import ExpressionError, LockstepError, RunError, from_wire
from lockstep.plan.expression import Sql, walk
from lockstep.plan.steps import Step

_QUERY = "=== Streaming Query ==="
"""What follows describes the query with its whole plan, in which errors stand that nobody has raised."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_ON_A_RECORD = re.compile(r"SQLSTATE: 22\d{3}\b")
_FROM_STEP = re.compile(r'== DataFrame ==\s*\n"([^\n"]+)" was called from\s*\n([^\n]*)')
_FROM_TEXT = re.compile(r"== SQL [^\n]*==\s*\n(.*?)\n[ ^]*\^", re.DOTALL)


def failure_of(query: StreamingQuery, steps: Sequence[Step]) -> LockstepError:
    """What ended a query of a job with these steps."""
    error = query.exception()
    text = str(error) if error else "the query ended without an error"
    print(text, file=sys.stderr, flush=True)
    return explained_failure(text, steps)


def explained_failure(text: str, steps: Iterable[Step] = ()) -> LockstepError:
    """What a failed query's text means.

    >>> explained_failure("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012").code
    'LS0215'
    """
    told = text.split(_QUERY, maxsplit=1)[0]
    if (own := from_wire(told)) is not None:
        return own
    if _ON_A_RECORD.search(told):
        return _on_a_record(told, steps)
    if "state" in told.lower() and ("CANNOT_LOAD_STATE_STORE" in told or "STATE_STORE" in told):
        return RunError("LS0604", "Spark cannot load this replica's state", why=_first_line(told))
    return RunError("LS0601", "Spark ended the query", why=_first_line(told), hint="see the replica's log.")


def _on_a_record(told: str, steps: Iterable[Step]) -> ExpressionError:
    """An expression that fails on a record: what failed, in which step, and what to write."""
    found = _CONDITION.findall(told)
    condition = next((one for one in found if one.endswith("_BY_ZERO") or "OVERFLOW" in one), found[0] if found else "")
    code, does, hint = _meaning(condition)
    who, expression = _place(told, steps)
    shown = f"the expression: {expression}. " if expression else ""
    return ExpressionError(code, f"{who} {does}", why=f"{shown}Spark says: {_first_line(told)}", hint=hint)


def _meaning(condition: str) -> tuple[str, str, str]:
    """The code of a condition of Spark, what an expression does that ends in it, and what to write instead."""
    if condition.endswith(("DIVIDE_BY_ZERO", "DIVIDED_BY_ZERO", "REMAINDER_BY_ZERO")):
        hint = "F.try_divide(a, b) or F.try_mod(a, b), in SQL try_divide(a, b), give null; or .filter(...) zeros out."
        return "LS0215", "divides by zero", hint
    if "OVERFLOW" in condition or condition.startswith("NUMERIC_VALUE_OUT_OF_RANGE"):
        hint = (
            'compute in a larger type: F.col("x").cast("decimal(38,0)"); or F.try_add, F.try_multiply and '
            "try_cast(... AS int) give null."
        )
        return "LS0216", "has a number that is too large for its type", hint
    hint = "let it give null instead: try_cast, try_to_timestamp, get(array, index) and the like; or filter it out."
    return "LS0214", "fails on a record", hint


def _place(told: str, steps: Iterable[Step]) -> tuple[str, str]:
    """The step whose expression it was, and the expression, as far as they are known."""
    ids = {step.id: step for step in steps}
    if (found := _FROM_STEP.search(told)) is not None and found[1] in ids:
        return f'step "{found[1]}"', found[2].strip()
    if (found := _FROM_TEXT.search(told)) is not None:
        text = found[1].strip()
        named = [f'"{name}"' for name, step in ids.items() if text in _texts(step)]
        return f"step {' or '.join(named)}" if named else "an expression of the job", text
    return "an expression of the job", ""


def _texts(step: Step) -> list[str]:
    return [node.text.strip() for one in step.expressions for node in walk(one) if isinstance(node, Sql)]


def _first_line(text: str) -> str:
    """Spark's first line; if that announces a Python traceback, the line that ends it too."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [text]
    # A line that ends in a colon only announces the next traceback.
    raised = [line for line in lines[1:] if re.match(r"[\w.]+(Error|Exception|Interrupt)\b.*[^:]$", line)]
    first = lines[0].removesuffix("Traceback (most recent call last):").strip()
    return f"{first} {raised[0] if raised else ''}".strip()[:600]
