"""Running one seed, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.sim.history import PromiseBroken
from lockstep.sim.hosts_world import HostsWorld
from lockstep.sim.scenario import Scenario, random_scenario
from lockstep.sim.timeline import Timeline
from lockstep.sim.world import World


@dataclass(frozen=True)
class Failure:
    """A seed that broke a promise, or the simulator itself."""

    seed: int
    scenario: Scenario
    violation: str
    story: tuple[str, ...]
    strikes: int
    """How many faults had struck replicas by then."""

    @property
    def promise(self) -> str:
        """The name of the promise that broke."""
        return self.violation.partition(":")[0]


def world_of(
    seed: int, scenario: Scenario, store: Any = None, timeline: Timeline | None = None, *, whole: bool = False
) -> World:
    """The world of a scenario, before anything has happened in it."""
    kind = HostsWorld if scenario.hosts else World
    return kind(seed, scenario, store, timeline, whole=whole)


def run_seed(
    seed: int,
    scenario: Scenario | None = None,
    store: Any = None,
    timeline: Timeline | None = None,
    *,
    whole: bool = False,
) -> World:
    """Run one seed, of a given scenario or of its own, and return its world.

    >>> run_seed(4711).head > 0
    True

    Raises :class:`PromiseBroken` with the last lines of its story (``whole``: all of them).
    """
    scenario = scenario or random_scenario(seed)
    world = world_of(seed, scenario, store, timeline, whole=whole)
    try:
        world.run()
    except PromiseBroken as broken:
        hosts = f" --hosts {scenario.hosts}" if scenario.hosts else ""
        broken.add_note(f"again: lockstep sim --seed {seed}{hosts} --trace")
        raise
    return world


def try_seed(seed: int, scenario: Scenario, *, whole: bool = False) -> Failure | World:
    """Run one seed; what broke, or the world if nothing did. An error inside is a finding too."""
    world = world_of(seed, scenario, whole=whole)
    try:
        world.run()
    except PromiseBroken as broken:
        violation = broken.violation
    except Exception as error:
        violation = f"crash: {type(error).__name__}: {error}"
    else:
        return world
    return Failure(seed, scenario, violation, tuple(world.history.story), world.faults.struck)
