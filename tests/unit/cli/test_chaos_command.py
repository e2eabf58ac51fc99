"""`lockstep chaos` before anything runs: the vocabulary, and what is refused."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Call


def test_the_vocabulary_is_listed_with_what_each_requires_and_takes(lockstep: Call) -> None:
    done = lockstep("chaos", "list", "--json")
    rows = {row["action"]: row for row in done.json()}
    assert rows["kill-jvm"]["requires"] == ["another healthy replica"]
    assert rows["kill-jvm"]["takes"] == ["one replica"]
    assert rows["stop-and-start"]["takes"] == ["the whole job"]
    assert all("not_here" in row for row in rows.values())


def test_an_unknown_action_is_refused_before_anything_starts(lockstep: Call, tmp_path: Path) -> None:
    done = lockstep("chaos", "run", "--only", "kill-everybody", "--report", str(tmp_path / "report.html"))
    assert done.code == 2
    assert "LS0651" in done.err
    assert not (tmp_path / "report.html").exists()


def test_a_job_with_one_replica_cannot_lose_it(lockstep: Call) -> None:
    done = lockstep("chaos", "run", "--only", "kill-jvm", "--replicas", "1")
    assert done.code == 2
    assert "LS0655" in done.err and "there has to be another one" in done.err
