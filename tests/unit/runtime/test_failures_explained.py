"""What a failed query means, and what the supervisor is told about it."""

from __future__ import annotations

import pytest

from lockstep.errors import ConnectError, FunctionError, LockstepError, RunError, StoreError
from lockstep.runtime.endings import exit_code
from lockstep.runtime.replica import explained_failure
from lockstep.runtime.spec import EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_FAILED, EXIT_JOB_ERROR


def test_our_own_error_is_found_inside_sparks_words() -> None:
    wire = FunctionError("LS0301", 'the function of step "map" raised', why="line 3", hint="mend it").to_wire()
    found = explained_failure(f"[STREAM_FAILED] Query failed: Job aborted ... RuntimeError: {wire}\n\n\tat org.apache")
    assert (found.code, found.why, found.hint) == ("LS0301", "line 3", "mend it")


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred", "LS0604", "CANNOT_LOAD_STATE_STORE"),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n at x", "LS0214", "DIVIDE_BY_ZERO"),
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
