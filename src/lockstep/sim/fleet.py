"""The processes on several hosts: production's own class holds them, through clients of simulated agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lockstep.agent.client import LOOK_TIMEOUT_S, AgentClient, AgentGone, AgentSilent
from lockstep.agent.contact import Contact
from lockstep.agent.hosting import Listed
from lockstep.control.hosts.agents import AgentProcesses, Found, RemoteProcess
from lockstep.control.supervise.spares import Shape
from lockstep.observe import promises
from lockstep.runtime.spec import ReplicaSpec
from lockstep.sim.child_processes import PLENTY_BYTES, listed
from lockstep.sim.replica import SimReplica
from lockstep.sim.spare import SimSpare

if TYPE_CHECKING:
    from lockstep.control.supervise.spares import Spare
    from lockstep.sim.coordinator import SimCoordinator
    from lockstep.sim.hosts import SimHost

_JOB = "sim"


def reaches(host: SimHost, other: SimHost) -> bool:
    """Whether a process of one host can talk to one of another."""
    return host.is_up and other.is_up and (host is other or (host.is_reachable and other.is_reachable))


class SimClient(AgentClient):
    """What a coordinator says to the agent of one host; commands of one that is dead do nothing."""

    def __init__(self, coordinator: SimCoordinator, contact: Contact, term: int) -> None:
        super().__init__(contact, _JOB, term)
        self._coordinator = coordinator
        self._world = coordinator.world
        self._host = self._world.hosts[contact.host]

    def listed(self, timeout_s: float = LOOK_TIMEOUT_S) -> tuple[list[Listed], int]:  # noqa: ARG002
        """All processes; memory is not simulated."""
        self._ask_agent()
        return [listed(child) for child in self._host.agent.children], PLENTY_BYTES

    def start(self, handle: str, spec: ReplicaSpec, shape: Mapping[str, Any], *, spare: bool, gently: bool) -> Listed:  # noqa: ARG002
        """Start a process."""
        self._ask_agent()
        if spare:
            child: SimReplica = self._world.spawn_spare(spec, shape, self._host)
        else:
            child = self._world.spawn(spec, gently=gently, host=self._host)
        self._coordinator.started.append(child)
        self._host.agent.children.append(child)
        return listed(child)

    def become(self, handle: str, spec: ReplicaSpec, *, gently: bool) -> bool:  # noqa: ARG002
        """Tell a spare which replica it is; whether it was there to listen."""
        self._ask_agent()
        spare = self._child(handle)
        assert isinstance(spare, SimSpare)
        spare.given_to.append(spec.replica)
        self._world.history.check(promises.given_once(f"process {spare.pid}", spare.given_to))
        heard = spare.become(spec)
        self._coordinator.tell(f"gives a spare {'away' if heard else 'up'}")
        return heard

    def cpu_s(self, handle: str) -> float:  # noqa: ARG002
        """Whoever computes makes an epoch here; nobody is busy without one."""
        return 0.0

    def command(self, handle: str, what: str) -> None:
        """``drain``, ``kill`` or ``full-speed``, which is not simulated."""
        self._ask_agent()
        child = self._child(handle)
        if child is not None and what == "drain":
            self._world.leaves(child, self._coordinator)
            child.drain()
        elif child is not None and what == "kill":
            child.kill()
            self._host.agent.children.remove(child)

    def close(self) -> None:
        """Nothing is open."""

    def _ask_agent(self) -> None:
        self._coordinator.refuse_if_dead()
        if not reaches(self._coordinator.host, self._host):
            raise AgentSilent("LS0680", f"the agent of {self._host.name} does not answer")
        if self.contact.instance != self._host.instance:
            raise AgentGone("LS0681", f"the agent of {self._host.name} is another one", why="it is gone.")
        self._host.agent.admit(self.term)

    def _child(self, handle: str) -> SimReplica | None:
        return next((one for one in self._host.agent.children if str(one.pid) == handle), None)


class SimDirectory:
    """The hosts that are announced: a thread of the coordinator follows the registry, while it can be reached."""

    def __init__(self, coordinator: SimCoordinator) -> None:
        self._coordinator = coordinator
        self._ready: dict[str, Contact] = {}

    def contacts(self) -> Mapping[str, Contact]:
        """Those that are there now, by name; nobody new while it cannot be asked."""
        world = self._coordinator.world
        if not self._coordinator.host.is_cut_off:
            announced = world.store.hosts()
            here = {name: world.hosts[name] for name in announced}
            self._ready = {name: one for name, one in self._ready.items() if name in here}
            for name, host in here.items():
                new = name not in self._ready or self._ready[name].instance != host.instance
                if new and reaches(self._coordinator.host, host):
                    self._ready[name] = Contact("sim:", "", "", name, host.instance)
        return dict(self._ready)

    def lost(self, host: str, why: str) -> str:
        """It is used again when it is there again."""
        self._ready.pop(host, None)
        self._coordinator.tell("loses a host")
        return why


class Fleet(AgentProcesses):
    """Production's processes on all hosts, with the promises kept in view."""

    def __init__(self, coordinator: SimCoordinator) -> None:
        self._coordinator = coordinator
        self._world = coordinator.world
        self._spares: list[RemoteProcess] = []
        super().__init__(
            SimDirectory(coordinator),
            _JOB,
            coordinator.term,
            self._world.last_host,
            lambda: self._world.timeline.elapsed_s,
            lambda contact, _, term: SimClient(coordinator, contact, term),
        )

    def adopted(self, found: Found) -> tuple[dict[str, RemoteProcess], list[tuple[RemoteProcess, Shape]]]:
        """Go on with the replicas and the spares that were found, as ``control.run`` does."""
        alive = [one for one in found.others if not self._child(one).zombie and one.exit_code() is None]
        passed_by = {one.listed.replica for one in alive}
        for name, process in found.replicas.items():
            wrong = self._child(process).zombie and name in passed_by
            told = f"adoption: {name} is adopted as {process.where}, which was retired, and ended where it lives"
            self._world.history.check([told] if wrong else [])
            self._coordinator.tell("adopts a replica")
        self._spares = [self.adopt(one) for one in found.spares]
        replicas = {name: self.adopt(one) for name, one in found.replicas.items()}
        return replicas, [(one, Shape.from_json(one.listed.shape)) for one in self._spares]

    def shape(self, spec: ReplicaSpec) -> Shape:
        """What the process of a replica is started with."""
        return Shape({"of": spec.replica if spec.replica in self._world.scenario.odd_shapes else "most"}, {}, ())

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> RemoteProcess:
        """A new process for a replica."""
        running = [one.pid for one in self._world.live() if one.acts_for == spec.replica and self._answers(one)]
        beside = {room.host: sorted(room.replicas) for room in self._rooms()}
        process = super().replica(spec, gently=gently)
        # Now: whoever was replaced is refused by the agent, and has started nothing.
        self._world.history.check(promises.one_process(spec.replica, running))
        if not spec.host:
            # Where somebody wants it, it lives.
            self._world.history.check(promises.placement(spec.replica, process.host, beside))
        self._check_spares([spec.replica])
        return process

    def _check_spares(self, awaited: list[str]) -> None:
        """One that is lost, or cannot be reached, takes nothing from whoever is started elsewhere."""
        known = [self._child(one) for one in self._spares if one.exit_code() is None]
        booting = [f"spare {one.pid}" for one in known if self._answers(one) and _boots_for_nobody(one)]
        self._world.history.check(promises.spares(booting, awaited))

    def spare(self, spec: ReplicaSpec, shape: Shape) -> RemoteProcess:
        """A new spare."""
        assert self._coordinator.supervisor is not None
        slots = self._coordinator.supervisor.slots.values()
        awaited = [one.name for one in slots if one.process is None or self._world.is_booting(one.process.pid)]
        self._spares.append(super().spare(spec, shape))
        self._check_spares(awaited)
        return self._spares[-1]

    def may_become(self, spare: Spare, replica: str) -> bool:
        """Whether a replica may live where this spare does."""
        may = super().may_become(spare, replica)
        if not may:
            self._coordinator.tell("passes a spare by: another replica lives there")
        return may

    def _child(self, process: RemoteProcess) -> SimReplica:
        return self._world.processes[process.pid - 1]

    def _answers(self, child: SimReplica) -> bool:
        """Whether the supervisor could have known of a process: its host is one that it asks, and would answer.

        A host that was cut off is in the network again before it is announced again. Until then nobody can know what a
        start that was ordered before the cut has become there: it is ended when the host is first asked, and of the two
        the one that began last acts.
        """
        return child.host.name in self._hosts and reaches(self._coordinator.host, child.host)


def _boots_for_nobody(child: SimReplica) -> bool:
    return isinstance(child, SimSpare) and child.alive and child.acts_for_nobody and not child.is_ready
