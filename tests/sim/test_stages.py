"""A job of two stages: an epoch is computed when both have computed it, and both stop after the same one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lockstep.runtime.epoch.draining import ASK, HALT, RELEASE
from lockstep.sim.one_seed import run_seed
from lockstep.sim.planted_bugs import TWO_STAGES


def test_whoever_is_asked_to_stop_lets_the_stage_that_is_behind_come_up_first() -> None:
    found: Counter[str] = Counter()
    for seed in range(20):
        found += run_seed(seed, TWO_STAGES).history.told
    assert found["lets the stages behind come up"] > 0
    struck = {step for step in (HALT, RELEASE, ASK) for what in found if what.endswith(f" {step}")}
    assert struck == {HALT, RELEASE, ASK}, "something went wrong at each step of it"


@pytest.mark.parametrize("seed", range(5))
def test_after_the_last_stop_both_stages_of_every_replica_stand_after_one_epoch(seed: int) -> None:
    world = run_seed(seed, replace(TWO_STAGES, replicas=3))
    for name in ("r0", "r1", "r2"):
        assert world.checkpoints[name, 0].epoch == world.checkpoints[name, 1].epoch


def test_with_one_stage_nothing_has_to_come_up() -> None:
    told = run_seed(3, replace(TWO_STAGES, stages=1)).history.told
    assert told["lets the stages behind come up"] == 0
