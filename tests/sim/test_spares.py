"""Spares in trouble: they die and hang while they boot, wait and become a replica, and the job goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lockstep.sim.one_seed import run_seed
from lockstep.sim.scenario import SETTINGS, SPARE, Scenario
from lockstep.sim.spare import BECOME, BOOT_SPARE, WAIT, SimSpare
from lockstep.sim.world import World

CALM = Scenario(spares=1, boot_s=(0.3, 0.6))
TROUBLED = replace(
    CALM,
    spares=2,
    faults_s=30.0,
    crash_chance=0.05,
    hang_chance=0.05,
    faulty=("r1", SPARE),
    supervisor_killed_s=(9.0,),
    # Hangs are longer than this now and then.
    settings=SETTINGS.model_copy(update={"start_timeout_s": 3.0}),
)


def spares(world: World) -> list[SimSpare]:
    """Every one that there was."""
    return [one for one in world.processes if isinstance(one, SimSpare)]


def told(world: World, kind: str) -> list[str]:
    """What the supervisor wrote down."""
    return [text for _, _, kind_of, _, text in world.store.events(limit=10_000) if kind_of == kind]


def test_where_all_is_calm_there_are_as_many_spares_as_are_wanted_and_no_more() -> None:
    for wanted in (0, 1, 2):
        world = run_seed(1, replace(CALM, spares=wanted))
        assert len(spares(world)) == wanted
        assert all(one.exit_code() is not None for one in spares(world)), "they end with the run"


def test_a_replica_that_dies_is_back_from_a_spare_without_a_boot() -> None:
    world = run_seed(1, replace(CALM, crash_chance=0.01, faulty=("r1",), boot_s=(1.0, 1.5), faults_s=20.0))
    given = [one for one in spares(world) if one.told is not None]
    assert given and all(one.name == "r1" and one.holder.incarnation > 1 for one in given)
    assert len(spares(world)) > len(given), "the next one was ordered when all was calm again"


def test_spares_die_and_hang_wherever_they_are_and_every_promise_holds() -> None:
    struck: Counter[str] = Counter()
    dropped: list[str] = []
    for seed in range(60):
        world = run_seed(seed, TROUBLED)
        struck += world.history.told
        dropped += told(world, "spare-ended")
    happened = {step for step in (BOOT_SPARE, WAIT, BECOME) for what in struck if what.endswith(f" {step}")}
    assert happened == {BOOT_SPARE, WAIT, BECOME}
    assert {"crash before wait", "hang before wait", "supervisor gives a spare away"} <= set(struck)
    assert any("exit code -9" in text for text in dropped)
    assert any("not ready after" in text for text in dropped), "one that hangs while it boots is not waited for"


@pytest.mark.parametrize("seed", range(5))
def test_the_spare_of_a_killed_supervisor_is_adopted_in_the_midst_of_its_boot(seed: int) -> None:
    world = run_seed(seed, replace(CALM, boot_s=(2.0, 3.0), supervisor_killed_s=(4.0,)))
    (spare,) = spares(world)
    assert spare in world.supervisors[0].started, "the next supervisor orders none of its own"
    assert spare.is_ready and spare.exit_code() is not None, "it ends with the job"


def test_a_spare_is_not_given_to_a_replica_that_it_does_not_fit() -> None:
    crashes = replace(CALM, crash_chance=0.02, faults_s=20.0, odd_shapes=("r1",))
    names = {one.name for seed in range(10) for one in spares(run_seed(seed, crashes)) if one.told is not None}
    assert "r0" in names
    odd = replace(crashes, replicas=3, odd_shapes=("r2",))
    names = {one.name for seed in range(10) for one in spares(run_seed(seed, odd)) if one.told is not None}
    assert names == {"r0", "r1"}, "two are alike, so all spares have their shape"
