"""From what replicas start: what they choose can always carry them on."""

from __future__ import annotations

from itertools import product

import pytest

from lockstep.runtime.state.checkpoint import Standing
from lockstep.runtime.state.recovery import Situation, choose
from lockstep.sim.one_seed import run_seed
from lockstep.sim.scenario import SETTINGS, Scenario
from lockstep.store.protocols import Progress

# Struck until it is given up; the other goes on, so that what the first needs is forgotten; then all start again.
GIVEN_UP = Scenario(
    faults_s=20.0,
    crash_chance=0.2,
    faulty=("r0",),
    stops_s=(21.0,),
    settings=SETTINGS.model_copy(update={"restarts_max": 5, "restart_window_s": 600.0}),
)
HEAD = 6


@pytest.mark.parametrize("seed", range(5))
def test_a_replica_that_was_given_up_is_seeded_by_the_next_run(seed: int) -> None:
    world = run_seed(seed, GIVEN_UP)
    assert any(kind == "replica-given-up" for _, _, kind, _, _ in world.store.events(0, 10_000))
    assert world.store.floor() > 0
    assert world.history.told["starts from a peer"] >= 1


def situations() -> list[tuple[Situation, bool, int]]:
    """Every small situation, with both wishes and several limits."""
    found = []
    for own, peer, floor, prefers, beyond in product(
        range(-2, HEAD), range(-2, HEAD + 1), range(HEAD), (True, False), (0, 3)
    ):
        standing = Standing(own, own, own) if own > -2 else None
        peers = [Progress("r1", 1, 1, "running", epoch=peer)] if peer > -2 else []
        found.append((Situation(standing, standing is not None, HEAD, floor, peers), prefers, beyond))
    return found


def test_whatever_is_chosen_the_entry_to_begin_after_is_still_kept() -> None:
    for situation, prefers, beyond in situations():
        choice = choose(situation, prefer_peer=prefers, seed_beyond_epochs=beyond)
        if choice == "own":
            assert situation.own is not None
            assert situation.floor == 0 or situation.own.epoch >= situation.floor, situation
        if choice == "scratch":
            assert situation.floor == 0, situation


def test_whoever_shall_prefer_a_peer_never_starts_from_its_own_checkpoint_while_a_peer_has_one() -> None:
    for situation, _, beyond in situations():
        if situation.peers and situation.peers[0].epoch >= 0:
            assert choose(situation, prefer_peer=True, seed_beyond_epochs=beyond) == "r1", situation


def test_nothing_is_chosen_only_if_there_is_nothing() -> None:
    for situation, prefers, beyond in situations():
        if choose(situation, prefer_peer=prefers, seed_beyond_epochs=beyond) == "":
            assert situation.floor > 0, situation
            assert situation.own is None or situation.own.epoch < situation.floor, situation
            assert all(one.epoch < 0 for one in situation.peers), situation
