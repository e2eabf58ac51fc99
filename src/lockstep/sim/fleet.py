"""The processes on several hosts, as the coordinator of a job holds them: by the last look at each host's agent."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from lockstep.agent.client import AgentSilent
from lockstep.control.spares import Shape
from lockstep.observe import promises
from lockstep.runtime.spec import ReplicaSpec
from lockstep.sim.child_processes import Handle, SimProcesses, SpareHandle
from lockstep.sim.replica import SimReplica
from lockstep.sim.spare import SimSpare

if TYPE_CHECKING:
    from lockstep.sim.coordinator import SimCoordinator
    from lockstep.sim.hosts import SimHost
    from lockstep.sim.hosts_world import HostsWorld


class FarHandle(Handle):
    """A process of some host: how it is, its agent said at the last look."""

    _supervisor: SimCoordinator

    def __init__(self, supervisor: SimCoordinator, child: SimReplica) -> None:
        super().__init__(supervisor, child)
        self._host = child.host
        self._code = child.exit_code()
        self.is_lost = False

    def exit_code(self) -> int | None:
        """How it ended, None while it runs, as far as is known."""
        return self._code

    def see(self) -> None:
        """Its agent answers."""
        self._code = self._child.exit_code() if self._code is None else self._code

    def lose(self) -> None:
        """Its host is gone, or its agent does not know it: it counts as ended, and nobody can be told anything."""
        self.is_lost = True
        self._code = -signal.SIGKILL if self._code is None else self._code

    def kill(self) -> None:
        """End it at once."""
        super().kill()
        self._code = -signal.SIGKILL if self._code is None else self._code

    def _may_command(self) -> bool:
        if self.is_lost or not self._supervisor.alive:
            return False
        if not self._reaches():
            raise AgentSilent("LS0680", f"the agent of {self._host.name} does not answer")
        self._host.agent.admit(self._supervisor.term)
        return self._child in self._host.agent.children

    def _reaches(self) -> bool:
        return reaches(self._supervisor.host, self._host)


class FarSpareHandle(FarHandle, SpareHandle):
    """A spare of some host, and the replica that it becomes."""

    def __init__(self, supervisor: SimCoordinator, spare: SimSpare) -> None:
        SpareHandle.__init__(self, supervisor, spare)
        self._host = spare.host
        self._code = spare.exit_code()
        self.is_lost = False

    def become(self, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell it which replica it is; whether it was there to listen."""
        return self._reaches() and not self.is_lost and super().become(spec, gently=gently)


def reaches(host: SimHost, other: SimHost) -> bool:
    """Whether a process of one host can talk to one of another."""
    return host.is_up and other.is_up and (host is other or (host.is_reachable and other.is_reachable))


def place(replica: str, beside: Mapping[str, Collection[str]], state_at: str, load: Mapping[str, int]) -> str:
    """Where a replica is started: alone if possible, then where its state is, then where there is least.

    >>> place("r1", {"h1": ["r0"], "h2": [], "h3": []}, "h3", {})
    'h3'
    """

    def rank(host: str) -> tuple[bool, bool, int, str]:
        return any(one != replica for one in beside[host]), host != state_at, load.get(host, 0), host

    return min(beside, key=rank)


