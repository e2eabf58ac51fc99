"""The runner against a running that is made up: actions begin when they may, are undone once, and recover."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

import psutil
import pytest

from lockstep.chaos import runner as runner_module
from lockstep.chaos.operations import Shape
from lockstep.chaos.planner import Planned
from lockstep.chaos.runner import Runner
from lockstep.chaos.running_job import StartedJob
from lockstep.chaos.timeline import Timeline
from lockstep.chaos.vocabulary import Action, Deed, Member, Need, Part, RunningJob
from lockstep.chaos.watching import Reader


class FakeStore:
    def events(self, after_id: int, limit: int) -> list[Any]:
        return []


class FakeFeeding:
    def check(self) -> None:
        pass


class NobodyReads:
    def seen_epochs(self) -> list[Any]:
        return []


class FakeProcess:
    exit_code = 1

    def failure(self, fact: str) -> RuntimeError:
        return RuntimeError(fact)


class FakeJob:
    """Two replicas; ``down`` are those that do not compute, ``ended`` is whether `lockstep run` has."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.incarnations = {"r0": 1, "r1": 1}
        self.ended = False
        self.starts = 0
        self.store = FakeStore()
        self.feeding = FakeFeeding()
        self.process = FakeProcess()
        self.last_words = ""

    def members(self) -> list[Member]:
        return [
            Member(name, incarnation, 1, "running", 5, Path(), name not in self.down)
            for name, incarnation in self.incarnations.items()
        ]

    def healthy(self) -> list[Member]:
        return [one for one in self.members() if one.healthy]

    def spare_replicas(self) -> list[Member]:
        return self.healthy() if len(self.healthy()) > 1 else []

    def all_healthy(self) -> bool:
        return len(self.healthy()) == 2

    def shape(self) -> Shape:
        return Shape(frozenset(self.incarnations), frozenset(self.incarnations))

    def has(self, need: Need) -> bool:
        return need is not Need.OTHER_REPLICA or len(self.healthy()) > 1

    def supervisor_pid(self) -> int | None:
        return None if self.ended else 1

    def said(self) -> str:
        return self.last_words

    def start_job(self) -> None:
        self.ended, self.starts = False, self.starts + 1


class Hurt(Action):
    """Takes r1, which comes back by ``undo``."""

    name = "hurt"
    title = "hurt r1"
    requires = frozenset({Need.OTHER_REPLICA})
    takes = frozenset({Part.REPLICA})
    undone: ClassVar[list[str]] = []

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        fake = cast("FakeJob", running)
        fake.down.add("r1")

        def undo() -> None:
            self.undone.append(self.name)
            fake.down.discard("r1")
            fake.incarnations["r1"] += 1

        return Deed("r1 is hurt", replica="r1", lasts_s=0.2, undo=undo)


class Never(Hurt):
    """Waits for something that never comes."""

    name = "never"

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        return Deed("r1 would be", replica="r1", lasts_s=0.2, undo=lambda: None, happened=lambda: False)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    monkeypatch.setattr(runner_module, "SETTLE_S", 0.1)
    monkeypatch.setattr(runner_module, "TICK_S", 0.01)
    monkeypatch.setattr(runner_module, "POSTPONED_S_MAX", 0.3)
    Hurt.undone.clear()
    return FakeJob()


def runner_of(running: FakeJob) -> Runner:
    lines: list[str] = []
    return Runner(cast("StartedJob", running), Timeline(lines.append), cast("Reader", NobodyReads()), replicas=2)


def schedule(*names: str) -> list[Planned]:
    return [Planned(number, 0.0, name, str(number)) for number, name in enumerate(names, 1)]


class TakesDisk(Hurt):
    """The disk is taken, and nothing is harmed."""

    name = "takes-disk"
    takes = frozenset({Part.DISK})

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        return Deed("the disk is full", lasts_s=60, undo=lambda: None)


@pytest.mark.parametrize(
    ("last_words", "excused"),
    [
        ("LS0508 no space left to write out.db\n  why:  SQLite says: full\n", True),
        ("LS0603 two replicas disagree\n", False),
        ("", False),
    ],
)
def test_a_full_disk_excuses_only_an_end_that_the_store_or_a_sink_caused(
    running: FakeJob, last_words: str, excused: bool
) -> None:
    runner = runner_of(running)
    disk = TakesDisk()
    runner.doings.append(
        runner_module.Doing(schedule("takes-disk")[0], disk, disk.begin(cast("RunningJob", running), Random(1)))
    )
    running.ended, running.last_words = True, last_words
    runner._look_at_job()
    assert running.starts == 1
    assert (runner.findings == []) == excused


