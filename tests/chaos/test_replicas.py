"""Three real replicas that fail by their own code. Two that disagree are in ``test_crash_windows.py``, at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.bench.running import JobRun, Run
from tests.chaos.jobs import PATIENCE_S, PATIENT, SIGN, append

NAMED = {**PATIENT, "retention_epochs_min": "20", "heartbeat_interval_s": "0.5", "spares": "0"}
"""For jobs that ask which replica they are: a process that was a warm spare has another name in its command line."""


DISHONEST = (
    SIGN.replace("WRONG", "r2")
    + """
import lockstep as ls

job = ls.Job("dishonest")
(
    job.source("events", ls.journal("events", schema="user string, amount bigint"))
    .map(sign, schema="user string, amount bigint", name="sign")
    .to(ls.files("out"))
)
"""
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[JobRun]:
    append(tmp_path, [{"user": "ann", "amount": 1}])
    one = JobRun(Run("dishonest", DISHONEST, replicas=3, settings=NAMED), tmp_path)
    yield one
    one.kill()


def events_of(run: JobRun) -> list[tuple[str, str]]:
    return [(kind, replica) for _, _, kind, replica, _ in run.store.events(limit=10_000)]


@pytest.mark.timeout(1800)
def test_the_odd_one_out_of_three_is_seeded_anew_and_a_record_that_none_can_take_stops_the_job(
    tmp_path: Path, run: JobRun
) -> None:
    run.wait_until(run.all_run, PATIENCE_S, "starting the replicas")
    append(tmp_path, [{"user": "bob", "amount": 13}])
    run.wait_until(lambda: bool(run.store.divergences()), PATIENCE_S, "the divergence to show")
    run.wait_until(lambda: all(one.verdict for one in run.store.divergences()), PATIENCE_S, "the verdict")
    verdicts = {(one.replica, one.verdict) for one in run.store.divergences()}
    if ("r2", "reseed") not in verdicts:  # r2 was first and published: the other two outvote it
        assert verdicts <= {("r0", "go-on"), ("r1", "go-on")}
        assert ("quarantined", "r2") in events_of(run)
    starts = events_of(run).count(("replica-started", "r2"))
    run.wait_until(
        lambda: events_of(run).count(("replica-started", "r2")) > 1 or starts > 1, PATIENCE_S, "r2 to start anew"
    )
    append(tmp_path, [{"user": "eve", "amount": 2}])
    run.wait_until(lambda: "eve" in ls.read(tmp_path / "out").column("user").to_pylist(), PATIENCE_S, "going on")
    time.sleep(0.2)
    assert not run.ended

    append(tmp_path, [{"user": "dan", "amount": 0}])
    run.wait_until(lambda: run.ended, PATIENCE_S, "the job to stop")
    assert run.exit_code == 1
    said = (tmp_path / "run.log").read_text()
    assert "LS0301" in said and "sign" in said and "job.py" in said and "dan" in said
    assert "skip" in said, "it says what on_error can do"
