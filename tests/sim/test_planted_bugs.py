"""The simulator finds bugs: each of these breaks one rule, and the promise that it breaks is found, by name."""

from __future__ import annotations

import pytest

from lockstep.sim.many_seeds import Wish
from lockstep.sim.one_seed import Failure, run_seed
from lockstep.sim.planted_bugs import BUGS
from lockstep.sim.planting import Bug
from lockstep.sim.scenario import Scenario

SEEDS_MAX = 100
SCENARIOS = {
    repr(scenario): (bug.name, scenario)
    for bug in BUGS
    for scenario in (bug.scenario, bug.on_hosts)
    if scenario is not None
}
FOUND_BY = {
    "publish-without-fence": "once",
    "seal-by-overwrite": "agreement",
    "commit-before-publish": "order",
    "stale-snapshot": "equality",
    "zombie-publishes": "once",
    "manifest-overwritten": "once",
    "orphan-seals": "incarnation",
    "retention-ignores-laggards": "retention",
    "records-forgotten-first": "equality",
    "unbounded-lead": "readiness",
    "watermark-lost": "equality",
    "ledger-gap": "completeness",
    "heartbeat-skipped": "progress",
    "heartbeat-by-the-clock": "progress",
    "time-goes-back": "time",
    "marks-not-kept": "marks",
    "marks-lost-in-a-blackout": "marks",
    "damaged-checkpoint-used": "equality",
    "torn-commit-counts": "equality",
    "nobody-restarts": "progress",
    "lease-ignored": "adoption",
    "adopt-twice": "adoption",
    "kill-noted-first": "progress",
    "held-lock-unseen": "progress",
    "kill-asks-first": "progress",
    "one-stage-is-enough": "marks",
    "drain-stops-short": "stopping",
    "spare-beside-a-boot": "spares",
    "spare-given-twice": "spares",
    "seed-from-retired": "incarnation",
    "lease-by-clock": "lease",
    "lease-from-the-living": "lease",
    "placed-together": "placement",
    "operation-forgotten": "operations",
    "operation-begun-anew": "operations",
    "operation-stuck-when-late": "operations",
    "commit-not-noted": "operations",
    "old-leaves-first": "capacity",
    "leaves-below-the-wanted": "capacity",
    "shadow-publishes": "generation",
    "turn-undone": "generation",
    "rolled-back-half": "operations",
}
ON_HOSTS = [bug for bug in BUGS if bug.on_hosts is not None]


def first_failure(bug: Bug, hosts: int = 0) -> Failure:
    """The first one, trying seeds in order."""
    wish = Wish(bug.name, hosts=hosts)
    for seed in range(SEEDS_MAX):
        found = wish.run(seed)
        if isinstance(found, Failure):
            return found
    raise AssertionError(f"{bug.name} was not found in {SEEDS_MAX} seeds")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.name} breaks {FOUND_BY.get(bug.name)}")
def test_a_planted_bug_is_found_by_the_promise_that_it_breaks(bug: Bug) -> None:
    assert first_failure(bug).promise == FOUND_BY[bug.name] == bug.promise


@pytest.mark.parametrize("bug", ON_HOSTS, ids=lambda bug: bug.name)
def test_a_bug_that_shows_on_several_hosts_is_found_there_too(bug: Bug) -> None:
    assert first_failure(bug, hosts=3).promise == FOUND_BY[bug.name]


def test_every_bug_is_tested_and_named_once() -> None:
    assert [bug.name for bug in BUGS] == list(FOUND_BY)


@pytest.mark.parametrize(
    "scenario", [one for _, one in SCENARIOS.values()], ids=[f"that of {name}" for name, _ in SCENARIOS.values()]
)
def test_without_the_bug_its_scenario_breaks_no_promise(scenario: Scenario) -> None:
    for seed in range(8):
        run_seed(seed, scenario)


def test_it_is_the_slow_store_that_shows_a_supervisor_which_asks_before_it_kills() -> None:
    swift = Wish("kill-asks-first", {"store_slow_s": ()})
    assert not any(isinstance(swift.run(seed), Failure) for seed in range(20))


def test_a_bug_is_gone_when_it_is_taken_out_again() -> None:
    first_failure(BUGS[0])
    run_seed(0)
