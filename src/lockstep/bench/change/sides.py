"""What each side of the bench does and answers: changes under load, and how a reader of its output saw them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from lockstep.bench.change.totals import TotalsCheck
from lockstep.bench.gaps import Disturbance, SeenEpoch, disturbance
from lockstep.bench.workspace import Say
from lockstep.clock import US_PER_S, wall_us

RATE = 1000.0
TAIL_S = 3.0
"""How long after a change its gaps still count: the last old process ends then."""


@dataclass(frozen=True)
class Change:
    """One change of a running job: another number of partitions, or (None) new code with the same results."""

    title: str
    partitions: int | None = None


@dataclass(frozen=True)
class Plan:
    """What is changed, and how long the job is left alone before each change."""

    changes: Sequence[Change]
    warm_up_s: float
    before_s: float


NEW_CODE = Change("new code")
FULL = Plan(
    (Change("1 to 2 partitions", 2), Change("2 to 4 partitions", 4), Change("4 to 1 partition", 1), NEW_CODE),
    warm_up_s=30.0,
    before_s=15.0,
)
QUICK = Plan((Change("1 to 2 partitions", 2), NEW_CODE), warm_up_s=10.0, before_s=8.0)

Steps = Mapping[str, float]
"""Seconds of each step of a change, in their order."""


@dataclass(frozen=True)
class Changed:
    """One change and what was seen of it."""

    change: Change
    gaps: Disturbance
    took_s: float
    steps: Steps
    free_cores_before: float
    free_cores_during: float


@dataclass(frozen=True)
class Outcome:
    """Everything that one side showed."""

    side: str
    changed: Sequence[Changed]
    check: TotalsCheck
    different_digests: int | None = None
    """None where nobody computes digests."""
    compared_epochs: int | None = None
    notes: Sequence[str] = field(default_factory=tuple)


class Side(Protocol):
    """Runs the job one way, carries the changes out, and checks what came out."""

    def __call__(self, folder: Path, say: Say, plan: Plan) -> Outcome:
        """Measure in a folder of its own."""


class Watching:
    """The clock of one side: lets time pass, and measures around each change."""

    def __init__(self, side: str, say: Say, plan: Plan, seen: Callable[[], list[SeenEpoch]]) -> None:
        self._side, self._say, self._plan, self._seen = side, say, plan, seen
        self.look: Callable[[], None] = lambda: None
        """Called four times a second: raises if something ended that should not."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            self.look()
            time.sleep(min(left_s, 0.25))

    def around(self, change: Change, act: Callable[[], Steps]) -> Changed:
        """Watch the job for a while, change it, and see what a reader noticed."""
        before = _Idle()
        self.wait(self._plan.before_s)
        free_before = before.cores()
        at_us, during = wall_us(), _Idle()
        steps = act()
        ended_us, free_during = wall_us(), during.cores()
        self.wait(TAIL_S)
        seen_s = (wall_us() - at_us) / US_PER_S
        gaps = disturbance(self._seen(), at_us, self._plan.before_s, seen_s)
        found = Changed(change, gaps, (ended_us - at_us) / US_PER_S, steps, free_before, free_during)
        self._say(
            f"{self._side}, {change.title}: {found.took_s:.1f} s, gap p99 {gaps.before_p99_s:.2f} s before, longest "
            f"{gaps.after_max_s:.2f} s during ({gaps.ratio:.1f}x); "
            + ", ".join(f"{name} {took_s:.1f} s" for name, took_s in steps.items())
        )
        return found


class _Idle:
    """How many cores nobody used since it was made."""

    def __init__(self) -> None:
        self._begun_s, self._idle_s = time.monotonic(), psutil.cpu_times().idle

    def cores(self) -> float:
        took_s = time.monotonic() - self._begun_s
        return min(float(os.cpu_count() or 1), float(psutil.cpu_times().idle - self._idle_s) / took_s)
