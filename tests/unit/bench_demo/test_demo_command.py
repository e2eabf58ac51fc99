"""How the demo ends: its exit code, its report, and what it leaves behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from lockstep.bench.demo import command
from lockstep.bench.demo.checking import Comparison
from lockstep.bench.demo.progress import Progress
from lockstep.bench.demo.results import Results, measured
from lockstep.errors import RunError
from lockstep.observe import pages
from tests.unit.bench_demo.parts_for_demo import part


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(command, "find_java", lambda: None)
    monkeypatch.setattr(pages, "machine_text", lambda: "")


def _play(monkeypatch: pytest.MonkeyPatch, comparison: Comparison | None = None) -> None:
    def played(_folder: Path, progress: Progress) -> Results:
        return Results((measured(part(1)), measured(part(2, comparison=comparison))), progress.elapsed_s)

    monkeypatch.setattr(command, "_played", played)


def test_a_demo_without_fault_ends_with_zero_and_leaves_only_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch)
    assert command.run_demo(tmp_path / "new" / "report.html", tmp_path / "picture.svg", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert (tmp_path / "new" / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "picture.svg").read_text().startswith("<svg")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_broken_promise_ends_with_one_and_keeps_the_evidence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(monkeypatch, Comparison(expected=500, published=500, wrong=("one alert",)))
    assert command.run_demo(tmp_path / "report.html") == 1
    said = capsys.readouterr()
    (kept,) = (tmp_path / "temporary").iterdir()
    assert "NOT as promised" in said.out
    assert str(kept) in said.err


def test_ctrl_c_ends_with_130_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(_folder: Path, _narrator: Progress) -> Results:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_played", interrupted)
    assert command.run_demo(tmp_path / "report.html") == 130
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(RunError, match="LS0622"):
        command.run_demo(tmp_path / "folder.html")
