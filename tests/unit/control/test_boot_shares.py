"""Who boots gently: whoever boots beside a replica that computes, and only as long as one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lockstep.config import Settings
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Process, Surroundings
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.protocols import Entry, Progress, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.control.known_by_pid import KnownByPid


@dataclass
class Pretended(KnownByPid):
    """A process that is none."""

    pid: int
    gentle: bool
    code: int | None = None
    killed: bool = False

    def exit_code(self) -> int | None:
        return self.code

    def cpu_s(self) -> float:
        return 0.0

    def error(self) -> str:
        return ""

    def full_speed(self) -> None:
        self.gentle = False

    def drain(self) -> None: ...

    def kill(self) -> None:
        self.killed = True


@dataclass
class Job:
    """A supervisor of two pretended replicas, which say what the test lets them say."""

    store: Store
    folder: Path
    now_s: float = 0.0
    started: list[tuple[str, Pretended]] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec = ReplicaSpec(str(self.folder), str(self.folder), "job", "job.py", "", "", "auto", {})
        around = Surroundings(now_us=lambda: round(self.now_s * 1e6), elapsed_s=lambda: self.now_s, start=self._start)
        settings = Settings.model_validate({"run": {"replicas": 2}})
        self.supervisor = Supervisor(self.store, spec, settings, {}, {}, "me", around=around)

    def _start(self, spec: ReplicaSpec, *, gently: bool) -> Process:
        process = Pretended(len(self.started) + 1, gently)
        self.started.append((spec.replica, process))
        self.say(spec.replica, "starting")
        return process

    def say(self, replica: str, state: str, working_on: int = -1) -> None:
        pid = max(one.pid for name, one in self.started if name == replica)
        incarnation = self.store.begin(replica, pid).incarnation
        self.store.report(Progress(replica, incarnation, pid, state, 0, working_on=working_on, process=str(pid)))

    def tick(self) -> None:
        self.now_s += 1.0
        self.supervisor._tick()

    def process(self, replica: str) -> Pretended:
        return [one for name, one in self.started if name == replica][-1]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    store = open_store(tmp_path, "job")
    # An earlier run has left a ledger.
    store.seal(Entry(0, 0, {}), store.begin("r0", 1))
    yield Job(store, tmp_path)
    store.close()


def test_replicas_that_start_together_are_gentle_to_nobody(job: Job) -> None:
    job.tick()
    assert [(name, one.gentle) for name, one in job.started] == [("r0", False), ("r1", False)]


def test_a_boot_is_gentle_while_somebody_computes_and_hurries_when_nobody_does(job: Job) -> None:
    job.tick()
    job.say("r0", "running")
    job.say("r1", "running")
    job.process("r1").code = -9
    job.tick()
    job.tick()
    assert len(job.started) == 3 and job.process("r1").gentle
    job.process("r0").code = -9
    job.tick()
    job.tick()
    assert not job.process("r1").gentle, "everybody waits for it now"
    assert [name for name, _ in job.started] == ["r0", "r1", "r1", "r0"] and not job.process("r0").gentle


def test_whoever_has_caught_up_is_gentle_no_more(job: Job) -> None:
    job.tick()
    job.say("r0", "running")
    job.process("r1").code = -9
    job.tick()
    job.tick()
    assert job.process("r1").gentle
    job.say("r1", "catching-up")
    job.tick()
    assert job.process("r1").gentle, "it computes back to back, which those who publish would feel"
    job.say("r1", "running")
    job.tick()
    assert not job.process("r1").gentle


def test_whoever_computes_its_first_epoch_may_finish_it_when_the_job_stops(job: Job) -> None:
    job.tick()
    job.say("r0", "starting", working_on=0)
    job.say("r1", "starting")
    job.supervisor._end_booting()
    assert [one.killed for _, one in job.started] == [False, True]
