"""Many seeds of a policy: the first that breaks a promise, and what holds only over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from lockstep.sim.many_seeds import in_processes
from lockstep.sim.policy.planted_bugs import bug_named
from lockstep.sim.policy.promises import PolicyBroken
from lockstep.sim.policy.scenario import random_scenario
from lockstep.sim.policy.world import Result, World

CHUNK = 25
MET_MIN = 0.95
"""The share of seeds in which what was asked for is met, of those in which some fixed choice would have."""
COST_MAX = 1.15
"""Replica-hours of all those seeds, against those of the cheapest fixed choice that meets the target, in hindsight."""
SEEDS_MIN = 60
"""Shares of fewer seeds are chance."""
BEHIND_MAX = 0.05
"""A job that is behind for a larger share of its time, although a larger one would not be, was sized wrongly."""


@dataclass(frozen=True)
class Failure:
    """A seed that broke a promise."""

    seed: int
    violation: str
    story: tuple[str, ...]

    @property
    def promise(self) -> str:
        """The name of the promise that broke."""
        return self.violation.partition(":")[0]


@dataclass(frozen=True)
class Tally:
    """What all seeds together came to."""

    seeds: int = 0
    asked: int = 0
    """Seeds in which a target was set."""
    meetable: int = 0
    """Of those, the ones in which some fixed choice meets it in hindsight."""
    met: int = 0
    """Of those, the ones in which the policy did."""
    replica_hours: float = 0.0
    best_hours: float = 0.0
    behind: int = 0
    """Seeds that were behind for too long."""
    partition_changes: int = 0
    """The most within a day, of any seed; and of the mode."""
    mode_changes: int = 0

    def plus(self, one: Result) -> Tally:
        """With one more seed."""
        counts = one.target and one.meetable
        return Tally(
            self.seeds + 1,
            self.asked + one.target,
            self.meetable + counts,
            self.met + (counts and one.met),
            self.replica_hours + (one.replica_hours if counts else 0.0),
            self.best_hours + (one.best_hours if counts else 0.0),
            self.behind + (one.behind_share > BEHIND_MAX),
            max(self.partition_changes, one.changes_a_day[0]),
            max(self.mode_changes, one.changes_a_day[1]),
        )

    def merged(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(
            self.seeds + other.seeds,
            self.asked + other.asked,
            self.meetable + other.meetable,
            self.met + other.met,
            self.replica_hours + other.replica_hours,
            self.best_hours + other.best_hours,
            self.behind + other.behind,
            max(self.partition_changes, other.partition_changes),
            max(self.mode_changes, other.mode_changes),
        )

    @property
    def met_share(self) -> float:
        """Of the targets that could be met."""
        return self.met / self.meetable if self.meetable else 1.0

    @property
    def cost(self) -> float:
        """Against the best fixed choice in hindsight."""
        return self.replica_hours / self.best_hours if self.best_hours else 1.0

    @property
    def violation(self) -> str:
        """What does not hold over all seeds; empty if all does."""
        if self.seeds < SEEDS_MIN:
            return ""
        if self.met_share < MET_MIN:
            return f"targets: met in {self.met_share * 100:.1f} % of the seeds, {MET_MIN * 100:.0f} % are promised"
        if self.cost > COST_MAX:
            return f"cost: {self.cost:.2f} times the best fixed choice, {COST_MAX} are promised"
        if self.behind > (1 - MET_MIN) * self.seeds:
            return (
                f"load: {self.behind} of {self.seeds} seeds were behind for more than {BEHIND_MAX * 100:.0f} % of time"
            )
        return ""

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"{self.seeds} seeds: {self.asked} with a target, {self.meetable} of which a fixed choice meets; "
            f"met in {self.met} ({self.met_share * 100:.1f} %)\n"
            f"replica-hours: {self.cost:.3f} times the best fixed choice in hindsight\n"
            f"behind for more than {BEHIND_MAX * 100:.0f} % of the time although a larger job would not be: "
            f"{self.behind} seeds ({self.behind * 100 / max(1, self.seeds):.1f} %)\n"
            f"most changes within a day: {self.partition_changes} of partitions, {self.mode_changes} of the mode"
        )


@dataclass(frozen=True)
class Wish:
    """What to run besides the seed: a bug to plant."""

    bug: str = ""

    def run(self, seed: int) -> Result | Failure:
        """Run one seed.

        >>> Wish().run(4711).met
        True
        """
        return self.play(seed)[0]

    def play(self, seed: int) -> tuple[Result | Failure, list[str]]:
        """Run one seed; what came of it, and its story."""
        planted = bug_named(self.bug) if self.bug else None
        scenario = planted.scenario if planted is not None else None
        with planted.plant() if planted is not None else nullcontext():
            world = World(seed, scenario or random_scenario(seed))
            try:
                return world.run(), world.story
            except PolicyBroken as broken:
                return Failure(seed, str(broken), tuple(world.story)), world.story


def run_chunk(wish: Wish, first: int, count: int) -> tuple[Tally, Failure | None]:
    """Run some seeds; what they came to, and the failure at which it stopped."""
    tally = Tally()
    for seed in range(first, first + count):
        found = wish.run(seed)
        if isinstance(found, Failure):
            return tally, found
        tally = tally.plus(found)
    return tally, None


def explore(wish: Wish, first: int, count: int, jobs: int) -> Iterator[tuple[Tally, Failure | None]]:
    """After each piece of work: what all seeds so far came to, and the first failure, which ends it."""
    chunks = [(start, min(CHUNK, first + count - start)) for start in range(first, first + count, CHUNK)]
    tally = Tally()
    for some, failure in in_processes(partial(run_chunk, wish), chunks, jobs):
        tally = tally.merged(some)
        yield tally, failure
        if failure is not None:
            return
