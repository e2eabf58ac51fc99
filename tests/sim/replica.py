"""A replica as a state machine: the life of an epoch step by step, with a fault possible before and after each step.

What it decides, production decides: when to seal (``Sealer`` over ``pacing`` and ``marks``), from what to start
(``beginning.choose``), what to say of itself (``Reporter``), how large epochs become (``next_record_limit``). Only what
takes time or touches the disk is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lockstep.clock import US_PER_S
from lockstep.connect.protocols import Publication, SourceSide
from lockstep.errors import StoreError
from lockstep.runtime import beginning
from lockstep.runtime.beginning import Situation
from lockstep.runtime.checkpoint import Standing
from lockstep.runtime.march import Standpoint
from lockstep.runtime.pacing import is_live, next_record_limit, smoothed_s
from lockstep.runtime.reporting import INTERVAL_S, Reporter
from lockstep.runtime.sealing import Sealer
from lockstep.runtime.spec import (
    EXIT_CHECKPOINT,
    EXIT_DIVERGED,
    EXIT_DRAINED,
    EXIT_FAILED,
    EXIT_RETIRED,
    ReplicaSpec,
)
from lockstep.store.protocols import Cut, Digest, Divergence, Entry, Holder, Item, Progress, Published, Store
from tests.sim.pipeline import SINKS, TIME_STEPS, VERSION, State, compute, digest, observe

if TYPE_CHECKING:
    from tests.sim.world import World

EXIT_KILLED = -9
START = State()
AWAKENING_S = 0.2
"""Over this long the threads of a process that hung come back to life, in any order."""
_SEAL_RETRY_S = 1.0
_VERDICT_POLL_S = 0.05


class Waits(Exception):
    """Raised where production would block: look again after this long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Proposes(Exception):
    """Raised where production would put an entry: the put takes a moment, in which others act."""

    def __init__(self, proposal: Entry) -> None:
        self.proposal = proposal


