"""Policies in the simulator: promises hold, what is asked for is met at little more cost, planted bugs are found."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from lockstep.cli.main import app
from lockstep.sim.policy.planted_bugs import BUGS, Bug
from lockstep.sim.policy.scenario import random_scenario, strikes
from lockstep.sim.policy.seeds import COST_MAX, MET_MIN, Failure, Tally, Wish, explore, run_chunk
from lockstep.sim.policy.world import World

SEEDS_MAX = 20
OVER_ALL_SEEDS = ("targets", "cost")
FOUND_BY = {
    "no-quiet-hour": "quiet",
    "last-window-counts": "hour",
    "backlog-unseen": "backlog",
    "own-faults-count": "own fault",
    "useless-again": "repeated",
    "one-at-a-time": "flapping",
    "budget-unseen": "budget",
    "nothing-learned": "targets",
    "always-three": "cost",
}
IN_ONE_SEED = [bug for bug in BUGS if bug.promise not in OVER_ALL_SEEDS]


def checked(tally: Tally, failure: Failure | None) -> None:
    assert failure is None, (failure.seed, failure.violation)
    assert tally.violation == ""
    assert tally.met_share >= MET_MIN and tally.cost <= COST_MAX
    assert tally.meetable > 0.7 * tally.seeds


def test_a_slice_of_seeds_breaks_no_promise_and_meets_what_is_asked() -> None:
    checked(*run_chunk(Wish(), 0, 100))


@pytest.mark.long
def test_ten_thousand_seeds_break_no_promise_and_meet_what_is_asked() -> None:
    *_, (tally, failure) = explore(Wish(), 0, 10_000, jobs=1)
    assert tally.seeds == 10_000
    checked(tally, failure)


@pytest.mark.parametrize("bug", IN_ONE_SEED, ids=lambda bug: f"{bug.name} breaks {bug.promise}")
def test_a_planted_bug_is_found_by_the_promise_that_it_breaks(bug: Bug) -> None:
    found = next((one for seed in range(SEEDS_MAX) if isinstance(one := Wish(bug.name).run(seed), Failure)), None)
    assert found is not None
    assert found.promise == FOUND_BY[bug.name] == bug.promise


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.promise in OVER_ALL_SEEDS], ids=lambda bug: bug.name)
def test_a_bug_that_shows_in_all_seeds_together_is_found_there(bug: Bug) -> None:
    tally, failure = run_chunk(Wish(bug.name), 0, 60)
    assert failure is None
    assert tally.violation.partition(":")[0] == FOUND_BY[bug.name] == bug.promise


@pytest.mark.parametrize("bug", IN_ONE_SEED, ids=lambda bug: f"that of {bug.name}")
def test_without_the_bug_its_scenario_breaks_no_promise(bug: Bug) -> None:
    assert bug.scenario is not None
    for seed in range(3):
        World(seed, bug.scenario).run()


def test_every_bug_is_tested() -> None:
    assert [bug.name for bug in BUGS] == list(FOUND_BY)


def test_a_seed_fixes_everything() -> None:
    one, again = Wish().play(17), Wish().play(17)
    assert one == again
    assert strikes(random_scenario(17), 17) == strikes(random_scenario(17), 17)


def test_seeds_draw_every_kind_of_trouble() -> None:
    drawn = [random_scenario(seed) for seed in range(200)]
    for name in ("storms_h", "together_h", "flapping_h", "poison_h", "slow_h", "bursts_h"):
        assert 5 < sum(bool(getattr(one, name)) for one in drawn) < 150, name


def test_the_command_tells_of_a_seed_and_of_a_bug() -> None:
    told = CliRunner().invoke(app, ["sim", "--policy", "--seed", "7", "--trace"])
    assert told.exit_code == 0 and " h  " in told.stdout and told.stdout.strip().endswith("every promise held")
    found = CliRunner().invoke(app, ["sim", "--policy", "--plant", "own-faults-count", "--seeds", "5", "--jobs", "1"])
    assert found.exit_code == 1 and "own fault: " in found.stdout
    listed = CliRunner().invoke(app, ["sim", "--policy", "--bugs"])
    assert "useless-again" in listed.stdout
    refused = CliRunner().invoke(app, ["sim", "--policy", "--hosts", "3"])
    assert "from the seed alone" in str(refused.exception)
