"""A replica as a process on the timeline: production's step machines, with a fault possible at each step.

What it does in which order, production decides: from what it starts (``recovery``), how an epoch is run, published and
disputed (``epoch_steps``), when to seal and what (``sealing``), how far it is (``StageProgress``), what it says of
itself (``Reporter``). Only what takes time or touches the disk is a model.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from lockstep.clock import US_PER_S
from lockstep.errors import LockstepError, StoreError
from lockstep.runtime.decide.pacing import is_live
from lockstep.runtime.epoch.draining import drain_steps
from lockstep.runtime.epoch.epoch_steps import BEGIN, DIGEST, FINISH, PUBLISH, RUN, EpochSteps, part_of
from lockstep.runtime.epoch.sealing import SEAL
from lockstep.runtime.epoch.stage_progress import StageProgress, Standpoint
from lockstep.runtime.reporting import INTERVAL_S, Reporter
from lockstep.runtime.spec import EXIT_CHECKPOINT, EXIT_DRAINED, EXIT_RETIRED, ReplicaSpec
from lockstep.runtime.state.recovery import COPY, SWAP, Recovery
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.sim.checkpoints import PLAN, Checkpoint, SimCheckpoints
from lockstep.sim.driving import FOR_EVER_S, Driver
from lockstep.sim.pipeline import SINKS, Results
from lockstep.sim.process import SimProcess
from lockstep.sim.sealer import SimSealer
from lockstep.sim.store_access import Blocked
from lockstep.sim.work import SimOutput, SimWork
from lockstep.store.protocols import COMPUTING, Entry, Store

if TYPE_CHECKING:
    from lockstep.sim.hosts import SimHost
    from lockstep.sim.world import World


def results_of(spec: ReplicaSpec) -> Results:
    """The results of a version of the code: what follows a plus in its name changes them."""
    return Results(spec.results_of, int(spec.code_hash.partition("+")[2] or 0))


BOOT, JOIN, OFFSETS, COMMIT = "boot", "join", "offsets", "commit"
"""Steps of Spark's own: the JVM comes up; a query begins; a micro-batch is written into the offset log, and at its end
into the commit log."""
UNKNOWN_S = 1.0
"""How long nobody may know that a replica has ended."""
_TOLD_S = 0.05
"""How soon a replica acts on what its threads were told."""
_TAKES_S = {COPY: 0.05, DIGEST: 0.002, FINISH: 0.002, COMMIT: 0.002, PUBLISH: 0.005}


class SimQueries:
    """The queries of a simulated replica, as production brings them to rest."""

    def __init__(self, replica: SimReplica) -> None:
        self._replica = replica
        self._last: int | None = None
        self._held: set[int] = set()

    def holds(self, stage: int, epoch: int) -> bool:
        """Whether a query may not begin this epoch; then it has answered."""
        if self._last is None or epoch <= self._last:
            return False
        self._held.add(stage)
        return True

    def hold(self) -> None:
        """None begins an epoch any more."""
        self._let(-1)

    def release(self, last: int) -> None:
        """They compute up to this epoch."""
        self._replica.tell("lets the stages behind come up")
        self._let(last)

    def ask(self) -> None:
        """Those that are held answer again."""
        self._held.clear()
        self._replica.wake_all()

    def are_held(self) -> bool:
        """Whether all have answered."""
        return len(self._held) >= len(self._replica.works)

    def are_active(self) -> bool:
        """A query that fails here ends its process."""
        return True

    def _let(self, last: int) -> None:
        self._last = last
        self._replica.wake_all()


class SimReplica(SimProcess):
    """One process of one replica."""

    STEPS: ClassVar[tuple[str, ...]] = (
        *(OFFSETS, BEGIN, RUN, DIGEST),
        *(f"{PUBLISH} {sink}" for sink in SINKS),
        *(FINISH, COMMIT),
    )
    """The life of an epoch as production walks it, sink by sink, between Spark's two logs."""

    def __init__(self, world: World, spec: ReplicaSpec, host: SimHost, *, gently: bool, pid: int) -> None:
        super().__init__(world, host, gently=gently, pid=pid)
        self._be(spec)
        self.said = "starting"
        self.moved_us = 0
        """When it last finished an epoch, in true time."""
        self.stage_progress: StageProgress | None = None
        self.draining = False
        self.checkpoints = SimCheckpoints(self)
        self.works: list[SimWork] = []
        """One for each stage, once it follows the ledger."""
        self._queries = SimQueries(self)
        self._up_since_us: int | None = None
        self._is_hit = False
        self._elapsed_s = lambda: world.timeline.elapsed_s
        self._store = cast("Store", world.store_of(self))
        self._writes = 0
        """To the store, since it was last asked how long they took."""
        self._drivers: list[Driver] = []
        self.after(0.05, self._arrive)

    def _be(self, spec: ReplicaSpec) -> None:
        """From now on it acts for this replica."""
        self.spec = spec
        self.name = self._who = spec.replica
        self._prefer_peer = spec.seed == "peer"
        self.clock = self.world.clock_of(self)

    @property
    def acts_for(self) -> str:
        """The replica that it is."""
        return self.name

    @property
    def results(self) -> Results:
        """Which results it computes."""
        return results_of(self.spec)

    @property
    def at(self) -> Standpoint:
        """How far it is."""
        return self.stage_progress.at if self.stage_progress is not None else Standpoint()

    @property
    def up_s(self) -> float:
        """For how long it has been counted on."""
        return (self.world.timeline.now_us - self._up_since_us) / US_PER_S if self._up_since_us is not None else 0.0

    @property
    def computes(self) -> bool:
        """Whether it computes epochs, as it says."""
        return self.alive and not self.draining and self.said in COMPUTING

    @property
    def seems_to_compute(self) -> bool:
        """Whether nobody could know otherwise: it does, or did until a moment ago."""
        gone_s = (self.world.timeline.now_us - self._ended_us) / US_PER_S
        return self.computes or (not self.alive and self.said in COMPUTING and gone_s < UNKNOWN_S)

    def drain(self) -> None:
        """Finish the epoch under way and end; the word takes a moment to arrive."""
        self.after(self.world.draw.uniform(0.0, 0.1), self._drain)

    def _drain(self) -> None:
        if not self.draining:
            self.draining = True
            self._rest_if_draining()
            self.wake_all()

    def hit(self) -> None:
        """A bit flips: the state it commits next is wrong, and so is everything after."""
        self.note("its state is damaged")
        self._is_hit = True

    def wake_all(self) -> None:
        """Something changed that its threads look for now and then."""
        for driver in self._drivers:
            driver.wake(_TOLD_S)

    def wake(self, epoch: int) -> None:
        """An epoch was sealed: whoever polls for it sees it soon."""
        if self.host.is_cut_off:
            return
        for driver in self._drivers:
            if driver.waits_for == epoch:
                driver.wake(self.world.draw.uniform(0.001, 0.01))

    # What the steps take, and what a crash in the midst of one leaves.

    def lead_s(self, step: str) -> float:
        """How long it takes until a step is done, from when it was decided; others act meanwhile."""
        return self.world.draw.uniform(0.001, 0.02) if step == SEAL else 0.0

    def takes_s(self, step: str) -> float:
        """How long it takes from a step to the next."""
        if step == BOOT:
            return self.world.boot_s(self.name)
        return self.world.epoch_s(self.name) if step == RUN else _TAKES_S.get(step.partition(" ")[0], 0.0)

    def store_took_s(self) -> float:
        """How long the store has taken for what was just written."""
        writes, self._writes = self._writes, 0
        return sum(self.world.store_call_s() for _ in range(writes))

    def before_write(self, operation: str) -> None:
        """What the world does to it before it writes to the store."""
        if self.host.is_cut_off:
            raise Blocked
        if self.world.write_lock.holder not in (None, self):
            raise Blocked
        self._writes += 1
        self.world.refuse_write(operation)

    def before_read(self) -> None:
        """What the world does to it before it reads from the store, where it may be cut off from it."""
        if self.host.is_cut_off and self.in_step:
            raise Blocked
        if self.host.is_cut_off:
            raise self.world.no_answer("a read")

    def torn(self, step: str, stage: int) -> None:
        """A crash in the midst of a step; a write to the store is one transaction: torn, it is absent."""
        name, _, sink = step.partition(" ")
        if name == SWAP:
            self.checkpoints.lose()
        elif name in (OFFSETS, COMMIT):
            self.checkpoints.tear(stage)
        elif name == PUBLISH:
            self.works[stage].half_publish(sink)

    def sealed(self, epoch: int) -> Entry | None:
        """The entry of an epoch, if it is sealed and can be read."""
        return None if self.host.is_cut_off else self._store.entry(epoch)

    # Its life.

    def _arrive(self) -> None:
        self._begin()

    def _begin(self) -> None:
        if self.draining:
            self.exit(EXIT_DRAINED)
            return
        try:
            self.holder = self._store.begin(self.name, self.pid)
        except Blocked:
            self.world.when_answering(self, lambda: self.after(0, self._begin))
            return
        except StoreError as error:
            self.fail(error)
            return
        self._who = str(self.holder)
        lead = self.world.settings.lead_epochs_max
        host, process = self.host.name, str(self.pid)
        self.reporter = Reporter(
            self._store,
            self.holder,
            lambda: None,
            lead,
            self.clock,
            self.pid,
            host=host,
            process=process,
            generation=self.spec.generation,
            results_of=self.spec.results_of,
        )
        self._report_regularly()
        self._drive(self._life())

    def _drive(self, steps: Steps[None], stage: int = 0) -> Driver:
        self._drivers.append(Driver(self, steps, stage))
        self._drivers[-1].start()
        return self._drivers[-1]

    def _boot(self) -> Steps[None]:
        yield Step(BOOT, lambda: None)

    def _life(self) -> Steps[None]:
        yield from self._boot()
        self.reporter.state = "seeding"
        if self.draining:
            self.exit(EXIT_DRAINED)
            return
        yield from Recovery(
            self._store,
            self.holder,
            self.checkpoints,
            self.world.settings,
            PLAN,
            self.spec.code_hash,
            [[step.id for step in stage.time_steps] for stage in self.world.stages],
            self._prefer_peer,
            self._elapsed_s,
            host=self.host.name,
            results_of=self.spec.results_of,
            takes_older=self.spec.takes_older,
        ).steps()
        at = self._own()
        if len(at) < len(self.world.stages):
            # A zombie's successor is in the midst of its own start.
            self.exit(EXIT_CHECKPOINT)
            return
        machines = yield Step(JOIN, partial(self._join, at))
        for stage, machine in enumerate(machines):
            self._drive(self._follow(stage, machine), stage)
        self._rest_if_draining()

    def _follow(self, stage: int, machine: EpochSteps[SimOutput]) -> Steps[None]:
        """One query: epoch after epoch."""
        while True:
            entry = yield from self._next_entry(stage)
            yield from self.batch(stage, entry, machine)

    def _join(self, at: list[Checkpoint]) -> list[EpochSteps[SimOutput]]:
        """Begin to follow the ledger."""
        # Before anything is changed: if there is no answer, all of this is done again.
        self._store.head()
        self.works = [
            SimWork(self, stage, one.state.restored()) for stage, one in zip(self.world.stages, at, strict=True)
        ]
        self.sealer = SimSealer(self, self._store)
        self.stage_progress = StageProgress(
            self._store,
            self.holder,
            {stage: one.epoch for stage, one in enumerate(at)},
            self.world.settings,
            self.sealer,
            self._epoch_done,
            self.clock,
            self._elapsed_s,
        )
        machines = [self._epochs_of(stage, self.stage_progress) for stage in range(len(at))]
        self.reporter.standpoint = lambda: self.at
        self.reporter.diverged = lambda: any(machine.diverged for machine in machines)
        self.reporter.state = "running"
        self._report()
        self.sealer.wake = self._drive(self.sealer.steps()).wake
        self.stage_progress.take_up()
        return machines

    def _epochs_of(self, stage: int, progress: StageProgress) -> EpochSteps[SimOutput]:
        others = [one for one in self._store.progress() if one.replica != self.name]
        publish = self._store.head() is not None and any(is_live(one, self.clock()) for one in others)
        patience_s, now_s = self.world.settings.lag_timeout_s, self._elapsed_s
        part = part_of(self._store, self.spec, patience_s, others_publish=publish, elapsed_s=now_s)
        stopping, version = (lambda: self.draining), self.spec.code_hash
        return EpochSteps(self._store, self.holder, stage, version, progress, stopping, self.clock, part, now_s)

    def fail(self, error: LockstepError) -> None:
        """As production: whoever stops in the midst of an epoch that others publish has stopped."""
        if self.draining and error.code == "LS0601":
            self.exit(EXIT_DRAINED)
        else:
            super().fail(error)

    def _next_entry(self, stage: int) -> Steps[Entry]:
        """The next epoch once it is sealed, as Spark's source answers it: never, when the replica shall end."""
        assert self.stage_progress is not None
        while True:
            epoch = self.stage_progress.stage_epoch(stage) + 1
            if self._queries.holds(stage, epoch):
                yield Pause(FOR_EVER_S)
                continue
            if self.host.is_cut_off:
                yield Pause(FOR_EVER_S, epoch)
                continue
            entry = self._store.entry(epoch)
            if entry is not None:
                self.world.history.used(entry, by=self._who)
                return entry
            head = self._store.head()
            if head is not None and head.epoch >= epoch:
                if not self.zombie:
                    self.world.history.missing(epoch, by=self._who, floor=self._store.floor())
                self.exit(EXIT_CHECKPOINT)
            yield Pause(FOR_EVER_S, epoch)

    def _rest_if_draining(self) -> None:
        """Begin to drain, once it follows the ledger."""
        if self.draining and self.stage_progress is not None:
            self.sealer.stopping = True
            self.reporter.state = "draining"
            self._drive(self._rest(self.stage_progress))

    def _rest(self, progress: StageProgress) -> Steps[None]:
        """As production drains, then ends."""
        deadline_s = self.world.timeline.elapsed_s + self.world.settings.stop_timeout_s
        rested = yield from drain_steps(self._queries, progress, deadline_s, self._elapsed_s)
        if rested and not self.zombie:
            self.world.history.rests(self._who, [own.epoch for own in self._own()])
        self.exit(EXIT_DRAINED)

    def _own(self) -> list[Checkpoint]:
        """Its checkpoints, those that are there."""
        return [own for stage in range(len(self.world.stages)) if (own := self.checkpoints.own(stage)) is not None]

    def batch(self, stage: int, entry: Entry, machine: EpochSteps[SimOutput]) -> Steps[None]:
        """One micro-batch of Spark's, with the steps of the epoch inside."""
        yield Step(OFFSETS, partial(self._write_offsets, stage, entry))
        yield from machine.steps(entry, self.works[stage])
        yield Step(COMMIT, partial(self._commit, stage, entry))

    def _write_offsets(self, stage: int, entry: Entry) -> None:
        self.world.refuse_write("checkpoint")
        own = self.checkpoints.own(stage) or Checkpoint()
        self.checkpoints.write(stage, Checkpoint(own.epoch, entry.epoch, own.state, own.before, own.sound, own.version))

    def _commit(self, stage: int, entry: Entry) -> None:
        self.world.refuse_write("checkpoint")
        work = self.works[stage]
        before, after = work.state, work.next_state
        work.state = after.damaged() if self._is_hit else after
        self._is_hit = False
        version = self.spec.code_hash
        self.checkpoints.write(stage, Checkpoint(entry.epoch, entry.epoch, work.state, before, version=version))

    # What its other threads do.

    def sealing_failed(self, error: LockstepError) -> None:
        """As production does: who was retired ends, everything else passes."""
        self.tell(f"may not seal: {error.code}")
        if error.code == "LS0405":
            self.after(_TOLD_S, lambda: self.exit(EXIT_RETIRED))

    def _epoch_done(self) -> None:
        self.moved_us = self.world.timeline.now_us
        self._report()

    def _report_regularly(self) -> None:
        try:
            if not self._store.is_live(self.holder):
                self.note("finds itself retired")
                self.after(_TOLD_S, lambda: self.exit(EXIT_RETIRED))
                return
            self._report()
        except StoreError as error:
            self.note(f"cannot report: {error.code}")
        except Blocked:
            self.world.when_answering(self, lambda: self.after(0, self._report_regularly))
            return
        self.after(INTERVAL_S + self.store_took_s(), self._report_regularly)

    def _report(self) -> None:
        self.reporter.report()
        if self.zombie or self.host.is_cut_off:
            return
        mine = next((one for one in self.world.store.progress() if one.replica == self.name), None)
        if mine is not None and mine.incarnation == self.holder.incarnation:
            if mine.state != self.said:
                self.note(f"is {mine.state}")
            self.said = mine.state
        is_up = self.said == "running" and self.world.is_published_by(self.spec.results_of)
        if is_up and self._up_since_us is None:
            self._up_since_us = self.world.timeline.now_us
        if not is_up:
            self.down()

    def down(self) -> None:
        """It is not counted on any more."""
        if self._up_since_us is not None:
            self.world.history.was_up(self._up_since_us, self.world.timeline.now_us, self.stuck_us)
        self._up_since_us = None
