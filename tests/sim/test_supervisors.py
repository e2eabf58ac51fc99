"""Supervisors that hang, are killed, and are replaced: the job goes on, and the late one does no harm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.sim.one_seed import run_seed
from lockstep.sim.planted_bugs import LEFT_ALONE, TAKEN_OVER
from lockstep.sim.scenario import Scenario
from lockstep.sim.world import World


def of_first(world: World) -> set[int]:
    """The processes that the first supervisor started."""
    return {child.pid for child in world.supervisors[0].started}


@pytest.mark.parametrize("seed", range(3))
def test_a_second_supervisor_takes_over_and_the_first_steps_down(seed: int) -> None:
    world = run_seed(seed, TAKEN_OVER)
    assert len(world.supervisors) == 2
    assert world.history.told["supervisor gives up: LS0610"] == 1
    assert {one.pid for one in world.processes} == of_first(world), "no replica is started anew, by neither of them"
    assert world.history.told["supervisor adopts a replica"] == world.scenario.replicas


@pytest.mark.parametrize("seed", range(3))
def test_a_lock_keeps_the_second_supervisor_out_and_the_first_goes_on(seed: int) -> None:
    world = run_seed(seed, replace(TAKEN_OVER, supervisor_lock=True))
    assert len(world.supervisors) == 1
    assert world.history.told["second supervisor kept out"] > 0


@pytest.mark.parametrize("seed", range(3))
def test_replicas_go_on_when_their_supervisor_is_killed_and_the_next_one_adopts_them(seed: int) -> None:
    world = run_seed(seed, LEFT_ALONE)
    assert len(world.supervisors) == 2
    assert {one.pid for one in world.processes} == of_first(world), "nothing is started anew"
    adopted = [replica for _, _, kind, replica, _ in world.store.events() if kind == "replica-adopted"]
    assert adopted == ["r0", "r1"]
    assert all(one.incarnation == 1 for one in world.store.progress())


@pytest.mark.parametrize("seed", range(3))
def test_a_full_disk_is_ridden_out(seed: int) -> None:
    world = run_seed(seed, Scenario(faults_s=8.0, disk_full_s=((3.0, 7.0),)))
    assert world.history.told["disk refuses: LS0404"] > 0
    assert len(world.supervisors) == 1, "the supervisor did not give up"
