"""Real replicas that fail by their own code. What happens when they are killed is in ``test_chaos_run.py`` and
``test_crash_windows.py``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.bench.running import JobRun, Run
from tests.chaos.jobs import DISHONEST, append

NAMED = {"retention_epochs_min": "20", "heartbeat_interval_s": "0.5", "spares": "0"}
"""For jobs that ask which replica they are: a process that was a warm spare has another name in its command line."""


@pytest.fixture
def runs() -> Iterator[list[JobRun]]:
    """Whatever a test starts is ended, also if it fails."""
    started: list[JobRun] = []
    yield started
    for one in started:
        one.kill()


def start(runs: list[JobRun], run: Run, folder: Path) -> JobRun:
    one = JobRun(run, folder)
    runs.append(one)
    return one


def events_of(run: JobRun) -> list[tuple[str, str]]:
    return [(kind, replica) for _, _, kind, replica, _ in run.store.events(limit=10_000)]


def test_two_replicas_that_disagree_stop_the_job_and_show_the_rows(tmp_path: Path, runs: list[JobRun]) -> None:
    append(tmp_path, [{"user": "ann", "amount": 1}])
    run = start(runs, Run("dishonest", DISHONEST.replace("WRONG", "r1"), replicas=2, settings=NAMED), tmp_path)
    run.wait_running()
    append(tmp_path, [{"user": "bob", "amount": 13}])
    run.wait_until(lambda: run.ended, 60, "the job to stop")
    assert run.exit_code == 1
    said = (tmp_path / "run.log").read_text()
    assert "LS0603" in said and "sign" in said and "'bob', 13" in said and "'bob', -13" in said


def test_the_odd_one_out_of_three_is_seeded_anew_and_a_record_that_none_can_take_stops_the_job(
    tmp_path: Path, runs: list[JobRun]
) -> None:
    sent = [{"user": "ann", "amount": 1}]
    append(tmp_path, sent)
    run = start(runs, Run("dishonest", DISHONEST.replace("WRONG", "r2"), replicas=3, settings=NAMED), tmp_path)
    run.wait_running()
    append(tmp_path, [{"user": "bob", "amount": 13}])
    run.wait_until(lambda: bool(run.store.divergences()), 60, "the divergence to show")
    run.wait_until(lambda: all(one.verdict for one in run.store.divergences()), 60, "the verdict")
    verdicts = {(one.replica, one.verdict) for one in run.store.divergences()}
    if ("r2", "reseed") not in verdicts:  # r2 was first and published: the other two outvote it
        assert verdicts <= {("r0", "go-on"), ("r1", "go-on")}
        assert ("quarantined", "r2") in events_of(run)
    starts = events_of(run).count(("replica-started", "r2"))
    run.wait_until(lambda: events_of(run).count(("replica-started", "r2")) > 1 or starts > 1, 60, "r2 to start anew")
    append(tmp_path, [{"user": "eve", "amount": 2}])
    run.wait_until(lambda: "eve" in ls.read(tmp_path / "out").column("user").to_pylist(), 60, "going on")
    time.sleep(0.2)
    assert not run.ended

    append(tmp_path, [{"user": "dan", "amount": 0}])
    run.wait_until(lambda: run.ended, 120, "the job to stop")
    assert run.exit_code == 1
    said = (tmp_path / "run.log").read_text()
    assert "LS0301" in said and "sign" in said and "job.py" in said and "dan" in said
    assert "skip" in said, "it says what on_error can do"
