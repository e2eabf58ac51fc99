"""The simulated world: virtual time, replicas, a store, sinks, and the real supervisor on top.

``Supervisor.run`` is production's own loop. Here its clock is virtual, its sleep lets the world go on, and the
processes it starts are state machines; everything it decides, it decides as in production.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings, Settings
from lockstep.connect.protocols import SinkSide, SourceSide
from lockstep.control.supervisor import Supervisor, Surroundings, replica_names
from lockstep.observe import promises
from lockstep.runtime import reporting
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.protocols import Entry, Store
from tests.sim.history import History, PromiseBroken
from tests.sim.memory_store import MemoryStore
from tests.sim.pipeline import SINKS, SimSink, SimSource
from tests.sim.replica import EXIT_KILLED, Checkpoint, SimReplica
from tests.sim.scenario import Faults, Scenario, random_scenario
from tests.sim.timeline import START_US, Timeline

SETTLED_S = 5.0
"""An epoch sealed this long ago, in calm, has to be published."""
GAP_S_MAX = 4.0
"""The longest silence while a replica is up: the lag timeout (1.5 s), an epoch that a pause fell into, and the
interval that pacing then asks for (twice the slowest epoch)."""


class Blackout(BaseException):
    """Everything dies at once, the supervisor included."""


class World:
    """One seed's run."""

    def __init__(self, seed: int, scenario: Scenario, store: Any = None, timeline: Timeline | None = None) -> None:
        self.scenario = scenario
        self.settings: RunSettings = scenario.settings.model_copy(update={"replicas": scenario.replicas})
        self.draw = random.Random(seed + 1)
        self.faults = Faults(scenario, self.draw)
        self.timeline = timeline or Timeline()
        self.store: Any = store or MemoryStore(lambda: self.timeline.now_us)
        self.sources = {"clicks": SimSource("clicks", 2), "sensors": SimSource("sensors", 1, scenario.quiet_s)}
        self.sinks = {name: SimSink(name) for name in SINKS}
        self.history = History(self.timeline, self.sources, self.settings)
        self.checkpoints: dict[str, Checkpoint] = {}
        self.processes: list[SimReplica] = []
        self._stops_s = sorted(scenario.stops_s)
        self._blackout = False
        self._done = False
        self._last: list[SimReplica] = []
        """Who was up when the job was stopped for the last time."""
        self._supervisor: Supervisor | None = None
        self._plan()

    def run(self) -> None:
        """From the first start to the last stop. Raises :class:`PromiseBroken` at the first broken promise."""
        with self._virtual_time():
            while not self._done:
                self._supervise()
        self.history.check([f"stopping: {one.holder} had to be killed" for one in self._last if one.exit_code()])
        self.history.check_all(list(self.sinks.values()), settled_s=SETTLED_S, gap_s_max=GAP_S_MAX)

    @property
    def head(self) -> int:
        """The newest epoch ever sealed."""
        return max(self.history.entries, default=-1)

    def live(self) -> list[SimReplica]:
        """The processes that the supervisor counts on."""
        return [one for one in self.processes if one.alive and not one.zombie]

    def process(self, name: str) -> SimReplica | None:
        """The live process of a replica."""
        return next((one for one in self.live() if one.name == name), None)

    # What replicas ask of the world.

    def sealed(self, entry: Entry, by: SimReplica) -> None:
        """An entry is in the ledger: check it, and wake those who wait for it."""
        lag_us = self.settings.lag_timeout_s * US_PER_S
        running = {
            one.name: one.at.epoch
            for one in self.live()
            if one.said == "running" and self.timeline.now_us - one.at.moved_us < lag_us
        }
        self.history.sealed(entry, by=str(by.holder), is_live=not by.zombie, running=running)
        for one in self.processes:
            one.wake(entry.epoch)

    def boot_s(self, name: str) -> float:
        """How long the JVM of a replica takes to come up."""
        first = sum(one.name == name for one in self.processes) == 1
        return self.draw.uniform(*self.scenario.boot_s) + (self.scenario.late_s.get(name, 0.0) if first else 0.0)

    def epoch_s(self, name: str) -> float:
        """How long a replica computes an epoch."""
        return self.draw.uniform(0.05, 0.2) * self.scenario.slowness[int(name[1:])]

    def may_be_damaged(self, name: str) -> bool:
        """Whether a checkpoint may be lost: not the last one that can carry the job on."""
        floor = self.store.floor()
        others = [one for other, one in self.checkpoints.items() if other != name]
        return floor == 0 or any(one.sound and one.epoch >= floor for one in others)

    # How it goes.

    def _plan(self) -> None:
        self.timeline.after(self.scenario.faults_s, self._calm_down)
        for at_s in self.scenario.blackouts_s:
            self.timeline.after(at_s, self._black_out)
        for at_s in self.scenario.corrupted_s:
            self.timeline.after(at_s, self._corrupt)

    def _calm_down(self) -> None:
        self.history.note("world", "no more faults")
        self.faults.active = False
        for one in self.processes:
            one.move_again()

    def _black_out(self) -> None:
        self.history.note("world", "blackout")
        self._blackout = True

    def _corrupt(self) -> None:
        """Hit one replica that is up, whichever the seed says."""
        candidates = [one for one in self.live() if one.said == "running" and not one.is_still]
        if not candidates:
            self.timeline.after(0.5, self._corrupt)
            return
        self.history.damage_is_expected = True
        self.draw.choice(candidates).hit()

    def _supervise(self) -> None:
        settings = Settings(run=self.settings)
        template = ReplicaSpec("project", "store", "sim", "job.py", "", "", "auto", {})
        self._supervisor = Supervisor(
            cast("Store", self.store),
            template,
            settings,
            cast("dict[str, SourceSide]", self.sources),
            cast("dict[str, SinkSide]", self.sinks),
            "supervisor",
            around=Surroundings(
                now_us=lambda: self.timeline.now_us,
                elapsed_s=lambda: self.timeline.elapsed_s,
                sleep=self._sleep,
                start=self._spawn,
            ),
        )
        try:
            self._supervisor.run(self._on_tick)
        except Blackout:
            self._blackout = False
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _on_tick(self) -> None:
        assert self._supervisor is not None
        if self._supervisor.stops:
            return
        if self._stops_s and self.timeline.elapsed_s >= self._stops_s[0]:
            self._stops_s.pop(0)
            self.history.note("world", "stop and start again")
            self._supervisor.stop()
        elif self.timeline.elapsed_s >= self.scenario.total_s and self._is_recovered():
            self._done, self._last = True, self.live()
            self._supervisor.stop()

    def _is_recovered(self) -> bool:
        """Once faults have stopped: whether everyone is back within the lead; not for ever, and the head moves."""
        running = {one.name: one.at.epoch for one in self.live() if one.said == "running"}
        sealed_s = (self.timeline.now_us - self.history.sealed_us.get(self.head, START_US)) / US_PER_S
        if sealed_s > SETTLED_S:
            self.history.check([f"progress: nothing was sealed for {sealed_s:.1f} s"])
        if len(running) == self.scenario.replicas:
            self.history.check(promises.readiness(running, self.head, self.settings.lead_epochs_max))
            return True
        limit_s = self.scenario.recovery_s_max
        if self.timeline.elapsed_s > self.scenario.faults_s + limit_s:
            away = [name for name in replica_names(self.scenario.replicas) if name not in running]
            self.history.check([f"progress: {name} did not come back within {limit_s:.0f} s" for name in away])
        return False

    def _sleep(self, seconds: float) -> None:
        self.timeline.pass_by(seconds)
        if self._blackout and self._supervisor is not None:
            for one in self.processes:
                if one.alive:
                    one.exit(EXIT_KILLED)
            # Whoever is killed does not clear up.
            self._supervisor._kill_all = lambda: None  # type: ignore[method-assign]
            raise Blackout

    def _spawn(self, spec: ReplicaSpec, *, gently: bool = False) -> SimReplica:
        process = SimReplica(self, spec, gently=gently, pid=len(self.processes) + 1)
        self.processes.append(process)
        return process

    @contextmanager
    def _virtual_time(self) -> Iterator[None]:
        def now_us() -> int:
            return self.timeline.now_us

        with mock.patch.object(reporting, "wall_us", now_us):
            yield


def run_seed(seed: int, scenario: Scenario | None = None, store: Any = None, timeline: Timeline | None = None) -> World:
    """Run one seed, of a given scenario or of its own; a broken promise names the seed and how to run it again."""
    world = World(seed, scenario or random_scenario(seed), store, timeline)
    try:
        world.run()
    except PromiseBroken as broken:
        again = f"; again: LOCKSTEP_SIM_SEED={seed} .venv/bin/python -m pytest tests/sim -k no_seed_breaks"
        raise PromiseBroken(f"{broken}\n\nseed {seed}{'' if scenario else again}") from None
    return world
