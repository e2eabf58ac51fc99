"""Calls the command line in this process and keeps what it said."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli.main import main


@dataclass(frozen=True)
class Said:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.out)


Call = Callable[..., Said]


@pytest.fixture
def lockstep(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """``lockstep("status", "--json")`` in an empty project folder; ``stdin=`` is what it reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_DEBUG", raising=False)

    def call(*arguments: str, stdin: str | bytes = "") -> Said:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    return call
