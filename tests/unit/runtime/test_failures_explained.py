"""What a failed query means, and what the supervisor is told about it."""

from __future__ import annotations

import pytest

import lockstep as ls
from lockstep.errors import ConnectError, ExpressionError, FunctionError, LockstepError, RunError, StoreError
from lockstep.plan.steps import Step, upstream
from lockstep.runtime.endings import exit_code
from lockstep.runtime.failures import explained_failure
from lockstep.runtime.spec import EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_FAILED, EXIT_JOB_ERROR


def test_our_own_error_is_found_inside_sparks_words() -> None:
    wire = FunctionError("LS0301", 'the function of step "map" raised', why="line 3", hint="mend it").to_wire()
    found = explained_failure(f"[STREAM_FAILED] Query failed: Job aborted ... RuntimeError: {wire}\n\n\tat org.apache")
    assert (found.code, found.why, found.hint) == ("LS0301", "line 3", "mend it")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred", "LS0604", "CANNOT_LOAD_STATE_STORE"),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n at x", "LS0215", "DIVIDE_BY_ZERO"),
        ("Job aborted: [REMAINDER_BY_ZERO] Remainder by zero. SQLSTATE: 22012", "LS0215", "REMAINDER_BY_ZERO"),
        ("[INTERVAL_DIVIDED_BY_ZERO] Division by zero. SQLSTATE: 22012", "LS0215", "INTERVAL_DIVIDED_BY_ZERO"),
        ("[ARITHMETIC_OVERFLOW] long overflow. SQLSTATE: 22003", "LS0216", "ARITHMETIC_OVERFLOW"),
        ("[BINARY_ARITHMETIC_OVERFLOW] 127S + 5S. SQLSTATE: 22003", "LS0216", "BINARY_ARITHMETIC_OVERFLOW"),
        ("[CAST_OVERFLOW] The value 5L. SQLSTATE: 22003", "LS0216", "CAST_OVERFLOW"),
        ("[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] 1e30. SQLSTATE: 22003", "LS0216", "NUMERIC_VALUE"),
        ("[INVALID_ARRAY_INDEX] The index 5 is out of bounds. SQLSTATE: 22003", "LS0214", "INVALID_ARRAY_INDEX"),
        ("[CAST_INVALID_INPUT] The value 'x' ... SQLSTATE: 22018", "LS0214", "CAST_INVALID_INPUT"),
        ("Job aborted Traceback (most recent call last):\n  File\nKeyError: 'x'\n", "LS0601", "KeyError: 'x'"),
        ("java.lang.OutOfMemoryError: Java heap space", "LS0601", "OutOfMemoryError"),
        ("", "LS0601", ""),
    ],
)
def test_sparks_words_are_sorted_by_what_helps(text: str, code: str, says: str) -> None:
    found = explained_failure(text)
    assert found.code == code and says in found.why
    assert "\n" not in found.why


_PLAN = """
=== Streaming Query ===
Logical Plan:
+- Aggregate [sum(CASE WHEN ... ELSE raise_error(%s))]
"""


def test_an_error_that_only_stands_in_the_plan_has_not_been_raised() -> None:
    plan = _PLAN % ExpressionError("LS0212", "a float of 1e20").to_wire()
    assert explained_failure("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012" + plan).code == "LS0215"
    assert explained_failure("java.lang.OutOfMemoryError: Java heap space" + plan).code == "LS0601"


def _steps() -> tuple[Step, ...]:
    numbers = ls.Job("doc").source("numbers", ls.journal("numbers", schema="n bigint"))
    halved = numbers.with_columns(half="100 / n", name="halved").select("half", name="shown")
    end = halved.filter("half > 1", name="large")._step
    return (end, *upstream(end))


@pytest.mark.parametrize(
    ("context", "fact", "expression"),
    [
        ('== DataFrame ==\n"halved" was called from\n100 / n', 'step "halved" divides by zero', "100 / n"),
        ("== SQL (line 1, position 1) ==\n100 / n\n^^^^^^^\n", 'step "halved" divides by zero', "100 / n"),
        ("== SQL (line 1, position 1) ==\n7 / n\n^^^^^\n", "an expression of the job divides by zero", "7 / n"),
        ('== DataFrame ==\n"divide" was called from\n/x.py:3', "an expression of the job divides by zero", ""),
        ("", "an expression of the job divides by zero", ""),
    ],
)
def test_an_expression_that_fails_is_named_with_its_step(context: str, fact: str, expression: str) -> None:
    text = f"[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n{context}\n{_PLAN}"
    found = explained_failure(text, _steps())
    assert (found.code, found.fact) == ("LS0215", fact)
    assert (f"the expression: {expression}." in found.why) == bool(expression)
    assert "try_divide" in found.hint


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunError("LS0603", "divergence"), EXIT_DIVERGED),
        (RunError("LS0604", "damaged"), EXIT_CHECKPOINT),
        (RunError("LS0605", "below the floor"), EXIT_CHECKPOINT),
        (FunctionError("LS0301", "raised"), EXIT_JOB_ERROR),
        (ConnectError("LS0504", "file changed"), EXIT_JOB_ERROR),
        (ConnectError("LS0508", "disk full"), EXIT_FAILED),
        (StoreError("LS0401", "disk trouble"), EXIT_FAILED),
        (RunError("LS0601", "Spark ended"), EXIT_FAILED),
    ],
)
def test_the_exit_code_tells_whether_starting_again_can_help(error: LockstepError, code: int) -> None:
    assert exit_code(error) == code
