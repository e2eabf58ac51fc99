"""Pacing as a whole: who is slow catches up, who hangs does not hold the others, nobody runs away."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from lockstep.clock import US_PER_S
from lockstep.runtime.decide import pacing
from lockstep.sim.history import PromiseBroken
from lockstep.sim.scenario import SETTINGS, Scenario
from lockstep.sim.timeline import START_US
from lockstep.sim.world import World

BEHIND_EPOCHS = 100
LATE = Scenario(
    slowness=(1.0, 3.0),
    faults_s=0.0,
    late_s={"r1": 40.0},
    recovery_s_max=200.0,
    # It shall compute its way forward: no seed, and everything kept.
    settings=SETTINGS.model_copy(
        update={"seed_beyond_epochs": 10_000, "start_timeout_s": 100.0, "retention_epochs_min": 10_000}
    ),
)
HANGING_S = (6.0, 30.0)
HANG = Scenario(
    faults_s=HANGING_S[1],
    lead_epochs_max=3,
    settings=SETTINGS.model_copy(update={"lag_timeout_s": 2.0, "hang_timeout_s": 100.0}),
)


def joined_behind(world: World) -> int:
    """Runs the world; how far behind the head the late replica was when it began to compute."""
    found: list[int] = []

    def look() -> None:
        late = world.process("r1")
        if late is not None and late.said == "catching-up" and not found:
            found.append(world.head - late.at.epoch)
        elif not found:
            world.timeline.after(0.1, look)

    look()
    world.run()
    return found[0]


@pytest.mark.parametrize("seed", range(2))
def test_a_slower_replica_that_starts_far_behind_catches_up(seed: int) -> None:
    world = World(seed, LATE)
    assert joined_behind(world) >= BEHIND_EPOCHS


def test_without_a_longer_interval_it_would_stay_behind_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "seal_interval_s", lambda view, settings: settings.epoch_interval_s)
    with pytest.raises(PromiseBroken, match="progress: r1 did not come back"):
        World(0, replace(LATE, recovery_s_max=100.0)).run()


@pytest.mark.parametrize("seed", range(5))
def test_a_replica_that_hangs_stops_the_others_for_the_lag_timeout_at_most(seed: int) -> None:
    gaps_s = _gaps_while_one_hangs(World(seed, HANG))
    # An epoch takes 0.2 s at most and the interval is 0.3 s: whatever is longer is the waiting for who hangs.
    # (The last gap ends after it moves again, with an epoch of 24 s, for which pacing makes room.)
    waits = [gap_s for gap_s in gaps_s[:-1] if gap_s > 0.6]
    assert len(waits) == 1
    assert waits[0] < HANG.settings.lag_timeout_s + 0.5


def test_a_set_that_nobody_leaves_would_hold_them_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "in_set", lambda one, view, settings: one.state == "running")
    gaps_s = _gaps_while_one_hangs(World(0, HANG))
    assert max(gaps_s) > 10 * HANG.settings.lag_timeout_s


def _gaps_while_one_hangs(world: World) -> list[float]:
    """The times between publications while the second of two replicas hangs."""

    def hang() -> None:
        hanging = world.process("r1")
        assert hanging is not None
        hanging.keep_still(HANGING_S[1] - HANGING_S[0])

    world.timeline.after(HANGING_S[0], hang)
    try:
        world.run()
    except PromiseBroken as broken:
        assert str(broken).startswith("progress")
    visible_s = [(at_us - START_US) / US_PER_S for at_us, _ in world.sinks["totals"].visible]
    return [after - before for before, after in pairwise(visible_s) if HANGING_S[0] < after and before < HANGING_S[1]]
