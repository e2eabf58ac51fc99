"""Clocks that are set and clocks that differ: epoch time goes on, and nobody is taken for dead or alive by mistake."""

from __future__ import annotations

import pytest

from lockstep.runtime.decide.last_seen import LastSeen
from lockstep.sim.one_seed import run_seed
from lockstep.sim.scenario import Scenario
from lockstep.store.protocols import Progress

S = 1_000_000
AN_HOUR_S = 3600.0


@pytest.mark.parametrize("by_s", [-AN_HOUR_S, AN_HOUR_S], ids=["back", "forward"])
def test_a_clock_that_is_set_by_an_hour_changes_nothing_for_the_replicas(by_s: float) -> None:
    world = run_seed(1, Scenario(faults_s=12.0, clock_jumps_s=((5.0, "all", by_s),), silence_s=((6.0, 11.0),)))
    assert len(world.processes) == 2, "nobody was replaced"
    calm = run_seed(1, Scenario(faults_s=12.0, silence_s=((6.0, 11.0),)))
    # While the clock is behind the ledger, the interval begins when a replica is ready and not at the last seal.
    assert 0.7 * calm.head <= world.head <= 1.1 * calm.head, "intervals and heartbeats hold"


def test_a_slow_replica_catches_up_although_the_clocks_of_hosts_differ() -> None:
    slow = Scenario(replicas=3, slowness=(3.0, 1.0, 1.0), late_s={"r0": 8.0}, clock_jumps_s=((0.0, "r1", 1.9),))
    assert run_seed(0, slow).head > 0


def test_the_age_of_a_word_does_not_depend_on_the_clock_in_it() -> None:
    last_seen = LastSeen()
    ahead = Progress("r1", 1, 1, "running", updated_us=500 * S, moved_us=500 * S)
    (first,) = last_seen.aged([ahead], now_us=100 * S, elapsed_s=0.0)
    (later,) = last_seen.aged([ahead], now_us=103 * S, elapsed_s=3.0)
    assert (first.updated_us, later.updated_us, later.moved_us) == (100 * S, 100 * S, 100 * S)


def test_a_new_word_whose_stamp_cannot_be_true_counts_from_now() -> None:
    last_seen = LastSeen()
    last_seen.aged([Progress("r1", 1, 1, "running", updated_us=10 * S)], now_us=10 * S, elapsed_s=0.0)
    behind = Progress("r1", 1, 1, "running", updated_us=11 * S)
    (seen,) = last_seen.aged([behind], now_us=90 * S, elapsed_s=2.0)
    assert seen.updated_us == 90 * S
    (seen,) = last_seen.aged([Progress("r1", 1, 1, "running", updated_us=89 * S)], now_us=91 * S, elapsed_s=5.0)
    assert seen.updated_us == 89 * S, "two of the three seconds since the last look"


def test_a_stamp_that_is_right_is_left_as_it_is() -> None:
    word = Progress("r1", 1, 1, "running", updated_us=7 * S, moved_us=6 * S)
    assert LastSeen().aged([word], now_us=9 * S, elapsed_s=50.0) == [word]
