"""Warm spares: processes that have booted everything, so that a replica that died is back in seconds.

A spare boots in the processor's idle time while all is calm, warms up, and waits. Whoever starts a replica takes one
that fits, and the next one is ordered when all is calm again. One process boots at a time: a replica that is needed, or
else a spare. The decisions are pure functions; :class:`Spares` is the shell around them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.config import Settings
from lockstep.control.overview import SPARES
from lockstep.control.processes import (
    Group,
    ReplicaProcess,
    announced,
    opened_log,
    with_jvm,
)
from lockstep.control.shares import STARVED_LOOK_S, Demand, first_share, next_share
from lockstep.errors import StoreError
from lockstep.faults.switch import command_prefix, replica_environment
from lockstep.runtime.decide.pacing import is_live
from lockstep.runtime.orders import BE
from lockstep.runtime.spare import READY
from lockstep.runtime.spec import ReplicaSpec, job_folder
from lockstep.store.protocols import Progress, Store

CALM_S = 5.0
"""All replicas have run for so long before a spare is booted beside them."""
LOOK_INTERVAL_S = 1.0
FAILURES_MAX = 3
"""Spares in a row that ended by themselves before no more are ordered: what ends them will show in a replica too."""
FAILURE_PAUSE_S = 60.0
TROUBLE_PAUSE_S = 10.0
FORGOTTEN_S = 60.0
"""A replica that has been gone for so long is not waited for: it was given up."""
MEMORY_FACTOR = 3
"""So many times a driver's memory has to be free: a spare takes it once, and it must not be the last."""
SLOWNESS = 4
"""A spare boots in a quarter of the time (``runtime/spark/duty_cycle.py``): so many times as long is no sign that it
hangs."""
FOLDER = "spares"


@dataclass(frozen=True)
class Shape:
    """What a process is started with and cannot change: a spare is of use for replicas of its own shape only."""

    spark: Mapping[str, Any]
    environment: Mapping[str, str]
    prefix: tuple[str, ...]


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


def may_order(situation: Situation) -> bool:
    """Whether to boot another spare now.

    >>> calm = Situation(0, wanted=1, calm_s=60, failures=0, failed_ago_s=0, memory_free_bytes=8, driver_memory_bytes=1)
    >>> may_order(calm), may_order(replace(calm, spares=1)), may_order(replace(calm, memory_free_bytes=2))
    (True, False, False)
    """
    rested = situation.failures == 0 or situation.failed_ago_s >= FAILURE_PAUSE_S
    return (
        situation.spares < situation.wanted
        and situation.calm_s >= CALM_S
        and situation.failures < FAILURES_MAX
        and rested
        and situation.memory_free_bytes >= MEMORY_FACTOR * situation.driver_memory_bytes
    )


def is_calm(progress: Sequence[Progress], now_us: int) -> bool:
    """Whether every replica that is expected to run does, and none is on its way."""
    expected = [one for one in progress if not _forgotten(one, now_us)]
    return bool(expected) and all(one.state == "running" and is_live(one, now_us) for one in expected)


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
    is_local = settings.spark.master.startswith("local")
    return settings.run.spares if is_local and not settings.run.until_done else 0


