"""A replica as a state machine: the life of an epoch step by step, with a fault possible at each step.

What it decides, production decides: when to seal and what (``Proposer``), how far it is (``StageProgress``), what it
says of itself (``Reporter``), from what it starts (``recovery``), in which order an epoch is run and published
(``epoch_steps``), what a sink's answer means (``fence``). Only what takes time or touches the disk is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

from lockstep.clock import US_PER_S
from lockstep.connect.protocols import Publication
from lockstep.errors import ConnectError, RunError, StoreError
from lockstep.runtime.decide.epoch_steps import EPOCH_STEPS, PUBLISH
from lockstep.runtime.decide.fence import disagrees, goes_on, judged_divergence
from lockstep.runtime.epoch.stage_progress import StageProgress, Standpoint
from lockstep.runtime.reporting import INTERVAL_S, Reporter
from lockstep.runtime.spec import EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_DRAINED, EXIT_RETIRED, ReplicaSpec
from lockstep.runtime.state import recovery
from lockstep.runtime.state.checkpoint import Standing
from lockstep.sim.disk import StoreAt
from lockstep.sim.pipeline import SINKS, TIME_STEPS, VERSION, State, compute, digest, observe
from lockstep.sim.process import SimProcess
from lockstep.sim.sealer import SimSealer
from lockstep.store.protocols import Cut, Digest, Divergence, Entry, Store

if TYPE_CHECKING:
    from lockstep.sim.world import World

_VERDICT_POLL_S = 0.05
_PEER_POLL_S = 0.5
_STAGE = 1
NOTHING = State()
"""The state before the first epoch."""


@dataclass(frozen=True)
class Checkpoint:
    """What Spark keeps on disk for a replica."""

    epoch: int = -1
    begun_epoch: int = -1
    state: State = NOTHING
    before: State = NOTHING
    """The state before ``epoch``: Spark keeps some, so that a batch can be computed again."""
    sound: bool = True

    def taken_back(self) -> Checkpoint:
        """Without the commit of its newest epoch."""
        return replace(self, epoch=self.epoch - 1, state=self.before)


class SimReplica(SimProcess):
    """One process of one replica."""

    STEPS: ClassVar[tuple[str, ...]] = (
        *(
            name
            for step in EPOCH_STEPS
            for name in ([f"publish {sink}" for sink in SINKS] if step == PUBLISH else [step])
        ),
        "commit",
    )
    """The life of an epoch as production walks it, sink by sink, and Spark's commit after it; every step but ``run`` is
    durable once it is done."""

    def __init__(self, world: World, spec: ReplicaSpec, *, gently: bool, pid: int) -> None:
        super().__init__(world, spec.replica, gently=gently, pid=pid)
        self.state = State()
        self.said = "starting"
        self.moved_us = 0
        """When it last finished an epoch, in true time."""
        self.stage_progress: StageProgress | None = None
        self.draining = False
        self.copied = Checkpoint()
        """What it has copied, or made anew, to start from."""
        self._prefer_peer = spec.seed == "peer"
        self._up_since_us: int | None = None
        self._diverged = False
        self._waiting_for: int | None = None
        self._entry = Entry(-1, 0, {})
        self._next_state = State()
        self._observed: dict[str, int | None] = {}
        self._held: list[Publication] = []
        self._is_hit = False
        self._clock = world.clock(self.name)
        self._store = cast("Store", StoreAt(world.store, world.refuse_write))
        self.after(0.05, self._begin)

    @property
    def at(self) -> Standpoint:
        """How far it is."""
        return self.stage_progress.at if self.stage_progress is not None else Standpoint()

    @property
    def up_s(self) -> float:
        """For how long it has been counted on."""
        return (self.world.timeline.now_us - self._up_since_us) / US_PER_S if self._up_since_us is not None else 0.0

    def drain(self) -> None:
        """Finish the epoch under way and end; the word takes a moment to arrive."""
        self.after(self.world.draw.uniform(0.0, 0.1), self._drain)

    def _drain(self) -> None:
        self.draining = True
        if self.stage_progress is not None:
            self.sealer.stopped = True
        if self._waiting_for is not None:
            self.after(0.05, self._look)

    def hit(self) -> None:
        """A bit flips: the state it commits next is wrong, and so is everything after."""
        self.note("its state is damaged")
        self._is_hit = True

    # Its beginning.

    def _begin(self) -> None:
        try:
            self.holder = self._store.begin(self.name, self.pid)
        except StoreError as error:
            self.fail(error)
            return
        self._who = str(self.holder)
        lead = self.world.settings.lead_epochs_max
        self.reporter = Reporter(self._store, self.holder, lambda: None, lead, self._clock, self.pid)
        self._report_regularly()
        self.guarded("boot", lambda: self.world.boot_s(self.name), self._prepare)

    def _report_regularly(self) -> None:
        if not self._store.is_live(self.holder):
            self.note("finds itself retired")
            self.after(0.05, lambda: self.exit(EXIT_RETIRED))
            return
        try:
            self._report()
        except StoreError as error:
            self.note(f"cannot report: {error.code}")
        self.after(INTERVAL_S, self._report_regularly)

    def _report(self) -> None:
        self.reporter.report()
        if self.zombie:
            return
        mine = next((one for one in self.world.store.progress() if one.replica == self.name), None)
        if mine is not None and mine.incarnation == self.holder.incarnation:
            if mine.state != self.said:
                self.note(f"is {mine.state}")
            self.said = mine.state
        if self.said == "running" and self._up_since_us is None:
            self._up_since_us = self.world.timeline.now_us
        if self.said != "running":
            self.down()

    def down(self) -> None:
        """It is not counted on any more."""
        if self._up_since_us is not None:
            self.world.history.up_us.append((self._up_since_us, self.world.timeline.now_us))
        self._up_since_us = None

    def _prepare(self) -> None:
        """As ``recovery.prepare`` does it: look, choose, put a checkpoint in place."""
        self.reporter.state = "seeding"
        if self.draining:
            self.exit(EXIT_DRAINED)
            return
        self._choose(self.world.timeline.elapsed_s + self.world.settings.start_timeout_s / 2)

    def _choose(self, deadline_s: float) -> None:
        own = self._own()
        situation = recovery.situation_of(self._store, self.name, own, own is not None, self._clock())
        beyond = self.world.settings.seed_beyond_epochs
        choice = recovery.choose(situation, prefer_peer=self._prefer_peer, seed_beyond_epochs=beyond)
        others = recovery.may_wait(self._store.progress(), self.name, self._clock())
        if not choice and others and self.world.timeline.elapsed_s < deadline_s:
            self.after(_PEER_POLL_S, lambda: self._choose(deadline_s))
            return
        self.tell(f"starts from {'a peer' if choice in self.world.checkpoints else choice or 'nothing'}")
        if choice == "own":
            self._replay_unobserved()
            self._take_up()
        elif choice:
            self.guarded("copy", lambda: self._copy(choice), self._swap, torn=lambda: None)
        else:
            self.exit(EXIT_CHECKPOINT)

    def _replay_unobserved(self) -> None:
        own, head = self.world.checkpoints[self.name], self._store.head()
        at = Standing(own.epoch, own.epoch, own.begun_epoch)
        observed = self._store.observed(own.epoch)
        if recovery.must_replay(at, head.epoch if head else -1, observed, [step.id for step in TIME_STEPS]):
            self.tell("computes an epoch again")
            self._write(own.taken_back())

    def _own(self) -> Standing | None:
        """Where its own checkpoint stands, None if there is none that may be used."""
        own = self.world.checkpoints.get(self.name)
        if own is None or not self.is_sound(own):
            return None
        at = Standing(own.epoch, own.epoch, own.begun_epoch)
        head = self._store.head()
        return None if recovery.contradicts(at, head.epoch if head else -1) else at

    def is_sound(self, checkpoint: Checkpoint) -> bool:
        """What production finds out by reading the files."""
        return checkpoint.sound

    def _copy(self, choice: str) -> float:
        """Put a new checkpoint beside the old one: a peer's, up to its newest commit, or an empty one."""
        self.world.refuse_write("checkpoint")
        if choice == "scratch":
            self.copied = Checkpoint()
            return 0.01
        peer = self.world.checkpoints.get(choice)
        if peer is None or peer.epoch < 0 or not self.is_sound(peer):
            raise RunError("LS0606", f"no snapshot could be taken of {choice}")
        self.note(f"copies epoch {peer.epoch} of {choice}")
        self.copied = replace(peer, begun_epoch=peer.epoch)
        if not self.zombie:
            self.world.copies[self.name] = self.copied
        return 0.05

    def _swap(self) -> None:
        self.guarded("swap", self._use_copy, self._take_up, torn=lambda: self._write(None))

    def _use_copy(self) -> float:
        self._write(self.copied)
        if not self.zombie:
            self.world.copies.pop(self.name, None)
        return 0.0

    def _take_up(self) -> None:
        at = self.world.checkpoints.get(self.name)
        if at is None:
            # A zombie's successor is in the midst of its own start.
            self.exit(EXIT_CHECKPOINT)
            return
        self.state = at.state.restored()
        self.sealer = SimSealer(self, self._store)
        stages = {_STAGE: at.epoch}
        self.stage_progress = StageProgress(
            self._store,
            self.holder,
            stages,
            self.world.settings,
            self.sealer,
            self._report,
            self._clock,
            lambda: self.world.timeline.elapsed_s,
        )
        self.reporter.standpoint = lambda: self.at
        self.reporter.diverged = lambda: self._diverged
        self.reporter.state = "running"
        try:
            self._report()
        except StoreError as error:
            self.fail(error)
            return
        self.stage_progress.take_up()
        self._look()

    def _write(self, checkpoint: Checkpoint | None) -> None:
        # A zombie is out of reach of its successor, on another host: what it writes there nobody reads.
        if self.zombie:
            return
        if checkpoint is None:
            if self.world.may_be_damaged(self.name):
                self.world.checkpoints.pop(self.name, None)
        else:
            self.world.checkpoints[self.name] = checkpoint

    def _tear(self) -> None:
        """A crash in the midst of writing to the checkpoint: it is found damaged, or as it was."""
        own = self.world.checkpoints.get(self.name)
        if own is not None and self.world.faults.damages() and self.world.may_be_damaged(self.name):
            self.note("leaves a damaged checkpoint")
            self._write(replace(own, sound=False, state=own.state.damaged()))

    # The life of an epoch.

    def _look(self) -> None:
        """Take the next epoch if it is sealed; else wait until it is."""
        epoch = self.at.epoch + 1
        self._waiting_for = epoch
        if self.draining:
            self.exit(EXIT_DRAINED)
            return
        entry = self._store.entry(epoch)
        head = self._store.head()
        if entry is None and head is not None and head.epoch >= epoch:
            if not self.zombie:
                self.world.history.missing(epoch, by=self._who, floor=self._store.floor())
            self.exit(EXIT_CHECKPOINT)
        elif entry is not None:
            self._waiting_for = None
            self._entry = entry
            self.world.history.used(entry, by=self._who)
            self._go_on(0)

    def wake(self, epoch: int) -> None:
        """An epoch was sealed: whoever polls for it sees it soon."""
        if self._waiting_for == epoch:
            self.after(self.world.draw.uniform(0.001, 0.01), lambda: self._wake_up(epoch))

    def _wake_up(self, epoch: int) -> None:
        if self._waiting_for == epoch:
            self._look()

    def _go_on(self, index: int) -> None:
        if index == len(self.STEPS):
            self._look()
            return
        step, _, sink = self.STEPS[index].partition(" ")
        action: Callable[[], float | None]
        if sink:
            action, torn = (lambda: self._publish(sink, index)), (lambda: self._half_publish(sink))
        else:
            action = getattr(self, f"_{step}_epoch")
            torn = self._tear if step in ("begin", "commit") else (lambda: None)
        self.guarded(self.STEPS[index], action, lambda: self._go_on(index + 1), torn)

    def _begin_epoch(self) -> float:
        """Spark writes down which epoch its batch computes."""
        assert self.stage_progress is not None
        self.world.refuse_write("checkpoint")
        own = self.world.checkpoints.get(self.name, Checkpoint())
        self._write(replace(own, begun_epoch=self._entry.epoch))
        self.stage_progress.begun(self._entry.epoch)
        return 0.0

    def _run_epoch(self) -> float:
        before = self._store.entry(self._entry.epoch - 1)
        if before is None and self._entry.epoch > 0:
            # A zombie stood still for so long that nobody waited: production's source refuses to guess where to begin.
            if not self.zombie:
                self.world.history.missing(self._entry.epoch - 1, by=self._who, floor=self._store.floor())
            raise RunError("LS0605", f"the cut before epoch {self._entry.epoch} is gone")
        start: Cut = {
            name: before.cut[name] if before is not None else source.start()
            for name, source in self.world.sources.items()
        }
        if not self.zombie:
            for name, positions in start.items():
                self.world.history.read(name, positions, by=self._who)
        self._observed = observe(start, self._entry.cut)
        self._next_state = self.computed(start, self._entry)
        self._held = []
        return self.world.epoch_s(self.name)

    def computed(self, start: Cut, entry: Entry) -> State:
        """The state after the epoch."""
        return compute(self.state, start, entry, self._observed)

    def _digest_epoch(self) -> float:
        epoch, who = self._entry.epoch, self.holder
        found = [
            Digest(epoch, sink, who.replica, who.incarnation, digest(self._next_state, sink), 1, VERSION)
            for sink in SINKS
        ]
        self._store.add_digests(found)
        for one in found:
            self.world.history.computed(epoch, one.sink, one.digest, by=self._who)
        return 0.002

    def _publish(self, sink: str, index: int) -> float | None:
        if self.world.faults.disk_refuses(self.world.timeline.elapsed_s) == "LS0404":
            raise ConnectError("LS0508", f'the disk of sink "{sink}" is full')
        side = self.world.sinks[sink]
        visible = len(side.visible)
        ours = digest(self._next_state, sink)
        wanted = Publication(self._entry.epoch, ours, 1, self._who, VERSION)
        held = side.publish(wanted, self.world.timeline.now_us)
        if len(side.visible) > visible:
            self.world.history.published(side)
        elif self.zombie:
            self.tell("publishes second")
        self._held.append(held)
        if not disagrees(wanted, held):
            return 0.005
        self._diverge(sink, held, ours)
        self._await_verdict(sink, index)
        return None

    def _half_publish(self, sink: str) -> None:
        """A crash before the manifest has got its name: nobody sees it, and it is swept away."""
        self.world.sinks[sink].staged.add((self._entry.epoch, self._who))

    def _diverge(self, sink: str, held: Publication, ours: str) -> None:
        self.note(f"diverges from {held.by} about {held.epoch}")
        self._diverged = True
        who = self.holder
        self._store.add_divergence(
            Divergence(
                held.epoch, sink, who.replica, who.incarnation, held.by, ours, held.digest, "simulated", self._clock()
            )
        )

    def _await_verdict(self, sink: str, index: int) -> None:
        judged = judged_divergence(self._store.divergences(), self._entry.epoch, sink, self.holder)
        if judged is None and self.draining:
            self.exit(EXIT_DIVERGED)
            return
        if judged is None:
            self.after(_VERDICT_POLL_S, lambda: self._await_verdict(sink, index))
            return
        self.note(f"is told to {judged.verdict}")
        self._diverged = False
        if goes_on(judged):
            self._go_on(index + 1)
        else:
            self.exit(EXIT_DIVERGED)

    def _finish_epoch(self) -> float:
        assert self.stage_progress is not None
        self._store.add_observed(self._entry.epoch, self._observed)
        self.moved_us = self.world.timeline.now_us
        self.stage_progress.done(_STAGE, self._entry, self._held)
        return 0.002

    def _commit_epoch(self) -> float:
        self.world.refuse_write("checkpoint")
        before = self.state
        self.state = self._next_state.damaged() if self._is_hit else self._next_state
        self._is_hit = False
        self._write(Checkpoint(self._entry.epoch, self._entry.epoch, self.state, before))
        return 0.002
