"""A whole job whose store is in ZooKeeper: two replicas on one host, one killed; and what people ask of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import read

JOB = """
import lockstep as ls

job = ls.Job("numbers")
numbers = job.source("numbers", ls.rate(200))
numbers.filter("seq % 3 = 0").select("seq").to(ls.files("out"), name="out")
"""
SETTINGS = {"heartbeat_interval_s": "0.5", "spares": "0"}


@pytest.fixture
def run(tmp_path: Path, store_address: str) -> Iterator[JobRun]:
    started = JobRun(Run("numbers", JOB, replicas=2, settings=SETTINGS, store=store_address), tmp_path)
    yield started
    started.kill()


def told(run: JobRun, *words: str) -> str:
    command = [sys.executable, "-m", "lockstep", "--project", str(run.folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def started_elsewhere(run: JobRun, folder: Path) -> str:
    """What a second `lockstep run` says, in a folder of its own as on another host."""
    for name in ("job.py", "lockstep.toml"):
        shutil.copy(run.folder / name, folder / name)
    command = [sys.executable, "-m", "lockstep", "--project", str(folder), "run", str(folder / "job.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def published(run: JobRun) -> list[int]:
    return [row["seq"] for row in read(run.folder / "out").to_pylist()]


def test_a_killed_replica_is_not_seen_in_the_output(run: JobRun, tmp_path_factory: pytest.TempPathFactory) -> None:
    run.wait_running()
    run.wait_until(lambda: len(published(run)) > 100, 120, "the first numbers")
    killed, _ = run.kill_replica(run.newest_sealer())
    before = len(published(run))
    run.wait_until(lambda: len(published(run)) > before + 200, 120, "numbers after the kill")
    run.wait_until(run.all_run, 180, "the replica to come back")
    run.wait_until(lambda: killed not in {one.pid for one in run.store.progress()}, 60, "another process in its place")

    refused = started_elsewhere(run, tmp_path_factory.mktemp("elsewhere"))
    assert "LS0610" in refused
    assert f".{run.pid}." in refused, "it says who supervises the job"
    assert run.all_run(), "and nobody was disturbed"

    numbers = published(run)
    assert numbers == list(range(0, 3 * len(numbers), 3)), "each number once, in order"
    status = json.loads(told(run, "status", "--json"))
    assert status["job"] == "numbers"
    assert {one["replica"] for one in status["replicas"]} == {"r0", "r1"}
    ledger = told(run, "ledger")
    assert "r0.1" in ledger or "r1.1" in ledger
    assert run.store.events(), "events are there"
    assert not (run.store_folder / "jobs" / "numbers" / "ledger.db").exists(), "nothing of the store is on this host"
    assert not run.store.divergences()
