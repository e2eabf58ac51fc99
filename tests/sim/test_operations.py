"""Changes to a running job while everything goes wrong: each is done or rolled back, once and in time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lockstep.control.operations.book import OperationBook
from lockstep.sim.many_seeds import Wish
from lockstep.sim.one_seed import Failure, run_seed
from lockstep.sim.planted_operations import SWITCHED, TAKEN_BACK, TAKEN_OVER_HALF_WAY
from lockstep.sim.scenario import Ask, Scenario, random_scenario, with_operations
from lockstep.sim.world import World

SEEDS, SLICE, CHUNK = 500, 10, 10
"""All of them are in `make test-long`, the first ones in `make test`."""
MARKED = [pytest.param(at, marks=[pytest.mark.long] if at >= SLICE else []) for at in range(0, SEEDS, CHUNK)]
TEN_KILLS = tuple(2.0 + 1.5 * n for n in range(10))


def survived(wish: Wish, first: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        world = wish.run(seed)
        assert not isinstance(world, Failure), f"seed {seed}: {world.violation}"
        found += world.history.told
    return found


@pytest.mark.parametrize("first", MARKED)
def test_no_seed_loses_an_operation_or_breaks_a_promise(first: int) -> None:
    told = survived(Wish(operations=True), first)
    assert told["operation done"] and told["operation rolled-back"]


@pytest.mark.parametrize("first", MARKED)
def test_nor_does_one_on_several_hosts(first: int) -> None:
    survived(Wish(operations=True, hosts=3), first)


def phases(world: World) -> list[list[str]]:
    return [[step.name for step in one.steps] for one in OperationBook(world.store).all()]


@pytest.mark.parametrize("ask", ["restart", "same results", "partitions"])
def test_without_faults_every_replica_is_replaced_once(ask: str) -> None:
    quiet = Scenario(faults_s=3.0, operations=(Ask(2.0, ask, 4),))  # type: ignore[arg-type]
    world = run_seed(1, quiet)
    assert phases(world) == [["join", "replace r0", "replace r1", "leave", "done"]]
    assert Counter(one.name for one in world.processes) == {"r0": 2, "r1": 2, "r2": 1}


def test_a_sealed_entry_switches_to_other_results_and_another_one_back() -> None:
    switched, taken_back = run_seed(1, SWITCHED), run_seed(1, TAKEN_BACK)
    assert "switch" in phases(switched)[0] and switched.order.results_of == 2
    named = [entry.generation for entry in switched.history.entries.values()]
    assert named == sorted(named) and set(named) == {1, 2}
    assert phases(taken_back)[0][-1] == "rolled-back" and taken_back.order.results_of == 1
    assert taken_back.history.entries[taken_back.head].generation == 1


@pytest.mark.parametrize("ask", [Ask(3.0, "restart"), Ask(3.0, "other results")], ids=lambda ask: ask.what)
def test_whoever_coordinates_is_killed_ten_times_and_the_operation_is_done_once(ask: Ask) -> None:
    world = run_seed(2, replace(TAKEN_OVER_HALF_WAY, operations=(ask,), supervisor_killed_s=TEN_KILLS))
    assert len(world.supervisors) > 9
    assert [steps[-1] for steps in phases(world)] == ["done"]


def test_the_seeds_draw_every_kind_of_operation_and_kill_whoever_coordinates_ten_times() -> None:
    drawn = [with_operations(seed, random_scenario(seed)) for seed in range(200)]
    kinds = {ask.what for one in drawn for ask in one.operations}
    assert kinds == {"partitions", "replicas", "restart", "same results", "other results", "deactivate"}
    assert max(len(one.supervisor_killed_s) for one in drawn) == 10
