"""What an agent does with the processes of a job: each is started once, and only the newest supervisor is obeyed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.agent.hosting import HostedJob
from lockstep.errors import RunError
from lockstep.runtime.spec import ReplicaSpec
from tests.unit.agent.pretended import HERE, PretendedMachine

SPEC = ReplicaSpec("", "", "job", "code/ab/job.py:job", "hash", "r0", "auto", {})


class Scene:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.machine = PretendedMachine()
        self.job = HostedJob(
            "job", self.machine, HERE, orphan_timeout_s=30.0, stop_timeout_s=5.0, elapsed_s=lambda: self.now_s
        )

    def start(self, handle: str, replica: str = "r0", *, spare: bool = False) -> int:
        spec = replace(SPEC, replica=replica)
        return self.job.start(handle, spec, {"of": replica}, spare=spare, gently=False).pid


def test_an_order_that_is_repeated_starts_no_second_process() -> None:
    scene = Scene()
    assert scene.start("a1") == scene.start("a1")
    assert len(scene.machine.made) == 1
    scene.start("b2", "r1")
    assert [(one.handle, one.replica) for one in scene.job.listed()] == [("a1", "r0"), ("b2", "r1")]


def test_an_order_that_comes_after_the_end_of_its_process_starts_none() -> None:
    scene = Scene()
    scene.start("a1")
    scene.job.kill("a1")
    scene.job.kill("a1")
    assert scene.job.listed() == []
    with pytest.raises(ProcessLookupError):
        scene.start("a1")
    assert scene.machine.made[0].heard == ["kill"]


def test_whoever_has_an_older_term_is_refused_and_a_newer_one_is_obeyed() -> None:
    job = Scene().job
    job.admit(3)
    job.admit(3)
    job.admit(5)
    with pytest.raises(RunError) as raised:
        job.admit(4)
    assert raised.value.code == "LS0610"
    job.admit(5)


def test_a_process_that_has_ended_is_listed_until_it_is_acknowledged() -> None:
    scene = Scene()
    scene.start("a1")
    scene.machine.made[0].code = 10
    assert [one.exit_code for one in scene.job.listed()] == [10]
    scene.job.kill("a1")
    assert scene.job.listed() == []


def test_a_spare_becomes_one_replica_however_often_it_is_told() -> None:
    scene = Scene()
    scene.start("s", spare=True)
    (spare,) = scene.job.listed()
    assert (spare.replica, spare.ready, spare.shape) == ("", True, {"of": "r0"})
    r1 = replace(SPEC, replica="r1")
    assert scene.job.become("s", r1, gently=True) and scene.job.become("s", r1, gently=True)
    assert not scene.job.become("s", SPEC, gently=True), "it is r1"
    assert not scene.job.become("nobody", SPEC, gently=True)
    assert [one.replica for one in scene.job.listed()] == ["r1"]


def test_it_ends_when_nobody_has_talked_to_it_for_long_and_lets_replicas_finish() -> None:
    scene = Scene()
    scene.start("a1")
    scene.start("s", spare=True)
    scene.now_s += 20
    scene.job.admit(1)
    scene.now_s += 29
    assert scene.job.tend() == pytest.approx(1.0) and not scene.job.ending
    scene.now_s += 2
    scene.job.tend()
    with pytest.raises(RunError) as raised:
        scene.job.admit(2)
    assert raised.value.code == "LS0682"
    assert [one.heard for one in scene.machine.made] == [["drain", "kill"], ["kill"]], "ended, and then forgotten"
    assert scene.job.over and scene.job.listed() == []


def test_an_agent_that_was_stopped_itself_does_not_take_its_supervisor_for_dead() -> None:
    scene = Scene()
    scene.now_s += 600
    scene.job.slept(600)
    scene.job.tend()
    assert not scene.job.ending
