"""`lockstep token`: says where the token is, and never what it is unless asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep import credentials
from tests.unit.cli.conftest import Call


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(credentials, "_hidden", set())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_a_token_is_made_once_and_stays(lockstep: Call, tmp_path: Path) -> None:
    path = tmp_path / "config" / "lockstep" / "token"
    made = lockstep("token")
    token = path.read_text().strip()
    assert (made.code, made.out) == (0, f"{path}\n")
    assert "copy the file to every host" in made.err and token not in made.out + made.err
    again = lockstep("token")
    assert (again.code, path.read_text().strip()) == (0, token) and token not in again.out + again.err
    assert lockstep("token", "--show").out == f"{token}\n"


def test_a_token_is_replaced_only_when_asked(lockstep: Call, tmp_path: Path) -> None:
    lockstep("token", "--file", "own")
    before = (tmp_path / "own").read_text()
    assert lockstep("token", "--file", "own", "--replace").code == 0
    assert (tmp_path / "own").read_text() != before
    (tmp_path / "own").chmod(0o644)
    refused = lockstep("token", "--file", "own", "--show")
    assert (refused.code, refused.out) == (2, "") and "LS0031" in refused.err


def test_its_help_teaches(lockstep: Call) -> None:
    said = lockstep("token", "--help").out
    assert "--show" in said and "mode 600" in said
