"""Random trouble, seed by seed: whatever goes wrong when, no promise breaks."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.sim.many_seeds import Wish
from lockstep.sim.one_seed import run_seed
from lockstep.sim.planted_bugs import HELD
from lockstep.sim.process import STORE_STEPS
from lockstep.sim.replica import SimReplica
from lockstep.sim.scenario import SETTINGS, Scenario, random_scenario
from lockstep.sim.timeline import Timeline
from lockstep.store.sqlite_store import open_store

SEED_VARIABLE = "LOCKSTEP_SIM_SEED"
"""Set to a number, the seeds below become this one."""
SEEDS, SLICE, CHUNK = 2000, 600, 50
"""All of them are in `make test-long`, the first ones in `make test`."""
GIVEN = os.environ.get(SEED_VARIABLE)
CHUNKS = [[int(GIVEN)]] if GIVEN else [list(range(at, at + CHUNK)) for at in range(0, SEEDS, CHUNK)]
MARKED = [pytest.param(seeds, marks=[pytest.mark.long] if seeds[0] >= SLICE and not GIVEN else []) for seeds in CHUNKS]

NEVER_DRAWN = ["faulty", "boot_s", "late_s", "corrupted_s", "strikes_max", "spared", "recovery_s_max", "settings"]
RELENTLESS = Scenario(
    replicas=3,
    faults_s=30.0,
    crash_chance=0.03,
    hang_chance=0.03,
    pause_chance=0.02,
    slow_chance=0.02,
    tear_chance=0.2,
    zombie_chance=0.9,
    # Whoever is behind at all is seeded: copies and swaps are struck often enough to meet every case.
    settings=SETTINGS.model_copy(update={"seed_beyond_epochs": 0}),
)


@pytest.mark.parametrize("seeds", MARKED, ids=lambda seeds: f"from {seeds[0]}")
def test_no_seed_breaks_a_promise(seeds: list[int]) -> None:
    for seed in seeds:
        run_seed(seed)


@pytest.mark.parametrize("seed", range(3))
def test_the_real_store_keeps_the_promises_too(seed: int, tmp_path: Path) -> None:
    timeline = Timeline()
    store = open_store(tmp_path, "sim", lambda: timeline.now_us)
    try:
        run_seed(seed, store=store, timeline=timeline)
    finally:
        store.close()


def test_a_seed_always_gives_the_same_run() -> None:
    first, second = (run_seed(7, whole=True) for _ in range(2))
    assert first.history.story == second.history.story
    assert first.history.entries == second.history.entries
    assert [sink.visible for sink in first.sinks.values()] == [sink.visible for sink in second.sinks.values()]
    assert run_seed(8, random_scenario(7)).history.entries != first.history.entries


def told(seeds: range, scenario: Scenario | None = None) -> Counter[str]:
    """What happened in these seeds, and how often."""
    found: Counter[str] = Counter()
    for seed in seeds:
        found += run_seed(seed, scenario).history.told
    return found


def test_trouble_strikes_before_and_after_every_step_and_in_the_midst_of_every_write() -> None:
    found = told(range(30), RELENTLESS)
    steps = ("boot", "copy", "swap", "seal", *SimReplica.STEPS)
    struck = {f"{fault} {when} {step}" for fault in ("crash", "hang") for when in ("before", "after") for step in steps}
    torn = {f"{fault} in the midst of {step}" for fault in ("crash", "slow") for step in SimReplica.STEPS}
    starts = {"starts from own", "starts from a peer", "starts from scratch"}
    zombies = {"zombie may not seal: LS0405", "zombie publishes second"}
    assert sorted((struck | torn | starts | zombies) - set(found)) == []


def test_sources_wait_for_slower_ones_and_every_promise_holds_all_the_same() -> None:
    worlds = [run_seed(seed, random_scenario(seed)) for seed in range(12)]
    waited = {source for world in worlds for entry in world.history.entries.values() for source in entry.held}
    assert waited == {"clicks", "sensors"}


def test_the_seeds_draw_everything_that_can_go_wrong() -> None:
    plain = Scenario()
    drawn = [random_scenario(seed) for seed in range(SEEDS)]
    never = [name for name in vars(plain) if all(getattr(one, name) == getattr(plain, name) for one in drawn)]
    # Who is struck and how a boot goes is the same for all; the rest is for scenarios of their own, and for shrinking.
    assert never == [
        *NEVER_DRAWN[:4],
        "hosts",
        "hosts_killed_s",
        "cut_off_s",
        "sinks_beyond",
        "operations",
        *NEVER_DRAWN[4:],
    ]
    assert {one.replicas for one in drawn} == {1, 2, 3}


@pytest.mark.parametrize("bug", ["marks-lost-in-a-blackout", "lease-ignored", "ledger-gap"])
def test_what_is_planned_happens(bug: str) -> None:
    scenario = Wish(bug).base(0)
    happened = {
        "marks-lost-in-a-blackout": "computes an epoch again",
        "lease-ignored": "second supervisor takes over",
        "ledger-gap": "disk refuses: LS0413",
    }
    assert told(range(5), scenario)[happened[bug]] > 0


def test_a_store_lock_that_is_held_is_waited_for_and_then_passed_by() -> None:
    found = told(range(40), HELD)
    held = {f"hold in the midst of {step}" for step in STORE_STEPS}
    assert sorted((held | {"waits no longer to seal"}) - set(found)) == []


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_slow_store_costs_time_and_nothing_else(replicas: int) -> None:
    slow = Scenario(replicas=replicas, faults_s=20.0, store_slow_s=((2.0, 20.0),))
    for seed in range(4):
        world, swift = run_seed(seed, slow), run_seed(seed, replace(slow, store_slow_s=()))
        assert len(world.processes) == replicas, "nobody was taken for dead"
        assert world.head < swift.head, "it was slow"