ACTIONS: dict[str, Action] = {"hurt": Hurt(), "never": Never()}


def test_a_second_action_on_a_replica_waits_until_the_first_is_over(running: FakeJob) -> None:
    runner = runner_of(running)
    runner.run(schedule("hurt", "hurt"), ACTIONS, duration_s=5)
    first, second = runner.doings
    assert Hurt.undone == ["hurt", "hurt"]
    assert first.over_us <= second.begun_us
    assert runner.findings == []


def test_what_is_under_way_at_the_end_is_undone_once_and_waited_for(running: FakeJob) -> None:
    runner = runner_of(running)
    runner.run(schedule("hurt"), ACTIONS, duration_s=0.05)
    assert Hurt.undone == ["hurt"]
    assert runner.doings[0].over_us > 0


def test_an_action_that_could_not_begin_is_left_out_with_the_reason(running: FakeJob) -> None:
    running.down.add("r0")
    runner = runner_of(running)
    field_all = running.all_healthy
    running.all_healthy = lambda: True  # type: ignore[method-assign]
    runner.run(schedule("hurt"), ACTIONS, duration_s=1)
    running.all_healthy = field_all  # type: ignore[method-assign]
    assert runner.doings[0].deed is None
    assert runner.doings[0].skipped == "it needs another healthy replica"


def test_what_never_happened_is_marked_so(running: FakeJob) -> None:
    runner = runner_of(running)
    runner.run(schedule("never"), ACTIONS, duration_s=2)
    assert runner.doings[0].over_us > 0
    assert not runner.doings[0].happened
    assert any("never happened" in line.text for line in runner.timeline.lines)


def test_a_job_that_ends_by_itself_is_started_again_and_that_is_a_finding(running: FakeJob) -> None:
    runner = runner_of(running)
    running.ended = True
    runner.tick()
    assert running.starts == 1
    assert runner.findings == ["`lockstep run` ended with exit code 1 although nothing was done to the whole job"]
    for _ in range(runner_module.RESTARTS_MAX - 1):
        running.ended = True
        runner.tick()
    running.ended = True
    with pytest.raises(RuntimeError, match="7th time"):
        runner.tick()


def test_a_job_ends_when_the_chaos_around_it_is_killed(tmp_path: Path) -> None:
    said = tmp_path / "pid"
    job = f"import os, pathlib, time; pathlib.Path({str(said)!r}).write_text(str(os.getpid())); time.sleep(60)"
    chaos = (
        "import os, subprocess, sys;"
        f"subprocess.run([sys.executable, '-m', 'lockstep.chaos.ends_with_parent', str(os.getpid()), '-c', {job!r}])"
    )
    killed = subprocess.Popen([sys.executable, "-c", chaos])
    deadline_s = time.monotonic() + 30
    while not (said.exists() and said.read_text()) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    process = psutil.Process(int(said.read_text()))
    killed.kill()
    killed.wait()
    _, alive = psutil.wait_procs([process], timeout=20)
    assert alive == []


def test_who_leaves_and_who_is_back_is_told(running: FakeJob) -> None:
    runner = runner_of(running)
    runner.tick()
    running.down.add("r1")
    runner.tick()
    running.down.clear()
    runner.tick()
    said = [line.text for line in runner.timeline.lines]
    assert "r1 left: 1 of 2 replicas compute" in said
    assert said[-1] == "r1 computes: 2 of 2 replicas do"


def test_a_replica_that_cannot_say_how_it_is_is_expected_to_publish_all_the_same(running: FakeJob) -> None:
    """While a stopped process holds the store's lock nobody can report: that must not excuse the standstill."""
    runner = runner_of(running)
    runner.tick()
    running.down = {"r0", "r1"}
    runner.tick()
    running.incarnations["r1"] += 1
    runner.tick()
    well, able = ({span.replica: span.last_us for span in one.spans} for one in (runner.attendance, runner.able))
    assert able["r0"] > able["r1"] > well["r0"] == well["r1"], "a new process has to be well first"
