"""Making a failing scenario smaller while the same promise still breaks: what is left is what matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from lockstep.sim.one_seed import Failure, try_seed
from lockstep.sim.scenario import Scenario

RUNS_MAX = 400
"""Runs spent on one failure: some seconds."""
_CHANCES = ("crash_chance", "hang_chance", "pause_chance", "slow_chance", "hold_chance", "tear_chance", "zombie_chance")
_PLANNED = (
    "blackouts_s",
    "stops_s",
    "supervisor_killed_s",
    "supervisor_hangs_s",
    "corrupted_s",
    "quiet_s",
    "silence_s",
    "disk_full_s",
    "disk_locked_s",
    "store_slow_s",
    "clock_jumps_s",
)
_OF_HOSTS = ("hosts_killed_s", "cut_off_s")
_PLAIN = (
    *("stages", "spares", "odd_shapes", "slowness", "power_loss", "supervisor_lock", "lead_epochs_max", "boot_s"),
    "sinks_beyond",
)


def shrink(failure: Failure, on_smaller: Callable[[Failure], None] = lambda _: None) -> Failure:
    """The smallest failure found on the way down from this one: fewer faults, fewer replicas, a shorter run."""
    runs = 0
    smallest = failure
    again = True
    while again and runs < RUNS_MAX:
        again = False
        for scenario in _smaller(smallest):
            runs += 1
            found = try_seed(failure.seed, scenario)
            if isinstance(found, Failure) and found.promise == failure.promise:
                smallest, again = found, True
                on_smaller(smallest)
                break
            if runs >= RUNS_MAX:
                break
    told = try_seed(smallest.seed, smallest.scenario, whole=True)
    assert isinstance(told, Failure)
    return told


def _smaller(failure: Failure) -> Iterator[Scenario]:
    """Scenarios that are simpler by one thing, the largest simplification first."""
    scenario = failure.scenario
    for replicas in range(1, scenario.replicas):
        yield replace(scenario, replicas=replicas)
    for name in (*_PLANNED, *_OF_HOSTS):
        if getattr(scenario, name):
            yield _with(scenario, name, ())
    for name in (*_OF_HOSTS, "operations"):
        planned = getattr(scenario, name)
        for left_out in planned if len(planned) > 1 else ():
            yield _with(scenario, name, tuple(one for one in planned if one != left_out))
    yield from _fewer_strikes(failure)
    for name in _CHANCES:
        if getattr(scenario, name):
            yield _with(scenario, name, 0.0)
    if scenario.faults_s > 1.0:
        yield replace(scenario, faults_s=round(scenario.faults_s / 2, 1))
        yield replace(scenario, faults_s=round(scenario.faults_s - 1.0, 1))
    plain = Scenario()
    for name in _PLAIN:
        if getattr(scenario, name) != getattr(plain, name):
            yield _with(scenario, name, getattr(plain, name))


def _with(scenario: Scenario, name: str, value: Any) -> Scenario:
    return replace(scenario, **{name: value})


def _fewer_strikes(failure: Failure) -> Iterator[Scenario]:
    scenario = failure.scenario
    most = min(scenario.strikes_max, failure.strikes)
    if most < scenario.strikes_max:
        yield replace(scenario, strikes_max=most)
    for wanted in sorted({0, most // 2, most - 1}):
        if 0 <= wanted < most:
            yield replace(scenario, strikes_max=wanted)
    for number in range(most):
        if number not in scenario.spared and most < 40:
            yield replace(scenario, spared=(*scenario.spared, number))


def changes(scenario: Scenario, before: Scenario) -> dict[str, Any]:
    """What differs between two scenarios, as plain data.

    >>> changes(Scenario(replicas=3, crash_chance=0.0), Scenario(replicas=2))
    {'replicas': 3}
    """
    names = [field.name for field in fields(Scenario) if field.name != "settings"]
    return {name: getattr(scenario, name) for name in names if getattr(scenario, name) != getattr(before, name)}
