"""Running many seeds, on several cores, until one breaks a promise."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from lockstep.runtime.spark.boot import end_with_parent
from lockstep.sim.one_seed import Failure, try_seed
from lockstep.sim.planted_bugs import bug_named
from lockstep.sim.planting import Bug
from lockstep.sim.scenario import Scenario, random_hosts_scenario, random_scenario, with_operations
from lockstep.sim.shrinking import shrink
from lockstep.sim.world import World

CHUNK = 25
"""Seeds that a process is given at once: about half a second of work."""
_AHEAD = 3
"""Chunks waiting per process: enough to keep it busy, few enough to stop soon."""
T = TypeVar("T")


@dataclass(frozen=True)
class Wish:
    """What to run besides the seed: a bug to plant, and what differs from the seed's own scenario."""

    bug: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    hosts: int = 0
    """On how many hosts; 0: hosts are not simulated, unless the bug needs them."""
    operations: bool = False
    """Whether somebody changes the job meanwhile."""

    def scenario(self, seed: int) -> Scenario:
        """The scenario of a seed.

        >>> Wish(changes={"replicas": 3}).scenario(4711).replicas
        3
        """
        return replace(self.base(seed), **self.changes)

    def base(self, seed: int) -> Scenario:
        """The scenario before the changes: the seed's own, or the one in which the bug shows."""
        planted = self.planted
        scenario = planted.scenario if planted is not None else None
        drawn = partial(with_operations, seed) if self.operations else lambda one: one
        if not self.hosts:
            return scenario or drawn(random_scenario(seed))
        on_hosts = scenario if scenario is not None and scenario.hosts else None
        if planted is not None and planted.on_hosts is not None:
            on_hosts = planted.on_hosts
        return replace(on_hosts, hosts=self.hosts) if on_hosts else drawn(random_hosts_scenario(seed, self.hosts))

    @property
    def planted(self) -> Bug | None:
        """The bug that is planted, if any."""
        return bug_named(self.bug) if self.bug else None

    def run(self, seed: int, *, whole: bool = False) -> Failure | World:
        """Run one seed."""
        planted = self.planted
        with planted.plant() if planted is not None else nullcontext():
            return try_seed(seed, self.scenario(seed), whole=whole)

    def shrink(self, failure: Failure, on_smaller: Callable[[Failure], None]) -> Failure:
        """The smallest scenario in which the same promise breaks."""
        planted = self.planted
        with planted.plant() if planted is not None else nullcontext():
            return shrink(failure, on_smaller)


def explore(wish: Wish, first: int, count: int, jobs: int) -> Iterator[tuple[int, Failure | None]]:
    """After each piece of work: how many seeds were run so far, and the first failure, which ends it."""
    chunks = [(start, min(CHUNK, first + count - start)) for start in range(first, first + count, CHUNK)]
    done = 0
    answers = in_processes(partial(run_chunk, wish), chunks, jobs)
    for ran, failure in answers:
        done += ran
        yield done, failure
        if failure is not None:
            return


def run_chunk(wish: Wish, first: int, count: int) -> tuple[int, Failure | None]:
    """Run some seeds; how many, and the failure at which it stopped.

    >>> run_chunk(Wish(), 0, 3)
    (3, None)
    """
    for ran, seed in enumerate(range(first, first + count), start=1):
        found = wish.run(seed)
        if isinstance(found, Failure):
            return ran, found
    return count, None


def in_processes(work: Callable[[int, int], T], chunks: Iterable[tuple[int, int]], jobs: int) -> Iterator[T]:
    """In the order of the seeds, so that the first failing one is found and not just any."""
    if jobs == 1:
        yield from (work(*chunk) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_belong_to_the_parent)
    waiting: deque[Future[T]] = deque()
    todo = iter(chunks)
    try:
        while True:
            while len(waiting) < jobs * _AHEAD and (chunk := next(todo, None)) is not None:
                waiting.append(pool.submit(work, *chunk))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _belong_to_the_parent() -> None:
    """Leave Ctrl-C to it, and do not outlive it."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
