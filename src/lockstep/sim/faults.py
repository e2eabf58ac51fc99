"""Draws what goes wrong with replicas, step by step, while faults are on."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

from lockstep.sim.scenario import Scenario

Fault = Literal["crash", "hang", "pause", "slow", "hold"]
When = Literal["before", "in the midst of", "after"]

_NEVER = 1 << 60
LOCKED_SHARE = 0.2
"""The share of writes that fail while somebody has the store locked now and then."""


@dataclass(frozen=True)
class Strike:
    """A fault at a durable step of a replica."""

    fault: Fault
    when: When
    still_s: float = 0.0


class Faults:
    """One seed's bad luck."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        # A stream of its own: what is drawn for delays does not move the faults about.
        self._draw = random.Random(f"faults of {seed}")  # noqa: S311 (a seed is the point)
        self._chances: tuple[tuple[Fault, float], ...] = (
            ("crash", scenario.crash_chance),
            ("hang", scenario.hang_chance),
            ("pause", scenario.pause_chance),
            ("slow", scenario.slow_chance),
            ("hold", scenario.hold_chance),
        )
        self._chance = sum(chance for _, chance in self._chances)
        self._steps_left = self._next_after()
        self.struck = 0
        """How many faults were drawn so far."""
        self.active = True

    def strike(self, replica: str) -> Strike | None:
        """What happens to ``replica`` at a durable step; mostly nothing."""
        self._steps_left -= 1
        if self._steps_left > 0:
            return None
        self._steps_left = self._next_after()
        strike = self._drawn()
        number, self.struck = self.struck, self.struck + 1
        spared = number in self._scenario.spared or number >= self._scenario.strikes_max
        return None if spared or not self.active or replica not in self._scenario.faulty else strike

    def _next_after(self) -> int:
        """In how many steps the next fault strikes: one draw instead of one for each step."""
        if self._chance <= 0:
            return _NEVER
        return 1 + int(math.log(1.0 - self._draw.random()) / math.log(1.0 - self._chance))

    def _drawn(self) -> Strike:
        (fault,) = self._draw.choices(
            [fault for fault, _ in self._chances], [chance for _, chance in self._chances], k=1
        )
        if fault == "crash":
            torn = self._draw.random() < self._scenario.tear_chance
            return Strike(fault, "in the midst of" if torn else self._draw.choice(("before", "after")))
        # A hang lasts mostly beyond the hang timeout, a pause and a slow write well within it; the store's lock is held
        # mostly beyond the lag timeout, and beyond what is excused.
        longest = {"hang": (1.0, 6.0), "pause": (0.1, 0.8), "slow": (0.1, 1.0), "hold": (0.5, 12.0)}[fault]
        inside = fault in ("slow", "hold")
        when: When = "in the midst of" if inside else self._draw.choice(("before", "after"))
        return Strike(fault, when, self._draw.uniform(*longest))

    def damages(self) -> bool:
        """Whether a torn write leaves something damaged rather than nothing."""
        return self.active and self._draw.random() < 0.5

    def kill_misses(self) -> bool:
        """Whether a kill does not reach a replica that hangs."""
        return self.active and self._draw.random() < self._scenario.zombie_chance

    def disk_refuses(self, now_s: float) -> str:
        """The error that a write meets now, "" if none."""
        scenario = self._scenario
        if any(start <= now_s < end for start, end in scenario.disk_full_s):
            return "LS0404"
        locked = any(start <= now_s < end for start, end in scenario.disk_locked_s)
        return "LS0413" if locked and self._draw.random() < LOCKED_SHARE else ""
