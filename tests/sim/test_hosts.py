"""Several hosts: they die, are cut off and come back with zombies, their clocks are wrong; no promise breaks."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from lockstep.cli.main import app
from lockstep.sim import shrinking
from lockstep.sim.coordination import SESSION_S, SharedStore
from lockstep.sim.hosts_world import HostsWorld
from lockstep.sim.many_seeds import Wish
from lockstep.sim.one_seed import Failure, run_seed
from lockstep.sim.planted_bugs import CUT_OFF, LEFT_ALONE_ON_HOSTS
from lockstep.sim.scenario import Scenario, random_hosts_scenario
from lockstep.sim.spare import SimSpare
from lockstep.sim.timeline import Timeline

SEEDS, SLICE, CHUNK = 1000, 100, 50
"""All of them are in `make test-long`, the first ones in `make test`."""
CHUNKS = [
    pytest.param(range(at, at + CHUNK), marks=[pytest.mark.long] if at >= SLICE else [])
    for at in range(0, SEEDS, CHUNK)
]
CALM = Scenario(hosts=3, faults_s=8.0)


def run(seed: int, scenario: Scenario) -> HostsWorld:
    """Its world, with the whole story."""
    world = run_seed(seed, scenario, whole=True)
    assert isinstance(world, HostsWorld)
    return world


def hosts_of(world: HostsWorld) -> dict[str, list[str]]:
    """On which hosts each replica was started, in order."""
    found: dict[str, list[str]] = {}
    for one in world.processes:
        found.setdefault(one.name, []).append(one.host.name)
    return found


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"from {seeds[0]}")
def test_no_seed_breaks_a_promise_on_three_hosts(seeds: range) -> None:
    told: Counter[str] = Counter()
    for seed in seeds:
        told += run_seed(seed, random_hosts_scenario(seed, 3)).history.told
    met = {"a host dies", "a host is cut off", "is retired while it lives", "supervisor adopts a replica"}
    assert met <= set(told)


@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_other_numbers_of_hosts_are_possible(hosts: int) -> None:
    for seed in range(15):
        run_seed(seed, random_hosts_scenario(seed, hosts))


def test_the_seeds_draw_everything_that_can_happen_to_hosts() -> None:
    drawn = [random_hosts_scenario(seed, 3) for seed in range(200)]
    assert {name for one in drawn for _, name, _ in (*one.hosts_killed_s, *one.cut_off_s)} == {"h1", "h2", "h3"}
    assert {one.sinks_beyond for one in drawn} == {True, False}
    minutes_off = [abs(by_s) > 60 for one in drawn for _, name, by_s in one.clock_jumps_s if name in ("h1", "h2", "h3")]
    assert any(minutes_off)


def test_a_seed_always_gives_the_same_run() -> None:
    first, second = (run(7, random_hosts_scenario(7, 3)) for _ in range(2))
    assert first.history.story == second.history.story


@pytest.mark.parametrize("seed", range(3))
def test_replicas_live_on_hosts_of_their_own(seed: int) -> None:
    started = hosts_of(run(seed, replace(CALM, replicas=3)))
    assert sorted(hosts for (hosts,) in started.values()) == ["h1", "h2", "h3"]


@pytest.mark.parametrize("seed", range(5))
def test_a_candidate_of_another_host_takes_over_and_adopts_what_runs(seed: int) -> None:
    world = run(seed, LEFT_ALONE_ON_HOSTS)
    led = [one for one in world.supervisors if one.leads]
    assert len(led) == 2 and led[0].host is not led[1].host
    assert len(world.processes) == world.scenario.replicas, "nothing is started anew"
    assert world.history.told["supervisor adopts a replica"] == world.scenario.replicas
    assert all(one.incarnation == 1 for one in world.store.progress())


@pytest.mark.parametrize("seed", range(5))
def test_the_replica_of_a_dead_host_is_started_elsewhere_from_a_peer_and_the_disk_stays(seed: int) -> None:
    (first,) = hosts_of(run(seed, CALM))["r1"]
    world = run(seed, replace(CALM, faults_s=12.0, hosts_killed_s=((4.0, first, 6.0),)))
    assert len(hosts_of(world)["r1"]) == 2 and first != hosts_of(world)["r1"][1]
    assert world.history.told["starts from a peer"] == 1
    assert world.hosts[first].disk["r1", 0].epoch > 0


@pytest.mark.parametrize("seed", range(5))
def test_whoever_was_replaced_behind_a_partition_ends_when_its_host_is_back(seed: int) -> None:
    world = run(seed, CUT_OFF)
    assert world.history.told["is retired while it lives"] >= 1
    ends = [line for line in world.history.story if re.search(r"r\d\.\d+\* +(ends with|is killed)", line)]
    assert len(ends) == world.history.told["is retired while it lives"]


def test_a_sink_refuses_whoever_was_replaced_and_has_published_since() -> None:
    refused = [line for seed in range(10) for line in run(seed, CUT_OFF).history.story if "LS0534" in line]
    assert refused and all(re.search(r"r\d\.\d+\* +fails", line) for line in refused)


def test_a_partition_that_is_shorter_than_a_session_costs_nobody_its_place() -> None:
    world = run(1, replace(CALM, cut_off_s=((4.0, "h1", SESSION_S * 0.9), (7.0, "h2", SESSION_S * 0.9))))
    assert len(world.processes) == 2
    assert len([one for one in world.supervisors if one.leads]) == 1


@pytest.mark.parametrize("by_s", [-200.0, 200.0])
def test_a_clock_that_is_minutes_off_costs_nobody_its_place_and_spares_are_ordered(by_s: float) -> None:
    for host in ("h1", "h2", "h3"):
        world = run(2, replace(CALM, spares=1, clock_jumps_s=((0.0, host, by_s),)))
        replicas = [one for one in world.processes if not isinstance(one, SimSpare)]
        assert (len(replicas), len(world.processes)) == (2, 3)
        assert len([one for one in world.supervisors if one.leads]) == 1


def shared_store() -> tuple[SharedStore, Timeline]:
    """One whose hosts' clocks nobody asks."""
    timeline = Timeline()

    def clock_of(who: str) -> Callable[[], int]:
        raise AssertionError(f"the service asked the clock of {who}")

    return SharedStore(timeline, lambda _: None, clock_of), timeline


