"""A job that was submitted over HTTP lives on its own: its service may be killed, and its coordinator, too."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

import lockstep as ls
from lockstep.agent.leftovers import leftovers
from lockstep.agent.processes import kill_tree
from lockstep.errors import ServiceError
from lockstep.runtime.desired_run import LEASE
from lockstep.serve.client import Client
from lockstep.store.home import job_folder
from lockstep.store.opening import address_in, open_store
from tests.chaos.jobs import PATIENCE_S, PATIENT

JOB = "failed-logins"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
README = Path(__file__).parents[2] / "README.md"
Login = tuple[str, datetime]


class Serving:
    """`lockstep serve` in a process of its own."""

    def __init__(self, project: Path) -> None:
        self._log = project / f"serve-{time.time_ns()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lockstep", "serve", "--listen", "127.0.0.1:0", "--tokens", "none.json"],
                cwd=project,
                stderr=log,
                stdout=log,
            )
        wait_until(lambda: self._url() is not None, "the service to listen")
        self.client = Client(self._url() or "", timeout_s=PATIENCE_S)
        wait_until(self._answers, "the service to answer")

    def said(self) -> str:
        """What it has told people."""
        return self._log.read_text()

    def kill(self) -> None:
        """As a machine does it."""
        self.process.kill()
        self.process.wait()
        self.client.close()

    def _url(self) -> str | None:
        found = re.search(r" at (http://\S+)", self.said())
        return found[1] if found else None

    def _answers(self) -> bool:
        try:
            self.client.jobs()
        except ServiceError:
            return False
        return True


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.2)


def readme_job() -> str:
    """The first program of the README."""
    found = re.search(r"```python\n(import lockstep.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def lines(logins: list[Login]) -> list[dict[str, object]]:
    return [{"user": user, "ok": False, "at": at.isoformat()} for user, at in logins]


def alerts(logins: list[Login]) -> set[tuple[str, datetime, int]]:
    """Who failed five times or more within a minute that begins at a tenth second, and how often."""
    found = set()
    for user in {user for user, _ in logins}:
        starts = {at - timedelta(seconds=at.second % 10 + 10 * back) for _, at in logins for back in range(6)}
        for start in starts:
            count = sum(one == user and start <= at < start + timedelta(minutes=1) for one, at in logins)
            if count >= 5:
                found.add((user, start, count))
    return found


def published(project: Path) -> set[tuple[str, datetime, int]]:
    if not (project / "out" / "alerts").exists():
        return set()
    rows = ls.read(project / "out" / "alerts").to_pylist()
    found = {(row["user"], row["window_start"].replace(tzinfo=UTC), row["failures"]) for row in rows}
    assert len(found) == len(rows), "no alert is there twice"
    return found


def burst(user: str, begin: datetime) -> list[Login]:
    return [(user, begin + timedelta(seconds=3 * number)) for number in range(7)]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[list[Serving]]:
    """Those that a test has started; nothing of them is left at the end, whatever happened."""
    started: list[Serving] = []
    yield started
    for one in started:
        one.kill()
    folder = job_folder(tmp_path / ".lockstep", JOB)
    if folder.exists():
        store = open_store(address_in(tmp_path / ".lockstep"), JOB)
        holder = store.holder(LEASE)
        store.close()
        if holder is not None and psutil.pid_exists(int(holder)):
            kill_tree(int(holder))
        for left in leftovers(folder):
            kill_tree(left.pid)


@pytest.mark.timeout(2400)
def test_a_submitted_job_outlives_its_service_and_its_coordinator(tmp_path: Path, services: list[Serving]) -> None:
    (tmp_path / "job.py").write_text(readme_job())
    services.append(Serving(tmp_path))
    client = services[-1].client
    settings = {**PATIENT, "spares": 0, "orphan_timeout_s": 600}
    assert client.submit(tmp_path / "job.py", replicas=1, settings=settings).job == JOB
    wait_until((tmp_path / ".lockstep" / "journals" / "logins").exists, "the job's journal")

    first = burst("ann", NOON)
    beat = [("", NOON + timedelta(minutes=5))]
    client.ingest("logins", lines([*first, *beat]), key="first")
    assert client.ingest("logins", lines([*first, *beat]), key="first").repeated
    wait_until(lambda: published(tmp_path) == alerts(first), "the first alerts")
    before = client.describe(JOB)
    assert before.coordinator is not None and before.state == "healthy"

    assert client.take_savepoint(JOB, "first").epoch <= client.describe(JOB).head_epoch
    assert [one.name for one in client.savepoints(JOB)] == ["first"]
    (step,) = client.state_steps(JOB)
    assert {row["user"] for row in client.state(JOB, step).rows} <= {"", "ann"}

    services[-1].kill()
    services.append(Serving(tmp_path))
    client = services[-1].client
    second = burst("bob", NOON + timedelta(minutes=6))
    client.ingest("logins", lines([*second, ("", NOON + timedelta(minutes=12))]))
    wait_until(lambda: published(tmp_path) == alerts([*first, *second]), "alerts after the service was killed")
    after = client.describe(JOB)
    assert after.coordinator == before.coordinator, "nobody else was started beside it"
    assert [one.pid for one in after.replicas] == [one.pid for one in before.replicas]

    os.kill(int(before.coordinator), signal.SIGKILL)
    wait_until(
        lambda: client.describe(JOB).coordinator not in (None, before.coordinator), "another coordinator to take over"
    )
    wait_until(lambda: client.describe(JOB).state == "healthy", "the replica to be adopted")
    assert [(one.pid, one.restarts) for one in client.replicas(JOB)] == [(one.pid, 0) for one in before.replicas]

    asked = client.rescale(JOB, replicas=2)
    assert client.wait(JOB, asked.number, PATIENCE_S).state == "done"
    assert [one.replica for one in client.replicas(JOB)] == ["r0", "r1"]

    assert client.stop(JOB).wanted is False
    wait_until(lambda: client.describe(JOB).coordinator is None, "the job to stop")
    wait_until(lambda: not leftovers(job_folder(tmp_path / ".lockstep", JOB)), "its processes to end")
    services[-1].process.send_signal(signal.SIGINT)
    assert services[-1].process.wait(PATIENCE_S) == 0 and "no job runs" in services[-1].said()