class SpareProcess(Group):
    """A spare, and the replica that it becomes."""

    def __init__(self, spec: ReplicaSpec, shape: Shape, folder: Path, ordered_s: float) -> None:
        folder.mkdir(parents=True)
        path = folder / "spec.json"
        with_jvm(spec).write(path)
        self.shape = shape
        self.ordered_s = ordered_s
        self._folder = folder
        self._gathered_bytes = 0
        self._replica_log: Path | None = None
        log = opened_log(folder / "log.txt")
        self._boot_share = spec.parsed_settings().run.boot_share
        super().__init__("spare", spec, path, log, first_share(self._boot_share, spare=True, others_publish=True))

    @property
    def is_ready(self) -> bool:
        """Whether it has booted and is warm."""
        return (self._folder / READY).exists()

    @property
    def is_spare(self) -> bool:
        """Whether it has not been told yet which replica it is."""
        return self._replica_log is None

    @property
    def is_waiting(self) -> bool:
        """Whether it has nothing to do until it is told which replica it is."""
        return self.is_ready and self.is_spare

    def become(self, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell it which replica it is; whether it was there to listen."""
        path = announced(spec)
        share = first_share(self._boot_share, spare=False, others_publish=gently)
        # One that found no idle time while it booted need not look for it again.
        self.set_share(self.share if (self.share, share) == ("gentle", "idle") else share)
        self._replica_log = spec.folder / "log.txt"
        self._gather()
        return self.say(f"{BE} {path}")

    def kill(self) -> None:
        """End it and leave nothing but what its JVM wrote, in the replica's log."""
        super().kill()
        try:
            self._gather()
        except OSError as error:
            # The disk may be full, and whoever ends a process has others to see to.
            print(f"the log of {self.pid} is not whole: {error}", file=sys.stderr)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def last_words(self) -> str:
        """The last line of its own log: why it ended, if it did."""
        path = self._folder / "log.txt"
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")[:300]

    def _gather(self) -> None:
        """Add to the replica's log what this process has written to its own since the last time."""
        path = self._folder / "log.txt"
        if self._replica_log is None or not path.exists():
            return
        with path.open("rb") as own, opened_log(self._replica_log) as log:
            own.seek(self._gathered_bytes)
            shutil.copyfileobj(own, log)
            self._gathered_bytes = own.tell()


@dataclass(frozen=True)
class _Booting:
    """A process on its way, and what it had used and wanted of the processor at the last look."""

    group: Group
    looked_s: float
    demand: Demand

    def looked_at(self, now_s: float) -> _Booting | None:
        """See whether it starves; None when there is nothing to look for any more."""
        if self.group.is_waiting or self.group.share == "full" or self.group.exit_code() is not None:
            return None
        span_s = now_s - self.looked_s
        if span_s < STARVED_LOOK_S:
            return self
        demand = self.group.demand()
        used = demand.since(self.demand)
        if (share := next_share(self.group.share, used, span_s, spare=self.group.is_spare)) != self.group.share:
            self.group.set_share(share)
        return replace(self, looked_s=now_s, demand=demand)


class Spares:
    """Starts replicas, from a spare where one fits; sees to it that there are spares."""

    def __init__(
        self,
        store: Store,
        template: ReplicaSpec,
        settings: Settings,
        names: Sequence[str],
        elapsed_s: Callable[[], float] = time.monotonic,
        now_us: Clock = wall_us,
    ) -> None:
        self._elapsed_s = elapsed_s
        self._now_us = now_us
        self._store = store
        self._template = template
        self._settings = settings
        self._names = tuple(names)
        self._folder = job_folder(Path(template.store), template.job) / FOLDER
        # Of an earlier run that was killed; its processes have ended.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._waiting: list[SpareProcess] = []
        self._booting: list[_Booting] = []
        self._told: dict[int, bool] = {}
        self._ordered = 0
        self._failures = 0
        self._failed_s = 0.0
        self._next_look_s = 0.0
        self._calm_since_s: float | None = None

    def __call__(self, spec: ReplicaSpec, *, gently: bool) -> Group:
        """Start a replica."""
        self._calm_since_s = None
        started = self._from_spare(spec, gently=gently)
        for spare in [one for one in self._waiting if not one.is_ready and one.exit_code() is None]:
            # One boot at a time, and a spare's never while a replica is missing. The next is ordered when all is calm.
            self._waiting.remove(spare)
            spare.kill()
        started = started or ReplicaProcess(spec, gently=gently)
        if gently:
            self._watch(started)
        return started

    def _watch(self, group: Group) -> None:
        self._booting.append(_Booting(group, self._elapsed_s(), group.demand()))

    def _from_spare(self, spec: ReplicaSpec, *, gently: bool) -> Group | None:
        shape = self._shape(spec.replica)
        # One that still boots is further than a new process would be.
        for spare in sorted(self._waiting, key=lambda one: not one.is_ready):
            if spare.shape != shape or spare.exit_code() is not None:
                continue
            self._waiting.remove(spare)
            if self._handed_over(spare, spec, gently=gently):
                return spare
        return None

    def _handed_over(self, spare: SpareProcess, spec: ReplicaSpec, *, gently: bool) -> bool:
        taken = False
        try:
            taken = spare.become(spec, gently=gently)
        finally:
            if not taken:
                spare.kill()
        return taken

    def tend(self) -> None:
        """Look after the spares and those on their way; called several times a second."""
        now_s = self._elapsed_s()
        self._booting = [left for one in self._booting if (left := one.looked_at(now_s)) is not None]
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + LOOK_INTERVAL_S
        try:
            self._look(now_s)
        except (StoreError, OSError):
            # A spare saves seconds; trouble with the store or the disk is told by those who need them.
            self._next_look_s = now_s + TROUBLE_PAUSE_S

    def close(self) -> None:
        """End all spares. Those that have become replicas are the supervisor's."""
        while self._waiting:
            self._waiting.pop().kill()

    def _look(self, now_s: float) -> None:
        for spare in list(self._waiting):
            if (code := spare.exit_code()) is not None:
                self._drop(spare, f"exit code {code}: {spare.last_words}", now_s)
            elif not spare.is_ready and now_s - spare.ordered_s > SLOWNESS * self._settings.run.start_timeout_s:
                # It would be preferred to a new process for ever, and no other would be ordered in its place.
                self._drop(spare, f"not ready after {now_s - spare.ordered_s:.0f} s: {spare.last_words}", now_s)
        self._tell()
        if not is_calm(self._store.progress(), self._now_us()):
            self._calm_since_s = None
        elif self._calm_since_s is None:
            self._calm_since_s = now_s
        elif may_order(self._situation(now_s)):
            self._order()

    def _drop(self, spare: SpareProcess, why: str, now_s: float) -> None:
        self._waiting.remove(spare)
        self._failures, self._failed_s = self._failures + 1, now_s
        spare.kill()
        more = "; no more are ordered" if self._failures >= FAILURES_MAX else ""
        self._store.add_event("spare-ended", f"pid {spare.pid}, {why}{more}")

    def _tell(self) -> None:
        """Let people and `lockstep status` know, if something has changed."""
        there = {spare.pid: spare.is_ready for spare in self._waiting}
        if there == self._told:
            return
        for pid, is_ready in there.items():
            if is_ready and not self._told.get(pid):
                self._failures = 0
                self._store.add_event("spare-ready", f"pid {pid}")
        self._store.set_fact(SPARES, json.dumps([{"pid": pid, "ready": ready} for pid, ready in there.items()]))
        self._told = there

    def _situation(self, now_s: float) -> Situation:
        return Situation(
            spares=len(self._waiting),
            wanted=useful_spares(self._settings),
            calm_s=now_s - (self._calm_since_s or now_s),
            failures=self._failures,
            failed_ago_s=now_s - self._failed_s,
            memory_free_bytes=psutil.virtual_memory().available,
            driver_memory_bytes=memory_bytes(self._settings.spark.driver_memory),
        )

    def _order(self) -> None:
        replica = replica_to_shape({name: self._shape(name) for name in self._names}, self._ordered)
        self._ordered += 1
        spec = replace(self._template, replica=replica)
        folder = self._folder / f"{os.getpid()}-{self._ordered}"
        spare = SpareProcess(spec, self._shape(replica), folder, self._elapsed_s())
        self._waiting.append(spare)
        self._watch(spare)

    def _shape(self, replica: str) -> Shape:
        spark = self._settings.spark_of(replica).model_dump(mode="json")
        return Shape(spark, replica_environment(replica), tuple(command_prefix(replica)))
