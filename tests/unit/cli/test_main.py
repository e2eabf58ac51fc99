from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli import explain
from lockstep.errors import FunctionError, PlanError, RunError
from tests.unit.cli.conftest import Call

COMMANDS = ("new", "run", "plan", "check", "status", "ledger", "put", "tail", "compact", "demo", "doctor", "explain")


def test_help_lists_every_subcommand(lockstep: Call) -> None:
    said = lockstep("--help")
    assert said.code == 0
    for name in (*COMMANDS, "bench"):
        assert re.search(rf"^[│| ]+{name} ", said.out, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_subcommand_teaches_with_an_example(lockstep: Call, name: str) -> None:
    assert f"lockstep {name}" in lockstep(name, "--help").out.partition("Example")[2]


def test_a_mistyped_subcommand_is_answered_with_the_right_one(lockstep: Call) -> None:
    said = lockstep("statsu")
    assert said.code == 2
    assert "status" in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [(PlanError("LS0101", "a fact"), 2), (RunError("LS0601", "a fact"), 1), (FunctionError("LS0301", "a fact"), 1)],
)
def test_an_error_ends_with_the_exit_code_of_its_kind(
    lockstep: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(explain, "all_pages", fail)
    said = lockstep("explain")
    assert (said.code, said.out, said.err) == (code, "", f"{error}\n")


def test_an_unexpected_exception_is_one_line_and_names_the_file_with_the_traceback(
    lockstep: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a\nsurprise")

    monkeypatch.setattr(explain, "all_pages", fail)
    said = lockstep("explain")
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert "ZeroDivisionError: a surprise" in said.err
    written = Path(re.findall(r"in (\S+\.txt)", said.err)[0])
    assert "in fail" in written.read_text()
    written.unlink()

    monkeypatch.setenv("LOCKSTEP_DEBUG", "1")
    assert "Traceback (most recent call last)" in lockstep("explain").err


def test_it_can_be_called_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"lockstep \d+\.\d+\.\d+\n", done.stdout)
