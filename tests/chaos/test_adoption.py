"""Whoever supervises may die, sleep and come back: the replicas go on, and the next one adopts them as they are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import lockstep as ls
from lockstep.agent.leftovers import leftovers
from lockstep.agent.processes import kill_tree
from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import Reader
from lockstep.observe.promises import once, order
from lockstep.store.home import job_folder
from tests.chaos.jobs import PATIENCE_S, PATIENT, append, last_totals, totals
from tests.chaos.test_spare import COUNTS

RECORDS: list[dict[str, Any]] = [{"user": f"u{number % 7}", "amount": number} for number in range(500)]
SETTINGS = {**PATIENT, "heartbeat_interval_s": "0.5", "spares": "0"}
Start = Callable[..., JobRun]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`lockstep run` in one folder, as often as it is wanted; nothing of it is left at the end."""
    runs: list[JobRun] = []

    def started(replicas: int, *arguments: str, **settings: str) -> JobRun:
        run = Run("counts", COUNTS, replicas, settings={**SETTINGS, **settings}, arguments=arguments)
        runs.append(JobRun(run, tmp_path))
        return runs[-1]

    yield started
    for one in runs:
        one.kill()
    folder = job_folder(tmp_path / ".lockstep", "counts")
    if (pid := agent_pid(folder)) is not None:
        kill_tree(pid)
    for left in leftovers(folder):
        kill_tree(left.pid)


def agent_pid(folder: Path) -> int | None:
    """The agent of a job, None if it does not run."""
    try:
        pid = int((folder / "agent.pid").read_text())
        return pid if "lockstep.agent" in psutil.Process(pid).cmdline() else None
    except (OSError, psutil.Error):
        return None


def replicas(run: JobRun) -> dict[str, tuple[int, int]]:
    """Which process and which incarnation each replica is."""
    return {one.replica: (one.pid, one.incarnation) for one in run.store.progress()}


def events(run: JobRun, kind: str) -> list[str]:
    return [text for _, _, of_kind, _, text in run.store.events(limit=10_000) if of_kind == kind]


def is_published(run: JobRun, count: int) -> bool:
    """Whether the newest totals are those of so many records."""
    out = run.folder / "out"
    return out.exists() and last_totals(ls.read(out)) == totals(RECORDS[:count])


@pytest.mark.timeout(2400)
def test_replicas_outlive_their_supervisor_and_a_job_outlives_its_agent(start: Start, tmp_path: Path) -> None:
    folder = job_folder(tmp_path / ".lockstep", "counts")
    append(tmp_path, RECORDS[:100])
    first = start(2)
    first.wait_until(first.all_run, PATIENCE_S, "starting the replicas")
    running = replicas(first)
    os.kill(first.pid, signal.SIGKILL)
    append(tmp_path, RECORDS[100:200])

    second = start(2)
    second.wait_until(lambda: len(events(second, "replica-adopted")) == 2, PATIENCE_S, "adopting both replicas")
    second.wait_until(lambda: is_published(second, 200), PATIENCE_S, "publishing what came meanwhile")
    assert replicas(second) == running, "nothing was started anew"

    os.kill(second.pid, signal.SIGSTOP)
    third = start(2, "--take-over")
    third.wait_until(lambda: len(events(third, "replica-adopted")) == 4, PATIENCE_S, "taking over from a sleeper")
    os.kill(second.pid, signal.SIGCONT)
    second.wait_gone()
    # It sees that another one supervises; or it stood still inside a transaction, and was ended for that.
    assert second.exit_code == -signal.SIGKILL or (second.exit_code == 1 and "LS0610" in second.log.read_text())
    append(tmp_path, RECORDS[200:300])
    third.wait_until(lambda: is_published(third, 300), PATIENCE_S, "publishing the next records")
    assert replicas(third) == running, "whoever woke up has ended nobody"
    assert len(events(third, "replica-started")) == 2

    agent = agent_pid(folder)
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    append(tmp_path, RECORDS[300:400])
    ended = {pid for pid, _ in running.values()}
    third.wait_until(
        lambda: third.all_run() and not ended & {pid for pid, _ in replicas(third).values()},
        PATIENCE_S,
        "starting the replicas with another agent",
    )
    assert len(events(third, "agent-lost")) == 1
    append(tmp_path, RECORDS[400:])
    third.wait_until(lambda: is_published(third, 500), PATIENCE_S, "going on with another agent")

    published = list(Reader(tmp_path / "out").epochs())
    assert order(published) == [] and once(published) == []
    third.stop()
    assert third.exit_code == 0
    assert agent_pid(folder) is None and leftovers(folder) == []


@pytest.mark.timeout(1800)
def test_replicas_that_nobody_comes_for_finish_their_epoch_and_end_with_their_agent(
    start: Start, tmp_path: Path
) -> None:
    folder = job_folder(tmp_path / ".lockstep", "counts")
    append(tmp_path, RECORDS[:100])
    run = start(1, orphan_timeout_s="2")
    run.wait_until(lambda: run.all_run() and is_published(run, 100), PATIENCE_S, "publishing")
    agent = agent_pid(folder)
    assert agent is not None
    family = [psutil.Process(agent), *psutil.Process(agent).children(recursive=True)]
    assert any(one.pid == run.store.progress()[0].pid for one in family)
    os.kill(run.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert alive == []
    assert run.store.progress()[0].state == "stopped", "it drained"
    head = run.store.head()
    published = list(Reader(tmp_path / "out").epochs())
    assert head is not None and order(published) == [] and once(published) == []
    assert is_published(run, 100)
    assert [path.name for path in folder.glob("agent.*")] == ["agent.log"]
