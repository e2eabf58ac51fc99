"""A replica whose state silently changed: it is found at once, said loudly, and judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lockstep.config import RunSettings
from lockstep.errors import RunError
from lockstep.sim.one_seed import run_seed
from lockstep.sim.scenario import SETTINGS, Scenario
from lockstep.sim.world import World

# The first is three times faster: if it is the one that is hit, it publishes some wrong epochs before anyone objects.
UNEVEN = (1.0, 3.0, 3.0)
THREE = Scenario(replicas=3, corrupted_s=(6.0,), slowness=UNEVEN)
TWO = Scenario(replicas=2, corrupted_s=(6.0,), slowness=UNEVEN)
PRODUCTION_LIMITS = {"restarts_max": RunSettings().restarts_max, "restart_window_s": RunSettings().restart_window_s}


def starts(world: World) -> Counter[str]:
    """How often each replica was started."""
    return Counter(one.name for one in world.processes)


def announced(world: World) -> str:
    """Everything that was said about divergences."""
    return "\n".join(text for _, _, kind, _, text in world.store.events(0, 10_000) if kind == "divergence")


def wrongly_published(world: World) -> set[int]:
    """The epochs whose published copy is not what the ledger gives."""
    return {
        publication.epoch
        for name, sink in world.sinks.items()
        for _, publication in sink.visible
        if publication.digest != world.history.right(publication.epoch, name)
    }


@pytest.mark.parametrize("seed", range(12))
def test_of_three_replicas_the_wrong_one_alone_is_replaced_and_all_end_up_right(seed: int) -> None:
    world = run_seed(seed, THREE)
    (hit,) = {who.partition(".")[0] for _, _, who in world.history.wrong}
    assert {name for name, count in starts(world).items() if count > 1} == {hit}
    for (name, stage), checkpoint in world.checkpoints.items():
        assert checkpoint.state == world.history.references[stage][checkpoint.epoch], name


def test_a_wrong_copy_that_was_published_is_named() -> None:
    worlds = [run_seed(seed, THREE) for seed in range(12)]
    assert any(wrongly_published(world) for world in worlds)
    for world in worlds:
        for epoch in wrongly_published(world):
            assert f"THE PUBLISHED COPY of epoch {epoch} IS THE MINORITY" in announced(world)


@pytest.mark.parametrize("seed", range(6))
def test_of_two_replicas_the_second_is_seeded_anew_and_both_agree_again(seed: int) -> None:
    world = run_seed(seed, TWO)
    assert "no majority" in announced(world)
    first, second = world.checkpoints.values()
    newest = min(first.epoch, second.epoch)
    kept = world.store.digests(newest)
    assert len({(one.sink, one.digest) for one in kept}) == len({one.sink for one in kept})
    assert sum(starts(world).values()) == 3


@pytest.mark.parametrize("seed", range(6))
def test_two_replicas_stop_if_they_are_told_to_stop_when_they_disagree(seed: int) -> None:
    stopping = SETTINGS.model_copy(update={"on_divergence": "stop"})
    with pytest.raises(RunError) as raised:
        run_seed(seed, replace(TWO, settings=stopping))
    assert raised.value.code == "LS0603"


def test_a_replica_that_was_outvoted_about_several_epochs_is_not_given_up() -> None:
    limited = replace(THREE, settings=SETTINGS.model_copy(update={**PRODUCTION_LIMITS, "lag_timeout_s": 3.0}))
    for seed in range(30):
        run_seed(seed, limited)
