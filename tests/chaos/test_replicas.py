"""Real replicas, really killed. Each test boots JVMs, so each does several things in a row."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import lockstep as ls
from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import Reader
from lockstep.control.overview import spares
from lockstep.observe.promises import completeness, once, order
from lockstep.runtime.phases import KIND
from tests.chaos.jobs import COUNTS, DISHONEST, POISONED, append, last_totals, totals

FAST = {"retention_epochs_min": "20", "heartbeat_interval_s": "0.5"}


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


def feed(project: Path, sent: list[dict[str, Any]], count: int) -> None:
    records = [{"user": f"u{(len(sent) + i) % 7}", "amount": len(sent) + i} for i in range(count)]
    append(project, records)
    sent += records


def events_of(run: JobRun) -> list[tuple[str, str]]:
    return [(kind, replica) for _, _, kind, replica, _ in run.store.events(limit=10_000)]


def feed_while(run: JobRun, sent: list[dict[str, Any]], until: Any, timeout_s: float, what: str) -> None:
    def fed_and_done() -> bool:
        feed(run.folder, sent, 20)
        return bool(until())

    run.wait_until(fed_and_done, timeout_s, what)


def check_output(run: JobRun, sent: list[dict[str, Any]]) -> None:
    """All promises that can be read off the sink and the ledger, and the right answer."""
    reader = Reader(run.folder / "out")
    epochs = list(reader.epochs())
    assert order(epochs) == [] and once(epochs) == []
    floor = run.store.floor()
    entries = run.store.entries(floor, 10**9)
    assert completeness([(entry.epoch, entry.cut) for entry in entries]) == []
    assert run.store.digest_mismatches() == []
    assert last_totals(ls.read(run.folder / "out")) == totals(sent)


def all_published(run: JobRun, sent: list[dict[str, Any]]) -> bool:
    head = run.store.head()
    published = run.store.published(0, 10**9)
    if head is None or not published:
        return False
    return sum(int(p) for p in head.cut["events"].values()) == len(sent) and published[-1].epoch >= head.epoch


def test_killing_either_replica_loses_nothing_and_a_damaged_checkpoint_is_seeded_anew(
    tmp_path: Path, runs: list[JobRun]
) -> None:
    sent: list[dict[str, Any]] = []
    feed(tmp_path, sent, 50)
    run = start(runs, Run("counts", COUNTS, replicas=2, settings=FAST), tmp_path)
    run.wait_running()
    feed_while(run, sent, lambda: len(run.store.published(0, 10**9)) > 20, 60, "publishing some epochs")
    feed_while(run, sent, lambda: ("spare-ready", "") in events_of(run), 120, "a spare to be ready")

    victim = run.newest_sealer()
    run.kill_replica(victim)
    killed_at = len(run.store.published(0, 10**9))
    feed_while(run, sent, run.all_run, 90, "the killed replica to come back")
    assert len(run.store.published(0, 10**9)) > killed_at, "the survivor went on meanwhile"
    begun = [text for _, _, kind, replica, text in run.store.events(limit=10_000) if (kind, replica) == (KIND, victim)]
    assert [text.split(":")[0] for text in begun] == ["a new process", "a spare"]

    pid, _ = run.kill_replica("r1")
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    commits = sorted((tmp_path / ".lockstep/jobs/counts/replicas/r1/checkpoint/commits").glob("[0-9]*"))
    for commit in commits:
        commit.unlink()
    feed_while(run, sent, run.all_run, 90, "the replica with the damaged checkpoint to come back")
    assert ("checkpoint-damaged", "r1") in events_of(run)
    assert ("seeded", "r1") in events_of(run)

    run.wait_until(lambda: all_published(run, sent), 60, "publishing everything")
    check_output(run, sent)
    run.stop()
    assert run.exit_code == 0


def test_a_run_goes_on_where_it_was_and_ends_with_its_supervisor(tmp_path: Path, runs: list[JobRun]) -> None:
    sent: list[dict[str, Any]] = []
    feed(tmp_path, sent, 100)
    first = start(runs, Run("counts", COUNTS, replicas=1, settings=FAST), tmp_path)
    first.wait_running()
    first.wait_until(lambda: all_published(first, sent), 60, "publishing the first records")
    first.wait_until(lambda: bool(spares(first.store)), 60, "a spare to be booted")
    family = psutil.Process(first.pid).children(recursive=True)
    assert {first.store.progress()[0].pid, spares(first.store)[0]["pid"]} <= {one.pid for one in family}
    os.kill(first.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == [], "replica and spare notice that their supervisor is gone, and end with all their children"
    first.kill()

    feed(tmp_path, sent, 100)
    again = start(runs, Run("counts", COUNTS, replicas=1, settings=FAST), tmp_path)
    again.wait_until(lambda: all_published(again, sent), 90, "publishing the rest")
    check_output(again, sent)
    again.stop()
    assert again.exit_code == 0


def test_a_record_that_makes_a_function_raise_stops_the_job_and_is_named(tmp_path: Path, runs: list[JobRun]) -> None:
    append(tmp_path, [{"user": "ann", "amount": 5}, {"user": "bob", "amount": 0}])
    run = start(runs, Run("poisoned", POISONED, replicas=1, settings=FAST), tmp_path)
    run.wait_until(lambda: run.ended, 120, "the job to stop")
    assert run.exit_code == 1
    said = (tmp_path / "run.log").read_text()
    assert "LS0301" in said and "halve" in said and "job.py" in said and "bob" in said
    assert "skip" in said, "it says what on_error can do"


def test_two_replicas_that_disagree_stop_the_job_and_show_the_rows(tmp_path: Path, runs: list[JobRun]) -> None:
    append(tmp_path, [{"user": "ann", "amount": 1}])
    run = start(runs, Run("dishonest", DISHONEST.replace("WRONG", "r1"), replicas=2, settings=FAST), tmp_path)
    run.wait_running()
    append(tmp_path, [{"user": "bob", "amount": 13}])
    run.wait_until(lambda: run.ended, 60, "the job to stop")
    assert run.exit_code == 1
    said = (tmp_path / "run.log").read_text()
    assert "LS0603" in said and "sign" in said and "'bob', 13" in said and "'bob', -13" in said


def test_the_odd_one_out_of_three_is_quarantined_and_seeded_anew(tmp_path: Path, runs: list[JobRun]) -> None:
    sent = [{"user": "ann", "amount": 1}]
    append(tmp_path, sent)
    run = start(runs, Run("dishonest", DISHONEST.replace("WRONG", "r2"), replicas=3, settings=FAST), tmp_path)
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
    run.stop()
    assert run.exit_code == 0
