"""The simulated world: virtual time, replicas, a store, sinks, clocks, and the real supervisor on top."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings, Settings
from lockstep.connect.protocols import Publication
from lockstep.errors import StoreError
from lockstep.observe import promises
from lockstep.runtime.desired_run import LEASE, DesiredRun, last_run, note_desired
from lockstep.runtime.spec import ReplicaSpec, replica_names
from lockstep.runtime.steering import steering
from lockstep.sim.child_processes import SimAgent
from lockstep.sim.faults import Faults
from lockstep.sim.history import History
from lockstep.sim.hosts import Disk, SimHost
from lockstep.sim.memory_store import MemoryStore
from lockstep.sim.operator import SimOperator
from lockstep.sim.pipeline import (
    INSIDE,
    SINKS,
    VERSION,
    Boundary,
    Lineage,
    Results,
    SimSink,
    SimSource,
    SimStage,
    stages_of,
)
from lockstep.sim.process import EXIT_KILLED, SimProcess
from lockstep.sim.replica import UNKNOWN_S, SimReplica
from lockstep.sim.scenario import EVERYONE, Scenario
from lockstep.sim.spare import SimSpare
from lockstep.sim.store_access import StoreAt, WriteLock
from lockstep.sim.supervising import SimSupervisor
from lockstep.sim.timeline import START_US, HostClock, Timeline
from lockstep.store.protocols import Cut, Entry, Store

SETTLED_S = 3.0
"""An epoch sealed this long ago, in calm, has to be published."""
STALLED_S = 5.0
"""While a replica is up, in calm, nobody waits longer than this for an epoch to be sealed."""
GAP_S_MAX = 4.0
"""The longest silence while a replica is up, without the time in which its writes are stuck in the disk (any number of
them may follow one another): until a lock that somebody holds is passed by, the lag timeout and a look (1.6 s); two
epochs of the slowest replica, which was one behind (0.2 s x 3 each, 1.2 s); the interval that pacing then asks for,
twice such an epoch (1.2 s)."""
SLOW_CALL_S_MAX = 0.2
"""As everything here is about ten times shorter than in production: a store that takes up to two seconds for a call."""
LOOK_S = 0.1
_SUPERVISOR = "supervisor"


class World:
    """One seed's run."""

    def __init__(
        self, seed: int, scenario: Scenario, store: Any = None, timeline: Timeline | None = None, *, whole: bool = False
    ) -> None:
        self.scenario = scenario
        self.settings: RunSettings = scenario.run_settings
        self.draw = random.Random(seed + 1)  # noqa: S311 (a seed is the point)
        self.faults = Faults(scenario, seed)
        self.timeline = timeline or Timeline()
        self._clocks = {name: HostClock(self.timeline) for name in self._clock_names()}
        self.home = SimHost("", HostClock(self.timeline))
        """Where everything is, if hosts are not simulated."""
        self._make_hosts()
        self.store: Any = store or self._new_store()
        both = scenario.silence_s
        self.sources: dict[str, SimSource | Boundary] = {
            "clicks": SimSource("clicks", 2, self.timeline, both),
            "sensors": SimSource("sensors", 1, self.timeline, (*both, *promises.without(scenario.quiet_s, both))),
        }
        self.stages = stages_of(scenario.stages)
        self.inside = Boundary(INSIDE)
        self.sinks: dict[str, SimSink] = {name: self._new_sink(name) for name in SINKS}
        if scenario.stages > 1:
            self.sources[INSIDE] = self.sinks[INSIDE] = self.inside
        self.history = History(self.timeline, self.sources, self.settings, self.stages, self.content, whole=whole)
        self.write_lock = WriteLock()
        self.processes: list[SimReplica] = []
        self.supervisors: list[SimSupervisor] = []
        self._stops_s = sorted(scenario.stops_s)
        self._next_supervisor_s = 0.0
        self._set_us = 0
        """When a clock was last set."""
        self._ending = False
        self._last: list[SimReplica] = []
        """Who was up when the job was stopped for the last time."""
        settings = Settings(run=self.settings).model_dump(mode="json")
        note_desired(cast("Store", self.store), DesiredRun("sim", "job.py", VERSION, "", settings))
        self.operator = SimOperator(self)
        self._plan()

    @property
    def order(self) -> DesiredRun:
        """What is to run now."""
        order = last_run(self.store)
        assert order is not None
        return order

    @property
    def names(self) -> list[str]:
        """The replicas that there should be, apart from operations."""
        return replica_names(self.order.settings["run"]["replicas"])

    def run(self) -> None:
        """From the first start to the last stop. Raises :class:`PromiseBroken` at the first broken promise."""
        try:
            self._look()
            while not self._is_over():
                self.timeline.next()
                self.history.check(())
        finally:
            for supervisor in self.supervisors:
                supervisor.close()
        self.history.check([f"stopping: {one.holder} had to be killed" for one in self._last if one.exit_code()])
        self._check_leftovers()
        self.history.check_all(list(self.sinks.values()), settled_s=SETTLED_S, gap_s_max=GAP_S_MAX)

    def _is_over(self) -> bool:
        return self._ending and not any(one.alive for one in self.supervisors)

    def _check_leftovers(self) -> None:
        left = [one for one in self.processes if isinstance(one, SimSpare) and one.alive and one.acts_for_nobody]
        self.history.check([f"spares: process {one.pid} outlived the job" for one in left])

    @property
    def head(self) -> int:
        """The newest epoch ever sealed."""
        return self.history.head

    def timeline_clock(self) -> int:
        """The true time: people have watches."""
        return self.timeline.now_us

    @property
    def agent(self) -> SimAgent:
        """Who has the processes, if hosts are not simulated."""
        return self.home.agent

    @property
    def checkpoints(self) -> Disk:
        """Of each replica and stage, if hosts are not simulated."""
        return self.home.disk

    # Where hosts are simulated, these have other answers.

    def _clock_names(self) -> Sequence[str]:
        return (_SUPERVISOR, *replica_names(self.scenario.replicas))

    def _make_hosts(self) -> None:
        """There is one, and it is there."""

    def _new_sink(self, name: str) -> SimSink:
        return SimSink(name)

    def published(self, side: SimSink) -> None:
        """Something became visible in a sink."""
        self.history.published(side)

    def named(self, published: Publication, lineage: Lineage, side: SimSink) -> None:
        """With which results that was: those that the entry names, while anybody is there who has them."""
        held, named = steering(self.store), self.history.entries[published.epoch].generation
        alone = named not in (held.generation, held.beside)
        self.history.named(published.epoch, lineage, side.name, published.by, alone=alone)

    def is_published_by(self, generation: int) -> bool:
        """Whether replicas with the results of this generation publish now; others compute in the shadow."""
        head = self.store.head()
        return generation == steering(self.store).generation == (head.generation if head is not None else generation)

    def leaves(self, child: SimReplica, supervisor: SimSupervisor) -> None:
        """A supervisor asks a process to end: if that is for an operation, enough others have to compute."""
        inner, one = supervisor.supervisor, self.operator.open
        slot = inner.slots.get(child.acts_for) if inner is not None else None
        if (
            one is None
            or supervisor.stopping
            or supervisor.has_just_woken
            or child.up_s < UNKNOWN_S
            or (inner and slot and inner._fits(slot))
        ):
            return
        others = sorted({other.name for other in self.processes if other is not child and other.seems_to_compute})
        self.history.check(promises.capacity(str(child.holder), others, self.operator.wanted))

    def _new_store(self) -> MemoryStore:
        return MemoryStore(self._clocks[_SUPERVISOR])

    def clock_of(self, process: SimReplica | SimSupervisor) -> HostClock:
        """The wall clock of a replica's host, or of the supervisor's: spares are there too."""
        return self._clocks.get(process.name, self._clocks[_SUPERVISOR])

    def store_of(self, process: SimReplica) -> StoreAt:
        """The store as a replica reaches it."""
        return StoreAt(self.store, process.before_write)

    def when_answering(self, process: SimProcess, go_on: Callable[[], None]) -> None:  # noqa: ARG002
        """Call back when a process that got no answer from the store can ask again."""
        self.write_lock.when_free(go_on)

    def no_answer(self, operation: str) -> StoreError:
        """What a call meets whose patience is at its end."""
        return StoreError("LS0413", f"{operation}: the store is locked")

    def reach_sinks(self, process: SimProcess) -> None:
        """Raise if a process cannot reach the sinks now."""

    def disk_of_peer(self, process: SimReplica, peer: str) -> Disk:  # noqa: ARG002
        """Where the checkpoint of a peer is, as one that wants to be seeded reads it."""
        return self.home.disk

    def live(self) -> list[SimReplica]:
        """The processes that the supervisor counts on."""
        return [one for one in self.processes if one.alive and not one.zombie]

    def process(self, name: str) -> SimReplica | None:
        """The live process of a replica."""
        return next((one for one in self.live() if one.name == name), None)

    # What replicas and supervisors ask of the world.

    def spawn(self, spec: ReplicaSpec, *, gently: bool, host: SimHost | None = None) -> SimReplica:
        """A supervisor starts a process."""
        process = SimReplica(self, spec, host or self.home, gently=gently, pid=len(self.processes) + 1)
        process.note("starts" + (" (prefers a peer's snapshot)" if spec.seed == "peer" else ""))
        self.processes.append(process)
        return process

    def spawn_spare(self, spec: ReplicaSpec, shape: Mapping[str, Any], host: SimHost | None = None) -> SimSpare:
        """A supervisor orders a spare."""
        process = SimSpare(self, spec, shape, host or self.home, pid=len(self.processes) + 1)
        process.tell("is ordered")
        self.processes.append(process)
        return process

    def refuse_write(self, operation: str) -> None:
        """Raise what the disk has against a write now."""
        if not self.scenario.disk_full_s and not self.scenario.disk_locked_s:
            return
        code = self.faults.disk_refuses(self.timeline.elapsed_s)
        if code and (code == "LS0404" or operation != "checkpoint"):
            self.history.told[f"disk refuses: {code}"] += 1
            raise StoreError(code, f"{operation}: the disk is full" if code == "LS0404" else f"{operation}: locked")

    def store_call_s(self) -> float:
        """How long a call of the store takes now."""
        is_slow = any(start <= self.timeline.elapsed_s < end for start, end in self.scenario.store_slow_s)
        return self.draw.uniform(0.0, SLOW_CALL_S_MAX) if is_slow else 0.0

    def sealed(self, entry: Entry, by: SimReplica) -> None:
        """An entry is in the ledger: check it, and wake those who wait for it."""
        # Whoever sees another for the first time has only the stamp of its clock: patience is shorter by what clocks
        # differ, and who said something before the clock was set is taken for silent.
        wrong_us = [clock.wrong_us for clock in self._clocks.values()]
        lag_us = self.settings.lag_timeout_s * US_PER_S - (max(wrong_us) - min(wrong_us))
        running = {
            one.name: one.at.epoch
            for one in self.live()
            if one.said == "running" and self.timeline.now_us - one.moved_us < lag_us and one.moved_us > self._set_us
        }
        self.history.sealed(entry, by=str(by.holder), is_live=not by.zombie, running=running)
        for one in self.processes:
            if one.alive:
                one.wake(entry.epoch)

    def boot_s(self, name: str) -> float:
        """How long the JVM of a replica takes to come up."""
        first = sum(one.name == name for one in self.processes) == 1
        return self.draw.uniform(*self.scenario.boot_s) + (self.scenario.late_s.get(name, 0.0) if first else 0.0)

    def epoch_s(self, name: str) -> float:
        """How long a replica computes an epoch."""
        slowness = self.scenario.slowness
        return self.draw.uniform(0.05, 0.2) * slowness[int(name[1:]) % len(slowness)]

    def standings(self) -> list[tuple[int, ...]]:
        """How far the checkpoints of each replica are, stage by stage."""
        stages = range(len(self.stages))
        disks = [self.disk_of(name) for name in self.names]
        found = [[disk.get((name, stage)) for stage in stages] for name, disk in zip(self.names, disks, strict=True)]
        return [tuple(one.epoch for one in own if one is not None) for own in found if all(own)]

    def disk_of(self, replica: str) -> Disk:  # noqa: ARG002
        """Where the state of a replica is."""
        return self.home.disk

    def may_be_damaged(self, name: str) -> bool:
        """Whether a checkpoint may be lost: not the last ones that can carry the job on."""
        floor = self.store.floor()
        mine, good = self._results(name), self._sound(floor)
        lasting = self.operator.lasting
        others = [other for other in lasting if other != name and self._results(other) >= mine]
        stages = range(len(self.stages))
        return floor == 0 or any(all((other, stage) in good for stage in stages) for other in others)

    def _results(self, name: str) -> set[Results]:
        return {one.state.lineage[-1][0] for (owner, _), one in self.disk_of(name).items() if owner == name}

    def _sound(self, floor: int) -> set[tuple[str, int]]:
        """The checkpoints, by replica and stage, that can carry a replica on."""
        return {place for place, one in self.checkpoints.items() if one.sound and one.epoch >= floor}

    def content(self, stage: SimStage, start: Cut, end: Cut) -> tuple[int, ...]:
        """What a stage reads of the journal inside the job between two cuts."""
        return self.inside.content(start, end) if INSIDE in stage.sources else ()

    # What the seed has planned.

    def _plan(self) -> None:
        scenario, after = self.scenario, self.timeline.after
        after(scenario.troubled_s, self._calm_down)
        for at_s in scenario.blackouts_s:
            after(at_s, self._black_out)
        for at_s in scenario.corrupted_s:
            after(at_s, self._corrupt)
        for at_s in scenario.supervisor_killed_s:
            after(at_s, lambda: self._to_supervisor(lambda one: one.kill()))
        for at_s, hang_s in scenario.supervisor_hangs_s:
            after(at_s, lambda hang_s=hang_s: self._to_supervisor(lambda one: one.hang(hang_s)))  # type: ignore[misc]
        for at_s, host, by_s in scenario.clock_jumps_s:
            after(at_s, lambda host=host, by_s=by_s: self._set_clock(host, by_s))  # type: ignore[misc]
        for start_s, end_s in (*scenario.disk_full_s, *scenario.disk_locked_s):
            after(start_s, lambda: self.history.note("world", "the disk makes trouble"))
            after(end_s, lambda: self.history.note("world", "the disk is well again"))
            # Afterwards a sealer tries again within a second.
            self.excuse(start_s, end_s + 1.0)
        if isinstance(self.store, MemoryStore):
            self.store.on_fact = self.operator.watch
        self.operator.plan()

    @property
    def clocks_wrong_s(self) -> float:
        """How far the clocks are apart at most."""
        return 2 * sum(abs(by_s) for _, _, by_s in self.scenario.clock_jumps_s)

    def excuse(self, from_s: float, to_s: float) -> None:
        """Nobody could publish then."""
        self.history.excused_us.append((START_US + round(from_s * US_PER_S), START_US + round(to_s * US_PER_S)))

    def _calm_down(self) -> None:
        self.history.note("world", "no more faults")
        self.faults.active = False
        for one in self.processes:
            one.move_again()
        for supervisor in self.supervisors:
            supervisor.calm()

    def _black_out(self) -> None:
        self.history.note("world", "blackout: everything dies")
        for supervisor in self.supervisors:
            supervisor.alive = False
        for one in self.processes:
            if one.alive:
                one.exit(EXIT_KILLED)
        if self.scenario.power_loss and isinstance(self.store, MemoryStore):
            lost = self.store.lose(self.draw.randint(0, 6))
            self.history.note("world", f"{lost} writes had not reached the disk")

    def _to_supervisor(self, strike: Any) -> None:
        if self.supervisors and self.supervisors[-1].alive and not self.supervisors[-1].hangs:
            strike(self.supervisors[-1])

    def _set_clock(self, host: str, by_s: float) -> None:
        self.history.note("world", f"the clock of {host} is set by {by_s:+.1f} s")
        self._set_us = self.timeline.now_us
        for name, clock in self._clocks.items():
            if host in (name, EVERYONE):
                clock.wrong_us += round(by_s * US_PER_S)

    def _corrupt(self) -> None:
        """Hit one replica that is up, whichever the seed says."""
        candidates = [one for one in self.live() if one.said == "running" and not one.is_still]
        if not candidates:
            self.timeline.after(0.5, self._corrupt)
            return
        self.history.damage_is_expected = True
        self.draw.choice(candidates).hit()

    # Whoever looks after the job from outside: starts it again, stops it, and finds out whether all is well.

    def _look(self) -> None:
        self.timeline.after(LOOK_S, self._look)
        self.operator.look()
        alive = [one for one in self.supervisors if one.alive]
        if self.write_lock.holder is not None and all(one.hangs for one in alive):
            # Two at once: who keeps everybody from writing is stopped, and so is the only one who could end it.
            self.excuse(self.timeline.elapsed_s - LOOK_S, self.timeline.elapsed_s + LOOK_S)
        if self._ending:
            return
        if not alive:
            self._start_supervisor()
            return
        newest = alive[-1]
        if newest.hangs:
            self._replace(newest)
        elif newest.stopping:
            return
        elif self._stops_s and self.timeline.elapsed_s >= self._stops_s[0]:
            self._stops_s.pop(0)
            self.history.note("world", "Ctrl-C, and start again")
            newest.stop()
        elif self.timeline.elapsed_s >= self.scenario.total_s and self._is_recovered():
            self.operator.check_end()
            self._ending, self._last = True, [one for one in self.live() if one.holder.incarnation]
            newest.stop()

    def _start_supervisor(self) -> None:
        if self.supervisors and self._next_supervisor_s == 0.0:
            self._next_supervisor_s = self.timeline.elapsed_s + self.draw.uniform(0.0, 1.0)
        if self.timeline.elapsed_s < self._next_supervisor_s:
            return
        self._next_supervisor_s = 0.0
        supervisor = SimSupervisor(self, len(self.supervisors) + 1)
        self.supervisors.append(supervisor)
        supervisor.start()

    def _replace(self, hanging: SimSupervisor) -> None:
        """Another supervisor comes when the lease has expired, unless a lock keeps it out."""
        if self.store.holder(LEASE) is not None or not hanging.alive:
            return
        if self.scenario.supervisor_lock:
            self.history.told["second supervisor kept out"] += 1
            return
        self.history.told["second supervisor takes over"] += 1
        self._start_supervisor()

    def _is_recovered(self) -> bool:
        """Once faults have stopped: whether everyone is back within the lead; not for ever, and the head moves."""
        running = {one.name: one.at.epoch for one in self.live() if one.said == "running"}
        sealed_us = max(self.operator.activated_us, self.history.sealed_us.get(self.head, START_US))
        sealed_s = (self.timeline.now_us - sealed_us) / US_PER_S
        if self.operator.paused_s is not None:
            return False
        if sealed_s > STALLED_S and any(one.up_s > STALLED_S for one in self.live()):
            self.history.check([f"progress: nothing was sealed for {sealed_s:.1f} s"])
        names = self.names
        if not self.operator.is_quiet:
            return False
        if sorted(running) == names:
            self.history.check(promises.readiness(running, self.head, self.settings.lead_epochs_max))
            return True
        limit_s = self.scenario.recovery_s_max
        if self.timeline.elapsed_s > max(self.scenario.troubled_s, self.operator.quiet_s) + limit_s:
            away = [name for name in names if name not in running]
            self.history.check([f"progress: {name} did not come back within {limit_s:.0f} s" for name in away])
        return False
