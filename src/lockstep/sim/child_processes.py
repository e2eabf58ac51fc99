"""The processes that a simulated supervisor starts, as it holds them: replicas, and spares until they become some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.control.spares import Shape
from lockstep.observe import promises
from lockstep.runtime.spec import ReplicaSpec
from lockstep.sim.replica import SimReplica
from lockstep.sim.spare import SimSpare

if TYPE_CHECKING:
    from lockstep.sim.supervising import SimSupervisor

_PLENTY_BYTES = 1 << 40
"""Memory is not simulated."""


class Handle:
    """A child process as its supervisor holds it; what a dead supervisor does with it does not happen."""

    def __init__(self, supervisor: SimSupervisor, child: SimReplica) -> None:
        self._supervisor = supervisor
        self._child = child
        self.pid = child.pid
        self.gentle = child.gentle
        self.exit_code = child.exit_code

    @property
    def is_booting(self) -> bool:
        """Whether it lives and follows no ledger yet."""
        return self._child.alive and self._child.stage_progress is None

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


class SpareHandle(Handle):
    """A spare, and the replica that it becomes."""

    last_words = "it is simulated"

    def __init__(self, supervisor: SimSupervisor, spare: SimSpare) -> None:
        super().__init__(supervisor, spare)
        self._spare = spare
        self._given_to: list[str] = []

    @property
    def is_ready(self) -> bool:
        """Whether it has booted and is warm."""
        return self._spare.is_ready

    @property
    def is_booting_for_nobody(self) -> bool:
        """Whether it boots although nobody waits for it."""
        return self._spare.alive and self._spare.acts_for_nobody and not self._spare.is_ready

    def become(self, spec: ReplicaSpec, *, gently: bool) -> bool:  # noqa: ARG002
        """Tell it which replica it is; whether it was there to listen."""
        if not self._supervisor.alive:
            return True
        self._given_to.append(spec.replica)
        self._supervisor.world.history.check(promises.given_once(f"process {self.pid}", self._given_to))
        heard = self._spare.become(spec)
        self._supervisor.tell(f"gives a spare {'away' if heard else 'up'}")
        return heard


class SimProcesses:
    """What :class:`lockstep.control.spares.Spares` asks of a machine, and the promise about spares kept in view."""

    def __init__(self, supervisor: SimSupervisor) -> None:
        self._supervisor = supervisor
        self._world = supervisor.world
        self._spares: list[SpareHandle] = []

    def shape(self, replica: str) -> Shape:
        """What the process of a replica is started with."""
        return Shape({"of": replica if replica in self._world.scenario.odd_shapes else "most"}, {}, ())

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Handle:
        """A new process for a replica."""
        self._check([f"spare {one.pid}" for one in self._spares if one.is_booting_for_nobody], [spec.replica])
        child = self._world.spawn(spec, gently=gently)
        self._supervisor.children.append(child)
        return Handle(self._supervisor, child)

    def spare(self, spec: ReplicaSpec, number: int) -> SpareHandle:
        """A new spare."""
        assert self._supervisor.supervisor is not None
        slots = self._supervisor.supervisor.slots.values()
        awaited = [one.name for one in slots if not isinstance(one.process, Handle) or one.process.is_booting]
        self._check([f"spare {number}"], awaited)
        child = self._world.spawn_spare(spec)
        self._supervisor.children.append(child)
        self._spares.append(SpareHandle(self._supervisor, child))
        return self._spares[-1]

    def watch(self, process: Handle) -> None:
        """Niceness is not simulated."""

    def tend(self) -> None:
        """Nor is who starves."""

    def memory_free_bytes(self) -> int:
        """As much as anybody wants."""
        return _PLENTY_BYTES

    def _check(self, booting: list[str], awaited: list[str]) -> None:
        self._supervisor.refuse_if_dead()
        self._world.history.check(promises.spares(booting, awaited))
