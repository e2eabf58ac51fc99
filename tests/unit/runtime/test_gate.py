"""Queries wait for their checkpoints, with the processes of all their sources started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lockstep.runtime.epoch import gate as gates
from lockstep.runtime.spark import waiting, warm_up
from lockstep.runtime.spark.waiting import WaitingQueries

if TYPE_CHECKING:
    from lockstep.compile.job import Compiled


def test_only_the_last_source_of_a_query_waits_whichever_it_is(tmp_path: Path) -> None:
    gate = tmp_path / "new" / "gate"
    gates.close(gate, {1: ["left", "right", "left"], 2: ["stage-agg"]})
    assert gates.missing(gate) == 3
    assert not gates.come(gate, 1, "right")
    assert not gates.come(gate, 1, "right"), "the same one once more, as in a join of a stream with itself"
    assert gates.come(gate, 2, "stage-agg"), "it is the only one"
    assert gates.missing(gate) == 1
    assert gates.come(gate, 1, "left") and gates.come(gate, 1, "left")
    assert gates.missing(gate) == 0
    gates.clear(gate)
    assert not gates.come(gate, 1, "left")
    assert list(gate.parent.iterdir()) == []


def test_without_a_gate_nobody_waits(tmp_path: Path) -> None:
    assert not gates.come(tmp_path / "gate", 1, "left")
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_never_comes_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "STILL_S_MAX", 0.1)
    gate = tmp_path / "gate"
    queries = WaitingQueries([], {}, gate)
    assert queries.come(lambda: False), "nobody is expected"
    gates.close(gate, {1: ["left", "right"]})
    gates.come(gate, 1, "left")
    assert not queries.come(lambda: False)
    assert list(tmp_path.iterdir()) == [], "and nothing else waits there"


class Hanging:
    """A query of which no epoch is ever done, and what builds it."""

    isActive = True  # noqa: N815 - Spark's name

    def outputMode(self, mode: str) -> Hanging:  # noqa: N802
        return self

    def option(self, name: str, value: str) -> Hanging:
        return self

    def start(self) -> Hanging:
        return self

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


def test_a_warm_up_that_hangs_is_ended_and_the_queries_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, compiled = Hanging(), SimpleNamespace(frame=SimpleNamespace(sparkSession=None), output_mode="append")
    monkeypatch.setattr(warm_up, "WARM_UP_S_MAX", 0.1)
    monkeypatch.setattr(warm_up, "started", lambda compiled, folder, rehearse: query)
    monkeypatch.setattr(warm_up, "_read_state", lambda session, folder: None)
    assert not warm_up.warm_up(cast("Compiled", compiled), tmp_path / "logs", lambda: False)
    assert not query.isActive
