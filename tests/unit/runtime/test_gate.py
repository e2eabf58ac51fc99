"""Queries wait for their checkpoints, with the processes of all their sources started."""

from __future__ import annotations

from pathlib import Path

from lockstep.runtime.epoch import gate as gates


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
