"""What a policy must never do, checked against the simulated world's truth and not against what the policy believes."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from lockstep.control.policy.decisions import Replace, Rescale
from lockstep.control.policy.tolerance import MODES, Mode, mode_of
from lockstep.sim.policy.scenario import DAY_S, Scenario

if TYPE_CHECKING:
    from lockstep.sim.policy.world import World

PARTITION_CHANGES_MAX = 8
"""Within any 24 hours."""
MODE_CHANGES_MAX = 8
BACKLOG_S = 30.0
"""What comes in this time may wait while a job is made smaller; more is a backlog."""
GAINED = 1.05
"""A change that really gave less than this did not help."""


class PolicyBroken(Exception):
    """A policy did what it must never do."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class Checks:
    """Remembers what is needed to judge the next decision."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.charged_s = 0.0
        self.loads: list[tuple[float, float]] = []
        self.struck_s: list[float] = []
        self.own_fault_s: float | None = None
        self.partition_changes: list[tuple[float, int, int]] = []
        self.mode_changes_s: list[float] = []
        self.useless_s: float | None = None
        """Since when it could be known that more partitions do not help."""
        self.replaced_s: dict[str, float] = {}

    def note_strike(self, now_s: float) -> None:
        """Something really failed."""
        self.struck_s.append(now_s)

    def note_own_fault(self, now_s: float) -> None:
        """The job crashed by its own fault."""
        self.own_fault_s = now_s

    def note_load(self, now_s: float, rate: float) -> None:
        """What came."""
        self.loads.append((now_s, rate))

    def partitions_max(self, replicas: int) -> int:
        """As many as limits and cores allow."""
        settings = self.scenario.settings
        most = min(settings.partitions_max, self.scenario.cores)
        return max(1, min(most, settings.budget_cores // replicas) if settings.budget_cores else most)

    def bounds(self, world: World, now_s: float) -> None:
        """The user's limits."""
        settings, replicas, partitions = self.scenario.settings, world.fleet.replicas, world.partitions
        if not settings.replicas_min <= replicas <= settings.replicas_max:
            raise PolicyBroken("limits", f"{replicas} replicas at {now_s:.0f} s")
        if not settings.partitions_min <= partitions <= max(settings.partitions_max, self.scenario.partitions):
            raise PolicyBroken("limits", f"{partitions} partitions at {now_s:.0f} s")
        used = replicas * partitions
        first = settings.replicas_min * self.scenario.partitions
        if settings.budget_cores and used > max(settings.budget_cores, first):
            raise PolicyBroken("budget", f"{used} cores of {settings.budget_cores} at {now_s:.0f} s")

    def partitions_change(self, world: World, after: int, now_s: float) -> None:
        """Down: nothing waits, and what came in the quiet hour is carried. Up: not again what did not help."""
        before, quiet_s = world.partitions, self.scenario.settings.quiet_s
        last_s = self.partition_changes[-1][0] if self.partition_changes else None
        if after < before:
            rate = self.loads[-1][1]
            if world.backlog > BACKLOG_S * rate:
                raise PolicyBroken("backlog", f"{before} to {after} partitions while {world.backlog:.0f} records wait")
            if last_s is not None and now_s - last_s < quiet_s:
                raise PolicyBroken("quiet", f"{before} to {after} partitions {now_s - last_s:.0f} s after a change")
            first = bisect_left(self.loads, (now_s - quiet_s + 1.0, 0.0))
            most = max(rate for _, rate in self.loads[first:])
            if most > world.capacity_per_s(after):
                text = f"{before} to {after} partitions, which carry {world.capacity_per_s(after):.0f} of {most:.0f}/s"
                raise PolicyBroken("hour", text)
        elif self.useless_s is not None and now_s - self.useless_s < DAY_S:
            text = f"more partitions again {(now_s - self.useless_s) / 3600:.1f} h after they did not help"
            raise PolicyBroken("repeated", text)
        else:
            gained = world.capacity_per_s(after) / world.capacity_per_s(before)
            self.useless_s = now_s if gained < GAINED else None
        self.partition_changes.append((now_s, before, after))
        self._count([at_s for at_s, *_ in self.partition_changes], PARTITION_CHANGES_MAX, "partitions", now_s)

    def mode_change(self, world: World, before: Mode, wish: Rescale, now_s: float) -> None:
        """Down: an hour after the last failure. Up: not because the job crashes by its own fault."""
        assert wish.replicas is not None
        after = mode_of(wish.replicas, wish.spares or 0)
        struck_s = self.struck_s[-1] if self.struck_s else None
        quiet_s = self.scenario.settings.quiet_s
        if MODES.index(after) < MODES.index(before):
            if struck_s is not None and now_s - struck_s < quiet_s:
                raise PolicyBroken("quiet", f"{after.name} {now_s - struck_s:.0f} s after a failure")
        elif self.own_fault_s is not None and world.fleet.replicas < wish.replicas:
            ago_s = now_s - self.own_fault_s
            # Later only for what else failed; or if it is the first choice, which nothing that was seen has made.
            blamed = struck_s is not None and now_s - struck_s <= DAY_S
            if ago_s < quiet_s or (ago_s < DAY_S and not blamed and self.mode_changes_s):
                raise PolicyBroken("own fault", f"{after.name} {ago_s:.0f} s after the job crashed by its own fault")
        self.mode_changes_s.append(now_s)
        self._count(self.mode_changes_s, MODE_CHANGES_MAX, "the mode", now_s)

    def replacement(self, world: World, wish: Replace, now_s: float) -> None:
        """Not again within a day if the replica was slow for another reason than its host."""
        before_s = self.replaced_s.get(wish.replica)
        follows = world.scenario.slow_follows and world.scenario.slow_h is not None and wish.replica == "r0"
        struck = self.struck_s and now_s - self.struck_s[-1] < DAY_S
        if before_s is not None and now_s - before_s < DAY_S and follows and not struck:
            raise PolicyBroken("repeated", f"{wish.replica} is replaced again {(now_s - before_s) / 3600:.1f} h later")
        self.replaced_s[wish.replica] = now_s

    def _count(self, times_s: list[float], most: int, what: str, now_s: float) -> None:
        today = len(times_s) - bisect_left(times_s, now_s - DAY_S)
        if today > most:
            raise PolicyBroken("flapping", f"{what} changed {today} times within a day")

    def most_changes(self) -> tuple[int, int]:
        """The most changes of partitions, and of the mode, within a day."""
        return _most([at_s for at_s, *_ in self.partition_changes]), _most(self.mode_changes_s)


def _most(times_s: list[float]) -> int:
    return max((number + 1 - bisect_left(times_s, at_s - DAY_S) for number, at_s in enumerate(times_s)), default=0)
