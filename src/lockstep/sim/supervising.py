"""Runs of ``lockstep run``: the real supervisor, its steps put on the timeline; it may hang, be killed, be replaced."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from lockstep.config import Settings
from lockstep.connect.protocols import SinkSide, SourceSide
from lockstep.control.supervisor import LEASE, LEASE_S, Supervisor, Surroundings
from lockstep.errors import LockstepError, StoreError
from lockstep.runtime.spec import ReplicaSpec
from lockstep.sim.disk import StoreAt
from lockstep.sim.replica import SimReplica
from lockstep.store.protocols import Store

if TYPE_CHECKING:
    from lockstep.sim.world import World


def _no_steps() -> Generator[float, None, None]:
    yield from ()


class Gone(BaseException):
    """Raised inside a supervisor that is dead: nothing it would still do happens."""


class Handle:
    """A child process as its supervisor holds it; what a dead supervisor does with it does not happen."""

    def __init__(self, supervisor: SimSupervisor, child: SimReplica) -> None:
        self._supervisor = supervisor
        self._child = child
        self.pid = child.pid
        self.gentle = child.gentle
        self.exit_code = child.exit_code

    def cpu_s(self) -> float:
        """Whoever computes makes an epoch here; nobody is busy without one."""
        return 0.0

    def full_speed(self) -> None:
        """Niceness is not simulated."""
        self.gentle = False

    def drain(self) -> None:
        """Finish the epoch under way and end."""
        if self._supervisor.alive:
            self._child.drain()

    def kill(self) -> None:
        """End it at once."""
        if self._supervisor.alive:
            self._child.kill()


class SimSupervisor:
    """One run, from its start to its end."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"supervisor{number}"
        self.alive = True
        self.hangs = False
        self.stopping = False
        self.children: list[SimReplica] = []
        self._strike: tuple[int, Callable[[], None]] | None = None
        self._steps: Generator[float, None, None] = _no_steps()
        self._store = cast("Store", StoreAt(world.store, self._before_write, self._before))

    def start(self) -> None:
        """Take the job over as ``control.run`` does: the lease first, then an end to whoever is left."""
        self.note("starts")
        try:
            self._take_over()
        except StoreError as error:
            self.note(f"cannot start: {error.code}")
            self.alive = False
            return
        timeline = self.world.timeline
        self.supervisor = Supervisor(
            self._store,
            ReplicaSpec("project", "store", "sim", "job.py", "", "", "auto", {}),
            Settings(run=self.world.settings),
            cast("dict[str, SourceSide]", self.world.sources),
            cast("dict[str, SinkSide]", self.world.sinks),
            self.name,
            around=Surroundings(
                now_us=self.world.clock("supervisor"),
                elapsed_s=lambda: timeline.elapsed_s,
                sleep=timeline.pass_by,
                start=self._spawn,
            ),
        )
        self._steps = self.supervisor.steps(lambda: None)
        self._step()

    def _take_over(self) -> None:
        holder = self._store.holder(LEASE)
        if holder is not None:
            # Whoever held it is dead: otherwise this one would not have been let in.
            self._store.release(LEASE, holder)
        self._store.acquire(LEASE, self.name, LEASE_S)
        for said in self._store.progress():
            self._store.retire(said.replica)
        for process in self.world.processes:
            process.kill()
        for sink in self.world.sinks.values():
            sink.sweep([str(process.holder) for process in self.world.processes])

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.stopping = True
        self.supervisor.stop()

    def hang(self, seconds: float) -> None:
        """Stand still for a while at one of the next moments, in the midst of what it does."""
        self._strike = (self.world.draw.randint(1, 8), lambda: self._stand_still(seconds))

    def kill(self) -> None:
        """End it at one of the next moments, in the midst of what it does."""
        self._strike = (self.world.draw.randint(1, 8), self.die)

    def die(self) -> None:
        """It is gone: its replicas notice that nobody holds their pipe."""
        self.note("is killed")
        self.alive = False
        for child in self.children:
            child.after(self.world.draw.uniform(0.0, 0.3), child.drain)

    def note(self, what: str) -> None:
        """A line for the trace."""
        self.world.history.note(self.name, what)

    def tell(self, what: str) -> None:
        """A line for the trace that is counted too."""
        self.note(what)
        self.world.history.told[f"supervisor {what}"] += 1

    def _stand_still(self, seconds: float) -> None:
        self.note(f"stands still for {seconds:.1f} s")
        self.hangs = True
        self.world.timeline.pass_by(seconds)
        self.hangs = False
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
        self.world.refuse_write(operation)

    def _before(self) -> None:
        """What the world does to it before it asks the store for something."""
        self._refuse_if_dead()
        if self._strike is not None:
            left, strike = self._strike
            self._strike = (left - 1, strike) if left > 1 else None
            if left == 1:
                strike()
                self._refuse_if_dead()

    def _refuse_if_dead(self) -> None:
        if not self.alive:
            raise Gone

    def _step(self) -> None:
        if not self.alive:
            self.close()
            return
        try:
            pause_s = next(self._steps, None)
        except Gone:
            return
        except LockstepError as error:
            self._failed(error)
            return
        if pause_s is None:
            self.alive = False
            self.note("ends")
            if self.supervisor.failure is not None:
                raise self.supervisor.failure
        else:
            self.world.timeline.after(pause_s, self._step)

    def _failed(self, error: LockstepError) -> None:
        """It ended with an error that passes, or because another one has taken over; anything else is a finding."""
        self.alive = False
        self.tell(f"gives up: {error.code}")
        if not isinstance(error, StoreError) and error.code != "LS0610":
            raise error

    def _spawn(self, spec: ReplicaSpec, *, gently: bool = False) -> Handle:
        self._refuse_if_dead()
        child = self.world.spawn(spec, gently=gently)
        self.children.append(child)
        return Handle(self, child)
