"""Replicas that had to share a host live apart again once there is another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lockstep.config import Settings
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Process, Surroundings
from lockstep.runtime.spec import EXIT_DRAINED, ReplicaSpec
from lockstep.store.protocols import Entry, Progress, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.control.test_boot_shares import Pretended

AFTER_S = Settings().run.spread_after_s


@dataclass
class Drainable(Pretended):
    """A process that ends when it is asked to, unless it takes its time."""

    slow: bool = False
    asked: bool = False

    def drain(self) -> None:
        self.asked = True
        if not self.slow:
            self.code = EXIT_DRAINED


@dataclass
class Job:
    """A supervisor of two replicas that run; the test says whether r1 could live apart."""

    store: Store
    folder: Path
    crowded: str | None = None
    now_s: float = 0.0
    started: list[str] = field(default_factory=list)
    slow: bool = False
    processes: dict[str, Drainable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = ReplicaSpec(str(self.folder), str(self.folder), "job", "job.py", "", "", "auto", {})
        around = Surroundings(
            now_us=lambda: round(self.now_s * 1e6),
            elapsed_s=lambda: self.now_s,
            start=self._start,
            crowded=lambda: self.crowded,
        )
        settings = Settings.model_validate({"run": {"replicas": 2}})
        self.supervisor = Supervisor(self.store, spec, settings, {}, {}, "me", around=around)

    def _start(self, spec: ReplicaSpec, *, gently: bool) -> Process:
        self.started.append(spec.replica)
        pid = len(self.started)
        incarnation = self.store.begin(spec.replica, pid).incarnation
        self.store.report(Progress(spec.replica, incarnation, pid, "running", 0, process=str(pid)))
        self.processes[spec.replica] = Drainable(pid, gently, slow=self.slow)
        return self.processes[spec.replica]

    def pass_by(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now_s += 1.0
            self.supervisor._tick()

    def moved(self) -> list[str]:
        return [replica for _, _, kind, replica, _ in self.store.events() if kind == "replica-moved"]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    store = open_store(tmp_path, "job")
    store.seal(Entry(0, 0, {}), store.begin("r0", 1))
    made = Job(store, tmp_path)
    made.pass_by(3)
    yield made
    store.close()


def test_a_replica_leaves_the_host_that_it_shares_after_a_while_and_is_not_blamed_for_it(job: Job) -> None:
    job.crowded = "r1"
    job.pass_by(AFTER_S - 5)
    assert job.moved() == [], "a host that came back may go again at once"
    job.pass_by(7)
    assert job.moved() == ["r1"] and job.started == ["r0", "r1", "r1"]
    assert job.supervisor.slots["r1"].restarts_us == []
    job.crowded = None
    job.pass_by(2 * AFTER_S)
    assert job.moved() == ["r1"]


def test_nobody_moves_while_a_host_comes_and_goes(job: Job) -> None:
    for _ in range(10):
        job.crowded = "r1"
        job.pass_by(AFTER_S / 2)
        job.crowded = None
        job.pass_by(1)
    assert job.moved() == []


def test_nobody_moves_while_another_one_is_not_well(job: Job) -> None:
    job.crowded = "r1"
    job.store.report(Progress("r0", 2, 1, "starting", 0, process="1"))
    job.pass_by(2 * AFTER_S)
    assert job.moved() == []
    job.store.report(Progress("r0", 2, 1, "running", 0, process="1"))
    job.pass_by(2)
    assert job.moved() == ["r1"]


def test_a_replica_that_leaves_may_take_its_time_and_then_no_more(tmp_path: Path) -> None:
    store = open_store(tmp_path, "job")
    store.seal(Entry(0, 0, {}), store.begin("r0", 1))
    job = Job(store, tmp_path, slow=True)
    job.pass_by(300)
    job.crowded = "r1"
    job.pass_by(AFTER_S + 2)
    leaving = job.processes["r1"]
    assert leaving.asked
    store.report(Progress("r1", 1, leaving.pid, "draining", 0, process=str(leaving.pid)))
    job.pass_by(10)
    assert job.supervisor.slots["r1"].process is leaving and not leaving.killed, (
        "it has started long ago: that it has no epoch under way is no start that takes too long"
    )
    job.pass_by(Settings().run.stop_timeout_s)
    assert "did not end within" in str(store.events())
    store.close()


def test_a_replica_that_was_started_again_lately_stays_where_it_is(job: Job) -> None:
    job.processes["r1"].code = -9
    job.pass_by(5)
    assert job.started == ["r0", "r1", "r1"]
    job.crowded = "r1"
    job.pass_by(2 * AFTER_S)
    assert job.moved() == []
    job.pass_by(Settings().run.restart_window_s)
    assert "r1" in job.moved()