def test_a_lease_and_an_announcement_go_with_the_session_of_whoever_made_them() -> None:
    store, timeline = shared_store()
    assert store.acquire("lease", "first", 0.1)
    store.announce("h1", {"cores": 2})
    timeline.pass_by(10 * SESSION_S)
    assert not store.acquire("lease", "second", 0.1), "no clock ends it"
    store.sessions.fall_silent("first")
    store.sessions.fall_silent("h1")
    timeline.pass_by(SESSION_S / 2)
    assert (store.holder("lease"), store.hosts()) == ("first", {"h1": {"cores": 2}})
    timeline.pass_by(SESSION_S)
    assert (store.holder("lease"), store.hosts()) == (None, {})
    assert store.acquire("lease", "second", 0.1)


def test_whoever_is_heard_again_in_time_keeps_its_session() -> None:
    store, timeline = shared_store()
    store.acquire("lease", "first", 0.1)
    for _ in range(3):
        store.sessions.fall_silent("first")
        timeline.pass_by(SESSION_S * 0.9)
        store.sessions.hear("first")
        timeline.pass_by(SESSION_S * 0.2)
    assert store.holder("lease") == "first"


def test_shrinking_leaves_out_the_partitions_that_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "RUNS_MAX", 30)
    wish = Wish("zombie-publishes", hosts=3)
    found = next(one for seed in range(20) if isinstance(one := wish.run(seed), Failure))
    with wish.planted.plant():  # type: ignore[union-attr]
        smallest = shrinking.shrink(found)
    assert len(smallest.scenario.cut_off_s) < len(found.scenario.cut_off_s)


def test_a_broken_promise_ends_with_a_command_that_breaks_it_again_on_hosts() -> None:
    done = CliRunner().invoke(app, ["sim", "--hosts", "3", "--plant", "lease-by-clock", "--seeds", "20", "--jobs", "1"])
    assert done.exit_code == 1 and "lease: " in done.stdout
    again = shlex.split(next(line for line in done.stdout.splitlines() if line.startswith("again: ")))[2:]
    assert again[:5] == ["sim", "--seed", again[2], "--hosts", "3"]
    told = CliRunner().invoke(app, again)
    assert told.exit_code == 1 and "lease: " in told.stdout


def test_a_seed_on_hosts_is_told_with_its_hosts() -> None:
    done = CliRunner().invoke(app, ["sim", "--hosts", "3", "--seed", "5", "--trace"])
    assert done.exit_code == 0
    assert re.search(r"supervisor\d+@h\d +takes the lease", done.stdout)
    assert re.search(r"seed 5: \d replicas on 3 hosts, \d+ epochs", done.stdout)
