"""Runs of ``lockstep run``: the real supervisor, its steps put on the timeline; it may hang, be killed, be replaced."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from lockstep.agent.leftovers import LockHolder
from lockstep.connect.protocols import SinkSide, SourceSide
from lockstep.control.coordinator.taking_over import WRITE, retire, sweep, take_over
from lockstep.control.hosts.agents import end_others, sorted_out
from lockstep.control.operations.changing import Changes, Operations, Unchanging
from lockstep.control.start.continuing import forget_removed, note_version
from lockstep.control.supervise.spares import Spares, Times
from lockstep.control.supervise.supervisor import TICK_S, Supervisor
from lockstep.control.supervise.surroundings import Surroundings
from lockstep.errors import LockstepError, StoreError
from lockstep.runtime.desired_run import DesiredRun
from lockstep.runtime.spec import replica_names
from lockstep.runtime.state.recovery import VERSION
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.sim.child_processes import SimProcesses
from lockstep.sim.replica import SimReplica
from lockstep.sim.store_access import StoreAt
from lockstep.store.patience import PATIENCE_S, patience, patience_s
from lockstep.store.protocols import Store

if TYPE_CHECKING:
    from lockstep.sim.fleet import Fleet
    from lockstep.sim.world import World


SPARE_TIMES = Times(calm_s=0.5, look_interval_s=0.2, failure_pause_s=1.0, trouble_pause_s=0.5, slowness=1.0)
"""A tenth of production's, more or less, as everything here."""
_LOCK_POLL_S = 0.02


def _no_steps() -> Steps[None]:
    yield from ()


class Gone(BaseException):
    """Raised inside a supervisor that is dead: nothing it would still do happens."""


