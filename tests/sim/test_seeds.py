"""Random trouble, seed by seed: whatever crashes, hangs or pauses when, no promise breaks."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from lockstep.store.sqlite_store import open_store
from tests.sim.replica import SimReplica
from tests.sim.scenario import Scenario, random_scenario
from tests.sim.timeline import Timeline
from tests.sim.world import run_seed

SEED_VARIABLE = "LOCKSTEP_SIM_SEED"
"""Set to a number, the seeds below become this one."""
SEEDS, CHUNK = 300, 50
GIVEN = os.environ.get(SEED_VARIABLE)
CHUNKS = [[int(GIVEN)]] if GIVEN else [list(range(at, at + CHUNK)) for at in range(0, SEEDS, CHUNK)]

RELENTLESS = Scenario(
    replicas=3, faults_s=30.0, crash_chance=0.02, hang_chance=0.03, pause_chance=0.02, zombie_chance=0.9
)


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"from {seeds[0]}")
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
    first, second = (run_seed(7) for _ in range(2))
    assert first.history.entries == second.history.entries
    assert [sink.visible for sink in first.sinks.values()] == [sink.visible for sink in second.sinks.values()]
    assert run_seed(8, random_scenario(7)).history.entries != first.history.entries


def test_trouble_strikes_before_and_after_every_step_and_from_every_side() -> None:
    told: Counter[str] = Counter()
    for seed in range(40):
        told += run_seed(seed, RELENTLESS).history.told
    steps = ("boot", "prepare", "seal", *SimReplica.STEPS)
    struck = {f"{fault} {when} {step}" for fault in ("crash", "hang") for when in ("before", "after") for step in steps}
    starts = {"starts from own", "starts from a peer", "starts from scratch"}
    zombies = {"zombie may not seal: LS0405", "zombie publishes second"}
    assert sorted((struck | starts | zombies) - set(told)) == []
