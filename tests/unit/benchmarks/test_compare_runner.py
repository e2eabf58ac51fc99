"""A comparison under way: nothing that was measured is lost, a failure is told and the next cell follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare.measures import Outcome
from benchmarks.compare.plan import Cell
from benchmarks.compare.runner import Comparing, Selection
from lockstep.errors import RunError

RIGHT = {"expected": 5, "published": 5, "lost": 0, "repeated": 0, "wrong": 0, "live_repeated": 0, "right": True}
CHOSEN = Selection(
    workloads=["word_count", "tumbling_window"], engines=["lockstep-1", "spark"], measures=["latency"], quick=True
)


def _measured(p50_ms: float = 5.0) -> Outcome:
    return Outcome({"p50_ms": p50_ms, "p99_ms": float("nan"), "max_ms": 9.0, "cpu_cores": 0.5}, RIGHT)


def _comparing(
    monkeypatch: pytest.MonkeyPatch, folder: Path, outcome: Any, selection: Selection = CHOSEN
) -> tuple[Comparing, list[str]]:
    said: list[str] = []
    monkeypatch.setattr(Comparing, "_outcome", outcome)
    return Comparing(selection, folder, said.append, "python -m benchmarks compare"), said


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def outcome(_self: Comparing, cell: Cell, _place: Path) -> Outcome:
        if cell.workload == "tumbling_window":
            raise KeyboardInterrupt
        return _measured()

    comparing, _ = _comparing(monkeypatch, tmp_path, outcome)
    stored: list[int] = []
    document = comparing.run(lambda so_far: stored.append(len(so_far["cells"])))
    assert document["interrupted"]
    assert [(cell["workload"], cell["engine"]) for cell in document["cells"]] == [
        ("word_count", "lockstep-1"),
        ("word_count", "spark"),
    ]
    assert stored == [1, 2, 2], "stored after every cell, and once more at the end"
    assert document["cells"][0]["figures"]["p99_ms"] is None, "JSON has no nan"


def test_an_engine_that_fails_is_told_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def outcome(_self: Comparing, cell: Cell, _place: Path) -> Outcome:
        if cell.engine == "lockstep-1":
            raise RunError("LS0630", "it fell over", why="so", hint="look")
        return _measured()

    comparing, said = _comparing(monkeypatch, tmp_path, outcome)
    document = comparing.run(lambda _: None)
    assert ["error" in cell for cell in document["cells"]] == [True, False, True, False]
    assert not document["interrupted"]
    assert "failed: it fell over" in said[1]


def test_when_the_time_is_over_the_rest_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    short = Selection(CHOSEN.workloads, CHOSEN.engines, CHOSEN.measures, quick=True, minutes=0.01)
    comparing, said = _comparing(monkeypatch, tmp_path, lambda *_: _measured(), short)
    document = comparing.run(lambda _: None)
    assert document["cells"] == []
    assert document["interrupted"]
    assert said[-1] == "the time is over: 4 measurements are left out"
