"""The processes of a simulated agent, as its supervisor holds them: replicas, and spares until they become some."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lockstep.agent.hosting import Listed
from lockstep.control.supervise.spares import Shape, Spare
from lockstep.errors import RunError
from lockstep.observe import promises
from lockstep.runtime.spec import ReplicaSpec
from lockstep.sim.replica import SimReplica
from lockstep.sim.spare import SimSpare

if TYPE_CHECKING:
    from lockstep.control.hosts.agents import Found, RemoteProcess
    from lockstep.sim.supervising import SimSupervisor

PLENTY_BYTES = 1 << 40
"""Memory is not simulated."""


class SimAgent:
    """Who has the processes, whoever supervises; it obeys the newest supervisor. That it dies is not simulated."""

    def __init__(self) -> None:
        self._term = 0
        self.children: list[SimReplica] = []

    def admit(self, term: int) -> None:
        """As :meth:`lockstep.agent.hosting.HostedJob.admit`."""
        if term < self._term:
            raise RunError("LS0610", f"a command of term {term} came, and the agent obeys term {self._term}")
        self._term = term


def listed(child: SimReplica) -> Listed:
    """A process as its agent tells of it."""
    is_spare = isinstance(child, SimSpare)
    return Listed(
        handle=str(child.pid),
        replica=child.acts_for,
        pid=child.pid,
        likeness=child.spec.likeness,
        shape=child.shape if isinstance(child, SimSpare) else {},
        gentle=child.gentle,
        ready=isinstance(child, SimSpare) and child.is_ready,
        exit_code=child.exit_code(),
        last_words="it is simulated" if is_spare else "",
    )


class Handle:
    """A process as its supervisor holds it; what a dead supervisor does with it does not happen."""

    def __init__(self, supervisor: SimSupervisor, child: SimReplica) -> None:
        self._supervisor = supervisor
        self._child = child
        self.pid = child.pid
        self.handle = str(child.pid)
        self.where = f"pid {child.pid}"
        self.gentle = child.gentle

    @property
    def listed(self) -> Listed:
        """As its agent tells of it."""
        return listed(self._child)

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._child.exit_code()

    @property
    def is_booting(self) -> bool:
        """Whether it lives and follows no ledger yet."""
        return self._child.alive and self._child.stage_progress is None

    def cpu_s(self) -> float:
        """Whoever computes makes an epoch here; nobody is busy without one."""
        return 0.0

    def error(self) -> str:
        """No simulated job is wrong."""
        return ""

    def full_speed(self) -> None:
        """Niceness is not simulated."""
        self.gentle = False

    def drain(self) -> None:
        """Finish the epoch under way and end."""
        if self._may_command():
            self._supervisor.world.leaves(self._child, self._supervisor)
            self._child.drain()

    def kill(self) -> None:
        """End it at once."""
        if self._may_command():
            self._child.kill()

    def _may_command(self) -> bool:
        if self._supervisor.alive:
            self._supervisor.world.agent.admit(self._supervisor.term)
        return self._supervisor.alive


class SpareHandle(Handle):
    """A spare, and the replica that it becomes."""

    last_words = "it is simulated"
    host = ""

    def __init__(self, supervisor: SimSupervisor, spare: SimSpare) -> None:
        super().__init__(supervisor, spare)
        self._spare = self.child = spare
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
        if not self._may_command():
            return True
        self._given_to.append(spec.replica)
        self._supervisor.world.history.check(promises.given_once(f"process {self.pid}", self._given_to))
        heard = self._spare.become(spec)
        self._supervisor.tell(f"gives a spare {'away' if heard else 'up'}")
        return heard


class SimProcesses:
    """What ``Spares`` asks of a machine, and the promise about spares kept in view."""

    def __init__(self, supervisor: SimSupervisor) -> None:
        self._supervisor = supervisor
        self._world = supervisor.world
        self._spares: list[SpareHandle] = []

    def running(self) -> list[RemoteProcess]:
        """All that run, for whoever begins to supervise."""
        self._admit()
        children = [one for one in self._world.agent.children if one.alive and not one.zombie]
        return [cast("RemoteProcess", self._handle(one)) for one in children]

    def _handle(self, child: SimReplica) -> Handle:
        is_spare = isinstance(child, SimSpare) and child.acts_for_nobody
        return SpareHandle(self._supervisor, cast("SimSpare", child)) if is_spare else Handle(self._supervisor, child)

    def adopted(self, found: Found) -> tuple[dict[str, Handle], list[tuple[SpareHandle, Shape]]]:
        """Go on with the replicas and the spares that were found."""
        self._spares = [cast("SpareHandle", one) for one in found.spares]
        for _ in found.replicas:
            self._supervisor.tell("adopts a replica")
        replicas = cast("dict[str, Handle]", found.replicas)
        return replicas, [(one, Shape.from_json(one.child.shape)) for one in self._spares]

    def crowded(self) -> str | None:
        """There is one machine, and nowhere else to go."""
        return None

    def shape(self, spec: ReplicaSpec) -> Shape:
        """What the process of a replica is started with."""
        return Shape({"of": spec.replica if spec.replica in self._world.scenario.odd_shapes else "most"}, {}, ())

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Handle:
        """A new process for a replica."""
        self._check([f"spare {one.pid}" for one in self._spares if one.is_booting_for_nobody], [spec.replica])
        self._world.history.check(promises.one_process(spec.replica, [one.pid for one in self._running(spec.replica)]))
        child = self._world.spawn(spec, gently=gently)
        self._hold(child)
        return Handle(self._supervisor, child)

    def spare(self, spec: ReplicaSpec, shape: Shape) -> SpareHandle:
        """A new spare."""
        assert self._supervisor.supervisor is not None
        slots = self._supervisor.supervisor.slots.values()
        awaited = [one.name for one in slots if not isinstance(one.process, Handle) or one.process.is_booting]
        self._check([f"a spare for {spec.replica}"], awaited)
        child = self._world.spawn_spare(spec, shape.to_json())
        self._hold(child)
        self._spares.append(SpareHandle(self._supervisor, child))
        return self._spares[-1]

    def _hold(self, child: SimReplica) -> None:
        self._supervisor.started.append(child)
        self._world.agent.children.append(child)

    def _running(self, replica: str) -> list[SimReplica]:
        return [one for one in self._world.agent.children if one.acts_for == replica and one.alive and not one.zombie]

    def may_become(self, spare: Spare, replica: str) -> bool:  # noqa: ARG002
        """All on one host."""
        return True

    def memory_free_bytes(self) -> int:
        """As much as anybody wants."""
        return PLENTY_BYTES

    def _admit(self) -> None:
        self._supervisor.refuse_if_dead()
        self._world.agent.admit(self._supervisor.term)

    def _check(self, booting: list[str], awaited: list[str]) -> None:
        self._admit()
        self._world.history.check(promises.spares(booting, awaited))
