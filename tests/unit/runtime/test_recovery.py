"""From what a replica starts: its own checkpoint, a peer's snapshot, or the beginning."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from lockstep.clock import US_PER_S
from lockstep.runtime.state.checkpoint import Standing
from lockstep.runtime.state.recovery import Situation, choose, may_wait, must_replay, situation_of
from lockstep.sim.memory_store import MemoryStore
from lockstep.store.protocols import Progress, Store
from tests.unit.runtime.progress_for_runtime import NOW_US, said


def _choice(
    own_epoch: int | None,
    *peers: Progress,
    head: int = 100,
    floor: int = 0,
    sound: bool = True,
    prefer_peer: bool = False,
) -> str:
    own = None if own_epoch is None else Standing(own_epoch, own_epoch, own_epoch)
    situation = Situation(own, sound and own is not None, head, floor, peers)
    return choose(situation, prefer_peer=prefer_peer, seed_beyond_epochs=50)


def test_a_first_start_begins_from_scratch() -> None:
    assert _choice(None, head=-1) == "scratch"


def test_a_sound_checkpoint_that_is_near_is_used() -> None:
    assert _choice(98, said("r1", 100)) == "own"
    assert _choice(98) == "own"


def test_a_replica_far_behind_takes_the_snapshot_of_the_peer_that_is_furthest() -> None:
    assert _choice(20, said("r1", 99), said("r2", 100)) == "r2"


def test_a_replica_far_behind_without_peers_computes_its_way_forward() -> None:
    assert _choice(20) == "own"


def test_a_damaged_checkpoint_is_replaced_by_a_peers_when_the_way_is_long() -> None:
    assert _choice(98, said("r1", 100), sound=False) == "r1"


def test_a_damaged_checkpoint_without_peers_starts_over_while_the_ledger_reaches_back() -> None:
    assert _choice(98, sound=False) == "scratch"


def test_nothing_is_possible_without_checkpoint_peer_and_beginning() -> None:
    assert _choice(None, floor=30) == ""
    assert _choice(98, floor=30, sound=False) == ""


def test_below_the_floor_only_a_peer_helps() -> None:
    assert _choice(60, said("r1", 100), floor=62) == "r1"
    assert _choice(60, floor=62) == ""


@pytest.mark.parametrize("floor", [60, 61])
def test_the_entry_of_the_own_epoch_has_to_be_there_too(floor: int) -> None:
    """Epoch 61 begins where the cut of epoch 60 ends."""
    assert _choice(60, floor=floor, head=70) == ("own" if floor == 60 else "")


def test_whoever_is_told_to_prefer_a_peer_does_so_even_if_that_is_behind() -> None:
    assert _choice(100, said("r1", 97), prefer_peer=True) == "r1"


def test_a_preferred_peer_that_is_not_there_leaves_the_own_checkpoint() -> None:
    assert _choice(98, prefer_peer=True) == "own"


def test_a_peer_that_has_computed_nothing_gives_no_seed() -> None:
    assert _choice(None, said("r1", -1), head=0, prefer_peer=True) == "scratch"


def test_an_epoch_is_replayed_only_if_its_view_of_event_time_is_lost_and_still_needed() -> None:
    at = Standing(4, 7, 7)
    assert must_replay(at, 7, {}, ["event_time"])
    assert must_replay(at, 7, {"event_time": 5}, ["event_time", "event_time_2"]), "one of two steps is missing"
    assert not must_replay(at, 7, {"event_time": None}, ["event_time"]), "an epoch without records saw nothing"
    assert not must_replay(at, 8, {}, ["event_time"]), "the next epoch is sealed: its marks are decided"
    assert not must_replay(at, 7, {}, []), "a job without event time"
    assert not must_replay(Standing(-1, 6, 7), 7, {}, ["event_time"]), "nothing was committed"


def test_whoever_boots_is_waited_for_and_whoever_was_retired_is_not() -> None:
    store = cast("Store", MemoryStore(lambda: NOW_US))
    holder = store.begin("r1", 1)
    store.report(Progress("r1", holder.incarnation, 1, "starting"))
    assert may_wait(store, "r0")
    assert not may_wait(store, "r1"), "that is itself"
    store.retire("r1")
    assert not may_wait(store, "r0")


@pytest.mark.parametrize("wrong_s", [-300, 300])
def test_a_peer_whose_clock_is_minutes_off_gives_a_seed_until_it_is_retired(wrong_s: int) -> None:
    store = cast("Store", MemoryStore(lambda: NOW_US))
    holder = store.begin("r1", 1)
    store.report(Progress("r1", holder.incarnation, 1, "running", epoch=9, updated_us=NOW_US + wrong_s * US_PER_S))
    assert [one.replica for one in situation_of(store, "r0", None, False).peers] == ["r1"]
    store.retire("r1")
    assert situation_of(store, "r0", None, False).peers == []


def test_after_a_change_of_code_the_own_checkpoint_counts_from_the_first_epoch_on_and_nobody_begins_anew() -> None:
    first = Situation(Standing(0, 0, 0), True, head=0, floor=0, peers=(), changed=True)
    assert choose(first, prefer_peer=False, seed_beyond_epochs=50) == "own"
    for nothing in (None, Standing(-1, -1, -1)):
        assert choose(replace(first, own=nothing), prefer_peer=False, seed_beyond_epochs=50) == ""