class SimSupervisor:
    """One run, from its start to its end."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"supervisor{number}"
        self.alive = True
        self.hangs = False
        self.stopping = False
        self._woke_s = -1.0
        self.term = 0
        """None yet: nobody obeys it before it has taken over."""
        self.started: list[SimReplica] = []
        """The processes that it started itself."""
        self._strike: tuple[int, Callable[[], None]] | None = None
        self.supervisor: Supervisor | None = None
        """None while it takes over."""
        self._steps: Steps[None] = _no_steps()
        self._store = self._open_store()

    def _open_store(self) -> Store:
        return cast("Store", StoreAt(self.world.store, self._before_write, self._before))

    def _new_processes(self) -> SimProcesses | Fleet:
        return SimProcesses(self)

    def start(self) -> None:
        """Take the job over as ``control.run`` does, then supervise it."""
        self.note("starts")
        self._steps = self._life()
        self._go_on(partial(next, self._steps))

    def _life(self) -> Steps[None]:
        """As ``control.start.run`` puts it together."""
        timeline, clock, store = self.world.timeline, self.world.clock_of(self), self._store
        is_shared = self.world.scenario.hosts > 0
        self.term = yield from take_over(store, self.name, self._end_blocker, is_shared=is_shared)
        order = self.world.order
        template, settings = order.template(), order.parsed_settings()
        changes = self._changes(order)
        roster = {name: wanted.template.likeness for name, wanted in changes.roster().items()}
        processes = self._new_processes()
        speaking = {one.replica: one.process for one in store.progress()}
        kinds = changes.kinds if isinstance(changes, Operations) else ()
        found = sorted_out(processes.running(), template.likeness, roster, speaking, kinds)
        yield from end_others(found.others, processes.running, store, lambda: timeline.elapsed_s)
        adopted, waiting = processes.adopted(found)
        yield from retire(store, adopted)
        yield Step(WRITE, partial(self._settle_version, order))
        yield Step(WRITE, partial(forget_removed, store, {*roster, *adopted}))
        yield from sweep(store, cast("list[SinkSide]", list(self.world.sinks.values())), adopted)
        names = replica_names(settings.run.replicas)
        spares = Spares(store, template, settings, names, processes, lambda: timeline.elapsed_s, clock, SPARE_TIMES)
        spares.adopt(adopted, waiting)
        if isinstance(changes, Operations):
            changes.on_change = lambda orders: spares.follow(orders[0].template(), orders[0].parsed_settings())
        self.supervisor = Supervisor(
            store,
            template,
            settings,
            cast("dict[str, SourceSide]", self.world.sources),
            cast("dict[str, SinkSide]", self.world.sinks),
            self.name,
            around=Surroundings(
                now_us=clock,
                elapsed_s=lambda: timeline.elapsed_s,
                sleep=timeline.pass_by,
                start=spares,
                adopted=adopted,
                kinds={name: one.listed.likeness for name, one in found.replicas.items()},
                look=self._look,
                crowded=processes.crowded,
                reserve=spares,
                lock_holder=self._lock_holder,
            ),
            changes=changes,
        )
        if self.stopping:
            self.supervisor.stop()
        yield from self.supervisor.steps(lambda: None)

    def _changes(self, order: DesiredRun) -> Changes:
        if not self.world.scenario.operations:
            return Unchanging(order.template(), replica_names(order.settings["run"]["replicas"]))
        clock = self.world.clock_of(self)
        return Operations(self._store, order, lambda: self.world.timeline.elapsed_s, clock=clock)

    def _settle_version(self, order: DesiredRun) -> None:
        """Where another version of the code was noted, this one takes over after the foremost replica."""
        if self._store.fact(VERSION) != order.code_hash:
            note_version(self._store, order.code_hash, self.world.standings())

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.stopping = True
        if self.supervisor is not None:
            self.supervisor.stop()

    def hang(self, seconds: float) -> None:
        """Stand still for a while at one of the next moments, in the midst of what it does."""
        self._strike = (self.world.draw.randint(1, 8), lambda: self._stand_still(seconds))

    def kill(self) -> None:
        """End it at one of the next moments, in the midst of what it does."""
        self._strike = (self.world.draw.randint(1, 8), self.die)

    def die(self) -> None:
        """It is gone; its replicas are the agent's, and go on."""
        self.note("is killed")
        self.alive = False

    def note(self, what: str) -> None:
        """A line for the trace."""
        self.world.history.note(self.name, what)

    def tell(self, what: str) -> None:
        """A line for the trace that is counted too."""
        self.note(what)
        self.world.history.told[f"supervisor {what}"] += 1

    @property
    def has_just_woken(self) -> bool:
        """Whether it does what it decided before it stood still."""
        return self.world.timeline.elapsed_s - self._woke_s < TICK_S

    def _stand_still(self, seconds: float) -> None:
        self.note(f"stands still for {seconds:.1f} s")
        self.hangs = True
        self.world.timeline.pass_by(seconds)
        self.hangs, self._woke_s = False, self.world.timeline.elapsed_s
        if self.alive:
            self.tell("moves again")

    def close(self) -> None:
        """The world ends: nothing it would still do happens."""
        self.alive = False
        with suppress(Gone):
            self._steps.close()

    def calm(self) -> None:
        """No more faults."""
        self._strike = None

    def _before_write(self, operation: str) -> None:
        self._before()
        self._wait_for_lock(operation)
        self.world.refuse_write(operation)

    def _wait_for_lock(self, operation: str) -> None:
        """As long as whoever calls is willing to; the world goes on meanwhile."""
        timeline = self.world.timeline
        deadline_s = timeline.elapsed_s + patience_s()
        while self.world.write_lock.holder is not None:
            if timeline.elapsed_s >= deadline_s:
                self.tell("waits no longer for the store")
                raise StoreError("LS0413", f"{operation}: the store is locked")
            timeline.pass_by(_LOCK_POLL_S)
            self.refuse_if_dead()

    def _look(self) -> str:
        self.refuse_if_dead()
        self.world.agent.admit(self.term)
        return ""

    def _end_blocker(self) -> None:
        self.refuse_if_dead()
        if (holder := self.world.write_lock.holder) is not None:
            holder.kill()

    def _lock_holder(self) -> LockHolder | None:
        holder = self.world.write_lock.holder
        return LockHolder((holder.pid,), stopped=True) if holder is not None else None

    def _before(self) -> None:
        """What the world does to it before it asks the store for something."""
        self.refuse_if_dead()
        if took_s := self.world.store_call_s():
            self.world.timeline.pass_by(took_s)
            self.refuse_if_dead()
        if self._strike is not None:
            left, strike = self._strike
            self._strike = (left - 1, strike) if left > 1 else None
            if left == 1:
                strike()
                self.refuse_if_dead()

    def refuse_if_dead(self) -> None:
        """Nothing that a dead supervisor would still do happens."""
        if not self.alive:
            raise Gone

    def _go_on(self, advance: Callable[[], Step | Pause]) -> None:
        """Do what comes next, and all that comes at once after it."""
        while self.alive:
            try:
                wanted = advance()
                if isinstance(wanted, Pause):
                    self.world.timeline.after(wanted.seconds, lambda: self._go_on(partial(next, self._steps)))
                    return
                advance = self._done(wanted)
            except StopIteration:
                self._ended()
            except Gone:
                return
            except LockstepError as error:
                self._failed(error)
        self.close()

    def _done(self, step: Step) -> Callable[[], Step | Pause]:
        try:
            with patience(PATIENCE_S if step.patience_s is None else step.patience_s):
                return partial(self._steps.send, step.act())
        except LockstepError as error:
            return partial(self._steps.throw, error)

    def _ended(self) -> None:
        self.alive = False
        self.note("ends")
        if self.supervisor is not None and self.supervisor.failure is not None:
            raise self.supervisor.failure

    def _failed(self, error: LockstepError) -> None:
        """It ended with an error that passes, or because another one has taken over; anything else is a finding."""
        self.alive = False
        self.tell(f"gives up: {error.code}")
        if not isinstance(error, StoreError) and error.code != "LS0610":
            raise error