class Fleet(SimProcesses):
    """What :class:`lockstep.control.spares.Spares` asks of the hosts of a job."""

    _supervisor: SimCoordinator
    _world: HostsWorld

    def __init__(self, supervisor: SimCoordinator) -> None:
        super().__init__(supervisor)
        self._known: dict[int, FarHandle] = {}
        self._hosts: tuple[str, ...] = ()
        """Those that were announced at the last look."""

    def adopted(self) -> tuple[dict[str, Handle], list[tuple[SpareHandle, Shape]]]:
        """The replicas and the spares that run already, on the hosts that can be reached."""
        self._see_hosts()
        said = {one.replica: one.pid for one in self._world.store.progress()}
        replicas: dict[str, Handle] = {}
        waiting: list[tuple[SpareHandle, Shape]] = []
        for child in self._listed():
            if isinstance(child, SimSpare) and child.acts_for_nobody:
                spare = FarSpareHandle(self._supervisor, child)
                self._spares.append(spare)
                waiting.append((spare, Shape.from_json(child.shape)))
                self._known[child.pid] = spare
            elif child.acts_for not in replicas or said.get(child.acts_for) == child.pid:
                # Of two, the one that speaks for the replica; the other was replaced, and its host is back.
                replicas[child.acts_for] = FarHandle(self._supervisor, child)
        for handle in replicas.values():
            self._known[handle.pid] = handle  # type: ignore[assignment]
            self._supervisor.tell("adopts a replica")
        return replicas, waiting

    def look(self) -> None:
        """Ask the registry and every agent that can be reached."""
        self._see_hosts()
        listed = {child.pid: child for child in self._listed()}
        for pid, handle in list(self._known.items()):
            if handle._host.name not in self._hosts or (self._answers(handle._host) and not self._has(handle)):
                self._supervisor.tell("loses a process")
                self._known.pop(pid).lose()
            elif self._answers(handle._host):
                handle.see()
        for pid in listed.keys() - self._known.keys():
            self._supervisor.tell("ends a process that it does not know")
            listed[pid].kill()

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Handle:
        """A new process for a replica."""
        host = self._host_for(spec.replica)
        # One that cannot be reached takes nothing from whoever is started elsewhere.
        booting = [one for one in self._spares if one.is_booting_for_nobody and self._answers(one.child.host)]
        self._check([f"spare {one.pid}" for one in booting], [spec.replica])
        self._world.history.check(promises.one_process(spec.replica, [one.pid for one in self._running(spec.replica)]))
        self._world.history.check(promises.placement(spec.replica, host.name, self._beside()))
        return self._keep(FarHandle(self._supervisor, self._world.spawn(spec, gently=gently, host=host)))

    def spare(self, spec: ReplicaSpec, shape: Shape) -> SpareHandle:
        """A new spare, on the emptiest host."""
        assert self._supervisor.supervisor is not None
        slots = self._supervisor.supervisor.slots.values()
        awaited = [one.name for one in slots if not isinstance(one.process, Handle) or one.process.is_booting]
        load = self._load()
        host = self._started_on(min(load, key=lambda name: (load[name], name)) if load else "")
        self._check([f"a spare for {spec.replica}"], awaited)
        spare = FarSpareHandle(self._supervisor, self._world.spawn_spare(spec, shape.to_json(), host))
        self._spares.append(spare)
        self._keep(spare)
        return spare

    def _host_for(self, replica: str) -> SimHost:
        beside = self._beside()
        at = self._world.state_at.get(replica, "")
        return self._started_on(place(replica, beside, at, self._load()) if beside else "")

    def _started_on(self, name: str) -> SimHost:
        host = self._world.hosts.get(name)
        if host is None or not self._answers(host):
            raise OSError(f"the agent of {name or 'any host'} does not answer")
        host.agent.admit(self._supervisor.term)
        return host

    def _keep(self, handle: FarHandle) -> FarHandle:
        self._supervisor.started.append(handle._child)
        handle._host.agent.children.append(handle._child)
        self._known[handle.pid] = handle
        return handle

    def _see_hosts(self) -> None:
        self._supervisor.refuse_if_dead()
        self._hosts = tuple(self._supervisor.registry())
        for name in self._hosts:
            if self._answers(self._world.hosts[name]):
                self._world.hosts[name].agent.admit(self._supervisor.term)

    def _listed(self) -> list[SimReplica]:
        """What the agents have that answer, and that has not ended."""
        answering = [self._world.hosts[name] for name in self._hosts if self._answers(self._world.hosts[name])]
        return [child for host in answering for child in host.agent.children if child.alive]

    def _has(self, handle: FarHandle) -> bool:
        return handle._child in handle._host.agent.children

    def _answers(self, host: SimHost) -> bool:
        return reaches(self._supervisor.host, host)

    def _beside(self) -> dict[str, list[str]]:
        """The replicas on each host that can be started on, as far as is known."""
        found: dict[str, list[str]] = {name: [] for name in self._hosts if self._answers(self._world.hosts[name])}
        for one in self._known.values():
            if one.exit_code() is None and one._host.name in found and one._child.acts_for:
                found[one._host.name].append(one._child.acts_for)
        return found

    def _load(self) -> dict[str, int]:
        running = [one._host.name for one in self._known.values() if one.exit_code() is None]
        return {name: running.count(name) for name in self._beside()}

    def _running(self, replica: str) -> list[SimReplica]:
        """Who is this replica on the hosts that can be reached."""
        return [one for one in self._listed() if one.acts_for == replica and not one.zombie]

    def _admit(self) -> None:
        self._supervisor.refuse_if_dead()