class ReplicaStore:
    """The store as one replica's process has it."""

    def __init__(self, store: Any, pid: int) -> None:
        self._store = store
        self._pid = pid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def wait(self, epoch: int, timeout_s: float) -> Entry | None:
        raise Waits(timeout_s)

    def seal(self, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:
        raise Proposes(proposal)

    def report(self, progress: Progress) -> None:
        self._store.report(replace(progress, pid=self._pid))


@dataclass(frozen=True)
class Checkpoint:
    """What Spark keeps on disk for a replica."""

    epoch: int = -1
    begun_epoch: int = -1
    state: State = START
    sound: bool = True


class SimReplica:
    """One process. Towards the supervisor it looks like ``control.processes.ReplicaProcess``."""

    STEPS: ClassVar[tuple[str, ...]] = (
        "begin",
        "run",
        "digest",
        *(f"publish {sink}" for sink in SINKS),
        "finish",
        "commit",
    )
    """The life of an epoch; every step but ``run`` is durable once it is done."""

    def __init__(self, world: World, spec: ReplicaSpec, *, gently: bool, pid: int) -> None:
        self.world = world
        self.name = spec.replica
        self.pid = pid
        self.gentle = gently
        self.alive = True
        self.zombie = False
        self.holder = Holder(self.name, 0)
        self.state = State()
        self.at = Standpoint()
        self.said = "starting"
        self._prefer_peer = spec.seed == "peer"
        self._exit_code: int | None = None
        self._still_until_us = 0
        self._overdue: list[Callable[[], None]] = []
        self._up_since_us: int | None = None
        self._draining = False
        self._diverged = False
        self._waiting_for: int | None = None
        self._entry = Entry(-1, 0, {})
        self._next_state = State()
        self._observed: dict[str, int | None] = {}
        self._ours = False
        self._is_hit = False
        self._limit = world.settings.records_per_epoch_start
        self._store = cast("Store", ReplicaStore(world.store, pid))
        self.after(0.05, self._begin)

    # What the supervisor asks of a process.

    def exit_code(self) -> int | None:
        """How it ended, None while it runs (as far as the supervisor can see)."""
        return self._exit_code

    def kill(self) -> None:
        """End it at once. A process that hangs may be out of reach: it is taken for dead and goes on later."""
        if self.zombie:
            return
        missed = self.alive and self.is_still and self.world.faults.kill_misses()
        self._exit_code = EXIT_KILLED if self._exit_code is None else self._exit_code
        self._down()
        self.zombie, self.alive = missed, missed

    def drain(self) -> None:
        """Finish the epoch under way and end."""
        self._draining = True
        if self._waiting_for is not None:
            self.after(0.05, self._look)

    def full_speed(self) -> None:
        """Niceness is not simulated."""
        self.gentle = False

    # How time and faults act on it.

    @property
    def is_still(self) -> bool:
        """Whether it hangs or pauses now."""
        return self.world.timeline.now_us < self._still_until_us

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later, if this process still lives; if it hangs then, when it moves again."""

        def happen() -> None:
            if self.alive and self.is_still:
                self._overdue.append(happen)
            elif self.alive:
                action()

        self.world.timeline.after(seconds, happen)

    def keep_still(self, seconds: float) -> None:
        """Hang or pause."""
        self.note(f"keeps still for {seconds:.1f} s")
        self._down()
        self._still_until_us = max(self._still_until_us, self.world.timeline.now_us + round(seconds * US_PER_S))
        self.world.timeline.after(seconds, lambda: None if self.is_still else self.move_again())

    def move_again(self) -> None:
        """The hang is over: whatever was due meanwhile races."""
        self._still_until_us = min(self._still_until_us, self.world.timeline.now_us)
        overdue, self._overdue = self._overdue, []
        for happen in overdue:
            self.world.timeline.after(self.world.draw.uniform(0, AWAKENING_S), happen)

    def hit(self) -> None:
        """A bit flips: the state it commits next is wrong, and so is everything after."""
        self.note("its state is damaged")
        self._is_hit = True

    def exit(self, code: int) -> None:
        """The process ends by itself (or by a fault)."""
        self.note(f"ends with {code}")
        self._down()
        self.alive = False
        if self._exit_code is None:
            self._exit_code = code

    def crash(self) -> None:
        """Killed at this very instruction."""
        own = self.world.checkpoints.get(self.name)
        if own is not None and self.world.faults.damages() and self.world.may_be_damaged(self.name):
            self._write(replace(own, sound=False, state=own.state.damaged()))
        self.exit(EXIT_KILLED)

    def note(self, what: str) -> None:
        """A line for the trace."""
        self.world.history.note(str(self.holder) + ("*" if self.zombie else ""), what)

    def tell(self, what: str) -> None:
        """A line for the trace that is counted too: tests ask whether it ever happened."""
        self.note(what)
        self.world.history.told[f"zombie {what}" if self.zombie else what] += 1

    def _guarded(self, step: str, action: Callable[[], float | None], then: Callable[[], None]) -> None:
        """A durable step and what follows it, with a fault drawn for before or after it."""
        fault = self.world.faults.at_step(self.name)
        after = fault is not None and self.world.faults.is_after()
        if fault is not None:
            self.tell(f"{fault} {'after' if after else 'before'} {step}")
        if fault == "crash" and not after:
            self.crash()
        elif fault is not None and not after:
            self.keep_still(self.world.faults.stillness_s(fault))
            self.after(0, lambda: self._perform(action, then))
        else:
            self._perform(action, then)
            if fault == "crash" and self.alive:
                self.crash()
            elif fault is not None and self.alive:
                self.keep_still(self.world.faults.stillness_s(fault))

    def _perform(self, action: Callable[[], float | None], then: Callable[[], None]) -> None:
        delay_s = action()
        if delay_s is not None:
            self.after(delay_s, then)

    # Its beginning.

    def _begin(self) -> None:
        self.holder = self._store.begin(self.name, self.pid)
        self.reporter = Reporter(self._store, self.holder, lambda: None, self.world.settings.lead_epochs_max)
        sources = cast("dict[str, SourceSide]", self.world.sources)
        clock = lambda: self.world.timeline.now_us  # noqa: E731
        self.sealer = Sealer(self._store, self.holder, sources, TIME_STEPS, self.world.settings, lambda _: None, clock)
        self._report_regularly()
        self._guarded("boot", lambda: self.world.boot_s(self.name), self._prepare)

    def _report_regularly(self) -> None:
        if not self._store.is_live(self.holder):
            self.note("finds itself retired")
            self.after(0.05, lambda: self.exit(EXIT_RETIRED))
            return
        self._report()
        self.after(INTERVAL_S, self._report_regularly)

    def _report(self) -> None:
        self.reporter.report()
        mine = [one for one in self.world.store.progress() if one.replica == self.name]
        if not self.zombie and mine and mine[0].incarnation == self.holder.incarnation:
            self.said = mine[0].state
        if self.said == "running" and self._up_since_us is None:
            self._up_since_us = self.world.timeline.now_us
        if self.said != "running":
            self._down()

    def _down(self) -> None:
        if self._up_since_us is not None:
            self.world.history.up_us.append((self._up_since_us, self.world.timeline.now_us))
        self._up_since_us = None

    def _prepare(self) -> None:
        """As ``beginning.prepare`` does it: look, choose, put a checkpoint in place."""
        self.reporter.state = "seeding"
        own = self.world.checkpoints.get(self.name)
        head = self._store.head()
        head_epoch = head.epoch if head else -1
        sound = own is not None and self._is_sound(own, head_epoch)
        standing = Standing(own.epoch, own.epoch, own.begun_epoch) if own is not None and sound else None
        now_us = self.world.timeline.now_us
        others = [one for one in self._store.progress() if one.replica != self.name]
        peers = [
            one for one in others if is_live(one, now_us) and self._store.is_live(Holder(one.replica, one.incarnation))
        ]
        situation = Situation(standing, sound, head_epoch, self._store.floor(), peers)
        beyond = self.world.settings.seed_beyond_epochs
        choice = beginning.choose(situation, prefer_peer=self._prefer_peer, seed_beyond_epochs=beyond)
        self.tell(f"starts from {'a peer' if choice in self.world.checkpoints else choice or 'nothing'}")
        self._take(choice)

    def _is_sound(self, own: Checkpoint, head_epoch: int) -> bool:
        return own.sound and own.begun_epoch <= head_epoch

    def _take(self, choice: str) -> None:
        if not choice:
            self.exit(EXIT_CHECKPOINT)
            return
        if choice == "scratch":
            self._write(Checkpoint())
        elif choice != "own":
            peer = self.world.checkpoints.get(choice)
            if peer is None or peer.epoch < 0 or not peer.sound:
                # A copy is verified before it is used.
                self.exit(EXIT_FAILED if peer is None or peer.sound else EXIT_CHECKPOINT)
                return
            self._write(replace(peer, begun_epoch=peer.epoch))
        self._guarded("prepare", lambda: 0.05, self._take_up)

    def _take_up(self) -> None:
        at = self.world.checkpoints[self.name]
        self.state = at.state
        if at.epoch >= 0:
            self.at = Standpoint(epoch=at.epoch)
        if at.begun_epoch <= at.epoch:
            self._ready(at.epoch + 1, self._store.observed(at.epoch))
        self.reporter.standpoint = lambda: self.at
        self.reporter.diverged = lambda: self._diverged
        self.reporter.state = "running"
        self._report()
        self._look()

    def _write(self, checkpoint: Checkpoint) -> None:
        # A zombie is out of reach of its successor, on another host: what it writes there nobody reads.
        if not self.zombie:
            self.world.checkpoints[self.name] = checkpoint

    # Sealing.

    def _ready(self, epoch: int, observed: dict[str, int | None], limit: int | None = None) -> None:
        self.sealer.ready(epoch, observed, limit)
        self.after(0, lambda: self._seal_when_due(epoch))

    def _seal_when_due(self, epoch: int) -> None:
        if self._draining or self._store.entry(epoch) is not None:
            return
        try:
            self.sealer._seal_when_due(epoch)
        except Waits as waits:
            self.after(waits.seconds, lambda: self._seal_when_due(epoch))
        except Proposes as proposes:
            proposal = proposes.proposal
            self.after(self.world.draw.uniform(0.001, 0.02), lambda: self._propose(proposal))

    def _propose(self, proposal: Entry) -> None:
        self._guarded("seal", lambda: self._seal(proposal), lambda: None)

    def _seal(self, proposal: Entry) -> float | None:
        try:
            held = self.world.store.seal(proposal, self.holder)
        except StoreError as error:
            self.tell(f"may not seal: {error.code}")
            if error.code == "LS0405":
                self.after(0.05, lambda: self.exit(EXIT_RETIRED))
            else:
                self.after(_SEAL_RETRY_S, lambda: self._seal_when_due(proposal.epoch))
            return None
        if held.sealed_by == str(self.holder):
            self.world.sealed(held, self)
        return None

    # The life of an epoch.

    def _look(self) -> None:
        """Take the next epoch if it is sealed; else wait until it is."""
        epoch = self.at.epoch + 1
        self._waiting_for = epoch
        if self._draining:
            self.exit(EXIT_DRAINED)
            return
        entry = self._store.entry(epoch)
        head = self._store.head()
        if entry is None and head is not None and head.epoch >= epoch:
            if not self.zombie:
                self.world.history.missing(epoch, by=str(self.holder), floor=self._store.floor())
            self.exit(EXIT_CHECKPOINT)
        elif entry is not None:
            self._waiting_for = None
            self._entry = entry
            self.world.history.used(entry, by=str(self.holder))
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
        action: Callable[[], float | None] = (
            (lambda: self._publish(sink, index)) if sink else getattr(self, f"_{step}_epoch")
        )
        self._guarded(self.STEPS[index], action, lambda: self._go_on(index + 1))

    def _begin_epoch(self) -> float:
        """Spark writes down which epoch its batch computes."""
        own = self.world.checkpoints.get(self.name, Checkpoint())
        self._write(replace(own, begun_epoch=self._entry.epoch))
        self.at = replace(self.at, working_on=self._entry.epoch)
        return 0.0

    def _run_epoch(self) -> float:
        before = self._store.entry(self._entry.epoch - 1)
        start: Cut = {
            name: before.cut[name] if before is not None else source.start()
            for name, source in self.world.sources.items()
        }
        if not self.zombie:
            for name, positions in start.items():
                self.world.history.read(name, positions, by=str(self.holder))
        self._next_state = compute(self.state, start, self._entry)
        self._observed = observe(start, self._entry.cut)
        self._ours = False
        return self.world.epoch_s(self.name)

    def _digest_epoch(self) -> float:
        epoch, who = self._entry.epoch, self.holder
        found = [
            Digest(epoch, sink, who.replica, who.incarnation, digest(self._next_state, sink), 1, VERSION)
            for sink in SINKS
        ]
        self._store.add_digests(found)
        for one in found:
            self.world.history.computed(epoch, one.sink, one.digest, by=str(who))
        return 0.002

    def _publish(self, sink: str, index: int) -> float | None:
        side = self.world.sinks[sink]
        ours = digest(self._next_state, sink)
        visible = len(side.visible)
        wanted = Publication(self._entry.epoch, ours, 1, str(self.holder), VERSION)
        held = side.publish(wanted, self.world.timeline.now_us)
        if len(side.visible) > visible:
            self.world.history.published(side)
        elif self.zombie:
            self.tell("publishes second")
        self._ours = self._ours or held.by == wanted.by
        if held.digest == ours:
            return 0.005
        self._diverge(sink, held, ours)
        self._await_verdict(sink, index)
        return None

    def _diverge(self, sink: str, held: Publication, ours: str) -> None:
        self.note(f"diverges from {held.by} about {held.epoch}")
        self._diverged = True
        who, now_us = self.holder, self.world.timeline.now_us
        self._store.add_divergence(
            Divergence(held.epoch, sink, who.replica, who.incarnation, held.by, ours, held.digest, "simulated", now_us)
        )

    def _await_verdict(self, sink: str, index: int) -> None:
        mine = (self._entry.epoch, sink, self.name, self.holder.incarnation)
        found = [
            one for one in self._store.divergences() if (one.epoch, one.sink, one.replica, one.incarnation) == mine
        ]
        verdict = found[0].verdict
        if not verdict:
            self.after(_VERDICT_POLL_S, lambda: self._await_verdict(sink, index))
            return
        self.note(f"is told to {verdict}")
        self._diverged = False
        if verdict == "go-on":
            self._go_on(index + 1)
        else:
            self.exit(EXIT_DIVERGED)

    def _finish_epoch(self) -> float:
        entry, now_us = self._entry, self.world.timeline.now_us
        took_s = max(0.001, (now_us - max(self.at.done_us, entry.epoch_time_us)) / US_PER_S)
        if self._ours:
            self._store.add_published(Published(entry.epoch, self.name, now_us, entry.records, None, None, took_s))
        self._store.add_observed(entry.epoch, self._observed)
        if self.at.done_us:
            self._limit = next_record_limit(self._limit, entry.records, took_s, self.world.settings)
        smoothed = smoothed_s(self.at.epoch_s, took_s) if self.at.done_us else 0.0
        self.at = Standpoint(entry.epoch, -1, smoothed, self.at.records + entry.records, now_us, now_us)
        self._report()
        self._ready(entry.epoch + 1, self._observed, self._limit)
        return 0.002

    def _commit_epoch(self) -> float:
        self.state = self._next_state.damaged() if self._is_hit else self._next_state
        self._is_hit = False
        self._write(Checkpoint(self._entry.epoch, self._entry.epoch, self.state))
        return 0.002
