"""Warm spares: processes that have booted everything, so that a replica that died is back in seconds.

A spare boots in the processor's idle time while all is calm, warms up, and waits. Whoever starts a replica takes one
that fits, and the next one is ordered when all is calm again. One process boots at a time: a replica that is needed, or
else a spare. The decisions are pure functions; :class:`Spares` acts on them, in production and in the simulator:
what a process is, :class:`Processes` knows (``agents.py``, ``sim/child_processes.py``).
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from lockstep.agent.client import AgentSilent
from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.config import Settings, is_local
from lockstep.control.status.overview import SPARES
from lockstep.control.supervise.surroundings import Process
from lockstep.errors import StoreError
from lockstep.runtime.decide.last_seen import LastSeen
from lockstep.runtime.decide.pacing import is_live
from lockstep.runtime.spec import ReplicaSpec, replica_names
from lockstep.store.protocols import Progress, Store

FAILURES_MAX = 3
"""Spares in a row that ended by themselves before no more are ordered: what ends them will show in a replica too."""
FORGOTTEN_S = 60.0
"""A replica that has been gone for so long is not waited for: it was given up."""
MEMORY_FACTOR = 3
"""So many times a driver's memory has to be free: a spare takes it once, and it must not be the last."""


@dataclass(frozen=True)
class Times:
    """How long what takes; everything is shorter in the simulator."""

    calm_s: float = 5.0
    """All replicas have run for so long before a spare is booted beside them."""
    look_interval_s: float = 1.0
    failure_pause_s: float = 60.0
    """After one that ended by itself."""
    trouble_pause_s: float = 10.0
    """After trouble with the store or the disk."""
    slowness: float = 4.0
    """A spare boots in a quarter of the time (``runtime/spark/duty_cycle.py``): that it takes so many times as long as
    a replica may is no sign that it hangs."""


TIMES = Times()


@dataclass(frozen=True)
class Shape:
    """What a process is started with and cannot change: a spare is of use for replicas of its own shape only."""

    spark: Mapping[str, Any]
    environment: Mapping[str, str]
    prefix: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As it is noted beside a spare.

        >>> shape = Shape({"master": "local[1]"}, {}, ("ip", "netns"))
        >>> Shape.from_json(json.loads(json.dumps(shape.to_json()))) == shape
        True
        """
        return asdict(self)

    @staticmethod
    def from_json(noted: Mapping[str, Any]) -> Shape:
        """As it was noted."""
        return Shape(noted["spark"], noted["environment"], tuple(noted["prefix"]))


@dataclass(frozen=True)
class Situation:
    """What is known when a spare might be ordered."""

    spares: int
    """How many there are, booting or waiting."""
    wanted: int
    calm_s: float
    failures: int
    """How many in a row ended by themselves, the last of them so long ago:"""
    failed_ago_s: float
    memory_free_bytes: int
    driver_memory_bytes: int


def may_order(situation: Situation, times: Times = TIMES) -> bool:
    """Whether to boot another spare now.

    >>> calm = Situation(0, wanted=1, calm_s=60, failures=0, failed_ago_s=0, memory_free_bytes=8, driver_memory_bytes=1)
    >>> may_order(calm), may_order(replace(calm, spares=1)), may_order(replace(calm, memory_free_bytes=2))
    (True, False, False)
    """
    rested = situation.failures == 0 or situation.failed_ago_s >= times.failure_pause_s
    return (
        situation.spares < situation.wanted
        and situation.calm_s >= times.calm_s
        and situation.failures < FAILURES_MAX
        and rested
        and situation.memory_free_bytes >= MEMORY_FACTOR * situation.driver_memory_bytes
    )


def is_calm(progress: Sequence[Progress], processes: Mapping[str, str], now_us: int) -> bool:
    """Whether every replica that is expected to run does, and none is on its way; ``processes`` are those that live.

    What a process said that has ended since is not believed: the store may not have been told yet. One that is new to
    the job has said nothing yet.
    """
    expected = [one for one in progress if not _forgotten(one, now_us)]
    have_spoken = processes.keys() <= {one.replica for one in progress}
    return (
        bool(expected)
        and have_spoken
        and all(
            one.state == "running" and is_live(one, now_us) and processes.get(one.replica) == one.process
            for one in expected
        )
    )


def _forgotten(one: Progress, now_us: int) -> bool:
    return one.state in ("failed", "stopped") and now_us - one.updated_us > FORGOTTEN_S * US_PER_S


def replica_to_shape(shapes: Mapping[str, Shape], ordered: int) -> str:
    """The replica whose shape the next spare gets: the commonest shape, and where all are equally common, in turn.

    >>> plain, large = Shape({"master": "local[1]"}, {}, ()), Shape({"master": "local[4]"}, {}, ())
    >>> replica_to_shape({"r0": large, "r1": plain, "r2": plain}, ordered=0)
    'r1'
    >>> [replica_to_shape({"r0": large, "r1": plain}, ordered) for ordered in range(3)]
    ['r0', 'r1', 'r0']
    """
    count = Counter(next(other for other in shapes if shapes[other] == shape) for shape in shapes.values())
    commonest = [name for name, times in count.items() if times == max(count.values())]
    return commonest[ordered % len(commonest)]


def memory_bytes(text: str) -> int:
    """What Spark means by a size; one that it would not understand is nothing.

    >>> memory_bytes("1g"), memory_bytes("512m")
    (1073741824, 536870912)
    """
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    return int(match.group(1)) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match.group(2)] if match else 0


def useful_spares(settings: Settings) -> int:
    """How many spares a run has: none where they would hold executors, or where nobody waits for what comes next."""
    sparks = (settings.spark, *map(settings.spark_of, settings.replica))
    all_local = all(is_local(spark.master) for spark in sparks)
    return settings.run.spares if all_local and not settings.run.ends_by_itself else 0


class Spare(Process, Protocol):
    """A process that boots or waits, and the replica that it becomes."""

    @property
    def host(self) -> str:
        """Where it lives; empty if the job lives on one host."""

    @property
    def is_ready(self) -> bool:
        """Whether it has booted and is warm."""

    @property
    def last_words(self) -> str:
        """Why it ended, if it did."""

    def become(self, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell it which replica it is; whether it was there to listen."""


