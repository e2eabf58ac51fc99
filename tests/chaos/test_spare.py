"""A real spare: a replica whose JVM is killed is back from it, and a killed agent leaves none behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import lockstep as ls
from lockstep.bench.running import JobRun, Run
from lockstep.chaos.actions.processes import jvms
from lockstep.connect.reading import Reader
from lockstep.control.status.overview import spares
from lockstep.observe.promises import once, order
from lockstep.runtime.phases import KIND
from lockstep.store.home import job_folder
from tests.chaos.jobs import PATIENCE_S, PATIENT, append

COUNTS = """
import lockstep as ls
from lockstep import F

job = ls.Job("counts")
(
    job.source("events", ls.journal("events", schema="user string, amount bigint"))
    .key_by("user")
    .agg(n=F.count("*"), total=F.sum("amount"))
    .to(ls.files("out"))
)
"""
"""Rolling counts: every epoch publishes the new totals of the users it touched."""
RECORDS: list[dict[str, Any]] = [{"user": f"u{number % 7}", "amount": number} for number in range(300)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[JobRun]:
    append(tmp_path, RECORDS[:100])
    one = JobRun(Run("counts", COUNTS, replicas=1, settings={**PATIENT, "heartbeat_interval_s": "0.5"}), tmp_path)
    yield one
    one.kill()


def phases(run: JobRun) -> list[str]:
    return [text for _, _, kind, _, text in run.store.events(limit=10_000) if kind == KIND]


def last_totals(run: JobRun) -> dict[str, tuple[int, int]]:
    """The newest row of each user; the table is in epoch order."""
    rows = ls.read(run.folder / "out").to_pylist()
    return {row["user"]: (row["n"], row["total"]) for row in rows}


def totals() -> dict[str, tuple[int, int]]:
    """What has to be published last for each user."""
    amounts: dict[str, list[int]] = {}
    for record in RECORDS:
        amounts.setdefault(record["user"], []).append(record["amount"])
    return {user: (len(all_of), sum(all_of)) for user, all_of in amounts.items()}


@pytest.mark.timeout(1200)
def test_a_replica_whose_jvm_is_killed_is_back_from_a_spare_and_a_killed_agent_leaves_none(run: JobRun) -> None:
    # Booting or ready: on a busy machine it takes its time, and a replica that has died does not wait for it.
    run.wait_until(lambda: bool(spares(run.store)), PATIENCE_S, "a spare to be booted")
    taken = spares(run.store)[0]["pid"]
    append(run.folder, RECORDS[100:200])
    # Not the driver: it has to notice, and end. Killed drivers are in the other tests.
    for jvm in jvms(run.store.progress()[0].pid):
        jvm.kill()
    append(run.folder, RECORDS[200:])
    run.wait_until(lambda: last_totals(run) == totals(), PATIENCE_S, "publishing the rest")
    assert [text.split(":")[0] for text in phases(run)] == ["a new process", "a spare"]
    assert run.store.progress()[0].pid == taken
    published = list(Reader(run.folder / "out").epochs())
    assert order(published) == [] and once(published) == []

    run.wait_until(lambda: bool(spares(run.store)), PATIENCE_S, "the next spare to be booted")
    family = psutil.Process(run.pid).children(recursive=True)
    assert {taken, spares(run.store)[0]["pid"]} <= {one.pid for one in family}
    agent = int((job_folder(run.store_folder, "counts") / "agent.pid").read_text())
    # Whoever would start another agent is stopped meanwhile.
    os.kill(run.pid, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    _, alive = psutil.wait_procs([one for one in family if one.pid != agent], timeout=PATIENCE_S)
    assert alive == [], "replica and spare notice that their agent is gone, and end with all their children"