class Processes(Protocol):
    """How processes come to be: on this machine, or in a simulation. A spare is a process too."""

    def shape(self, spec: ReplicaSpec) -> Shape:
        """What the process of a replica is started with."""

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Process:
        """A new process for a replica."""

    def spare(self, spec: ReplicaSpec, shape: Shape) -> Spare:
        """A new spare, of the shape of this replica."""

    def may_become(self, spare: Spare, replica: str) -> bool:
        """Whether a replica may live where this spare does."""

    def memory_free_bytes(self) -> int:
        """What could be had now."""


@dataclass(frozen=True)
class Waiting:
    """A spare that boots or waits to be needed."""

    spare: Spare
    shape: Shape
    likeness: str
    """Of what it was started with: code and settings that it has loaded."""
    ordered_s: float

    @property
    def is_booting(self) -> bool:
        """Whether it lives and is not ready."""
        return not self.spare.is_ready and self.spare.exit_code() is None


class Spares:
    """Starts replicas, from a spare where one fits; sees to it that there are spares."""

    def __init__(
        self,
        store: Store,
        template: ReplicaSpec,
        settings: Settings,
        names: Sequence[str],
        processes: Processes,
        elapsed_s: Callable[[], float] = time.monotonic,
        now_us: Clock = wall_us,
        times: Times = TIMES,
    ) -> None:
        self._processes = processes
        self._times = times
        self._elapsed_s = elapsed_s
        self._now_us = now_us
        self._store = store
        self._template = template
        self._settings = settings
        self._names = tuple(names)
        self._started: dict[str, Process] = {}
        self._waiting: list[Waiting] = []
        self._unended: list[Spare] = []
        """Those that are not wanted any more, and whose agent did not answer when they were to be ended."""
        self._told: dict[str, bool] = {}
        self._ordered = 0
        self._failures = 0
        self._failed_s = 0.0
        self._next_look_s = 0.0
        self._calm_since_s: float | None = None
        self._last_seen = LastSeen()

    def adopt(self, started: Mapping[str, Process], waiting: Sequence[tuple[Spare, Shape]]) -> None:
        """Go on with the replicas and the spares that run already: what would be started."""
        self._started |= started
        likeness, now_s = self._template.likeness, self._elapsed_s()
        self._waiting += [Waiting(spare, shape, likeness, now_s) for spare, shape in waiting]

    def follow(self, template: ReplicaSpec, settings: Settings) -> None:
        """The job has changed: spares of what it was are of no use any more."""
        self._template, self._settings = template, settings
        self._names = tuple(replica_names(settings.run.replicas))
        for one in [one for one in self._waiting if one.likeness != template.likeness]:
            self._end(self._take(one))

    def __call__(self, spec: ReplicaSpec, *, gently: bool) -> Process:
        """Start a replica."""
        self._calm_since_s = None
        started = self._from_spare(spec, gently=gently)
        for one in [one for one in self._waiting if one.is_booting]:
            # One boot at a time, and a spare's never while a replica is missing. The next is ordered when all is calm.
            self._end(self._take(one))
        process = started or self._processes.replica(spec, gently=gently)
        self._started[spec.replica] = process
        return process

    def _from_spare(self, spec: ReplicaSpec, *, gently: bool) -> Spare | None:
        shape, likeness = self._processes.shape(spec), spec.likeness
        # One that still boots is further than a new process would be.
        for one in sorted(self._waiting, key=lambda one: not one.spare.is_ready):
            if (one.shape, one.likeness) != (shape, likeness) or one.spare.exit_code() is not None:
                continue
            if spec.host and one.spare.host != spec.host:
                continue
            if not self._processes.may_become(one.spare, spec.replica):
                continue
            spare = self._take(one)
            if self._handed_over(spare, spec, gently=gently):
                return spare
        return None

    def _take(self, one: Waiting) -> Spare:
        """From now on it is not one of those that wait."""
        self._waiting.remove(one)
        return one.spare

    def _handed_over(self, spare: Spare, spec: ReplicaSpec, *, gently: bool) -> bool:
        taken = False
        try:
            taken = spare.become(spec, gently=gently)
        finally:
            if not taken:
                self._end(spare)
        return taken

    def _end(self, spare: Spare) -> None:
        """End it, now or when its agent answers: nobody else would, it counts as known."""
        try:
            spare.kill()
        except AgentSilent:
            self._unended.append(spare)

    def tend(self, *, orders: bool = True) -> None:
        """Look after the spares and those on their way, and order what is missing; called several times a second."""
        now_s = self._elapsed_s()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self._times.look_interval_s
        try:
            self._look(now_s, orders=orders)
        except (StoreError, AgentSilent, OSError):
            # A spare saves seconds; trouble with store, agent or disk is told by those who need them.
            self._next_look_s = now_s + self._times.trouble_pause_s

    def close(self) -> None:
        """End all spares. Those that have become replicas are the supervisor's."""
        for spare in [*self._unended, *(self._take(one) for one in list(self._waiting))]:
            # An agent that does not hear it ends them itself, as nobody talks to it any more.
            with suppress(AgentSilent):
                spare.kill()

    def _look(self, now_s: float, *, orders: bool) -> None:
        unended, self._unended = self._unended, []
        for spare in unended:
            self._end(spare)
        for one in list(self._waiting):
            if (code := one.spare.exit_code()) is not None:
                self._drop(one, f"exit code {code}", now_s)
            elif one.is_booting and now_s - one.ordered_s > self._times.slowness * self._settings.run.start_timeout_s:
                # It would be preferred to a new process for ever, and no other would be ordered in its place.
                self._drop(one, f"not ready after {now_s - one.ordered_s:.0f} s", now_s)
        self._tell()
        if not orders or not self._is_calm():
            self._calm_since_s = None
        elif self._calm_since_s is None:
            self._calm_since_s = now_s
        elif may_order(self._situation(now_s), self._times):
            self._order(now_s)

    def _is_calm(self) -> bool:
        living = {name: process.handle for name, process in self._started.items() if process.exit_code() is None}
        # By when words changed, as it was seen from here: clocks of hosts differ.
        words = self._last_seen.aged(self._store.progress(), self._now_us(), self._elapsed_s())
        return is_calm(words, living, self._now_us())

    def _drop(self, one: Waiting, why: str, now_s: float) -> None:
        spare = self._take(one)
        self._failures, self._failed_s = self._failures + 1, now_s
        told = f"{spare.where}, {why}: {spare.last_words}"
        self._end(spare)
        more = "; no more are ordered" if self._failures >= FAILURES_MAX else ""
        self._store.add_event("spare-ended", f"{told}{more}")

    def _tell(self) -> None:
        """Let people and `lockstep status` know, if something has changed."""
        there = {one.spare.handle: one.spare.is_ready for one in self._waiting}
        if there == self._told:
            return
        for one in self._waiting:
            if one.spare.is_ready and not self._told.get(one.spare.handle):
                self._failures = 0
                self._store.add_event("spare-ready", one.spare.where)
        waiting = [{"pid": one.spare.pid, "ready": one.spare.is_ready, "host": one.spare.host} for one in self._waiting]
        self._store.set_fact(SPARES, json.dumps(waiting))
        self._told = there

    def _situation(self, now_s: float) -> Situation:
        return Situation(
            spares=len(self._waiting),
            wanted=useful_spares(self._settings),
            calm_s=now_s - (self._calm_since_s or now_s),
            failures=self._failures,
            failed_ago_s=now_s - self._failed_s,
            memory_free_bytes=self._processes.memory_free_bytes(),
            driver_memory_bytes=memory_bytes(self._settings.spark.driver_memory),
        )

    def _order(self, now_s: float) -> None:
        shapes = {name: self._processes.shape(replace(self._template, replica=name)) for name in self._names}
        replica = replica_to_shape(shapes, self._ordered)
        self._ordered += 1
        spare = self._processes.spare(replace(self._template, replica=replica), shapes[replica])
        self._waiting.append(Waiting(spare, shapes[replica], self._template.likeness, now_s))
