"""The simulated world with several hosts: they die, are cut off and come back, and their clocks are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from lockstep.connect.protocols import Publication
from lockstep.connect.sinks.order import check_not_retired
from lockstep.errors import RunError, StoreError
from lockstep.observe import promises
from lockstep.runtime.desired_run import LEASE
from lockstep.runtime.state.recovery import state_at
from lockstep.sim.coordination import SharedStore, StoreFrom
from lockstep.sim.coordinator import SimCoordinator
from lockstep.sim.fleet import reaches
from lockstep.sim.hosts import Disk, SimHost
from lockstep.sim.pipeline import SimSink
from lockstep.sim.process import EXIT_KILLED, SimProcess
from lockstep.sim.replica import SimReplica
from lockstep.sim.store_access import Blocked
from lockstep.sim.supervising import SimSupervisor
from lockstep.sim.timeline import HostClock
from lockstep.sim.world import LOOK_S, World
from lockstep.store.protocols import Holder

CANDIDATE_LOADS_S = (0.6, 1.2)
"""How long it takes until the candidate of a host is there: it is started, and loads the job."""


def host_names(count: int) -> list[str]:
    """The names of the hosts.

    >>> host_names(2)
    ['h1', 'h2']
    """
    return [f"h{number}" for number in range(1, count + 1)]


class TellingSink(SimSink):
    """A sink that keeps with the data who published: whoever was replaced there is refused, as Delta does it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.noted: dict[str, int] = {}
        """The newest incarnation of each replica that has published."""

    def publish(self, wanted: Publication, now_us: int) -> Publication:
        """Make the epoch visible unless it is, or unless whoever wants it was replaced."""
        holder = holder_named(wanted.by)
        check_not_retired(self.name, holder, self.noted.get(holder.replica, 0))
        return super().publish(wanted, now_us)

    def show(self, publication: Publication, now_us: int) -> None:
        """Readers see it from now on."""
        super().show(publication, now_us)
        holder = holder_named(publication.by)
        self.noted[holder.replica] = max(holder.incarnation, self.noted.get(holder.replica, 0))


def holder_named(text: str) -> Holder:
    """The holder that is written in a publication.

    >>> holder_named("r0.2")
    Holder(replica='r0', incarnation=2)
    """
    replica, _, incarnation = text.rpartition(".")
    return Holder(replica, int(incarnation))


class HostsWorld(World):
    """One seed's run on several hosts. Whoever coordinates is the candidate that has the lease."""

    store: SharedStore
    supervisors: Sequence[SimCoordinator]  # type: ignore[assignment]

    def _make_hosts(self) -> None:
        self.hosts = {name: SimHost(name, self._clocks[name]) for name in self._clock_names()}
        self.wanted = True
        """Whether the job shall run: candidates take it over only then."""
        self._candidates_s = dict.fromkeys(self.hosts, 0.0)
        """When the agent of each host starts its next candidate."""

    def _clock_names(self) -> Sequence[str]:
        return host_names(self.scenario.hosts)

    def _new_store(self) -> SharedStore:
        return SharedStore(self.timeline, self._retired, lambda who: self.hosts[who.rpartition("@")[2]].clock)

    def _new_sink(self, name: str) -> SimSink:
        return TellingSink(name)

    def clock_of(self, process: SimReplica | SimSupervisor) -> HostClock:
        """The wall clock of the host that it is on."""
        return cast("SimReplica | SimCoordinator", process).host.clock

    # What processes ask of the world, and how far they reach.

    def store_of(self, process: SimReplica) -> StoreFrom:
        """The store as a replica reaches it."""
        return StoreFrom(self.store, process.host, process.before_write, process.before_read, lambda: process.alive)

    def when_answering(self, process: SimProcess, go_on: Callable[[], None]) -> None:
        """Call back when a process that got no answer can ask again."""
        process.host.when_back(go_on)

    def no_answer(self, operation: str) -> StoreError:
        """What a call meets whose patience is at its end."""
        return StoreError("LS0421", f"{operation}: the coordination service did not answer")

    def reach_sinks(self, process: SimProcess) -> None:
        """Sinks may be on another network, which is not cut with the others."""
        if process.host.is_cut_off and not self.scenario.sinks_beyond:
            raise Blocked

    def disk_of_peer(self, process: SimReplica, peer: str) -> Disk:
        """Served by the agent of the host where the peer spoke last."""
        said = next(one for one in self.store.progress() if one.replica == peer)
        host, wanted = self.hosts[said.host], Holder(peer, said.incarnation)
        if not reaches(process.host, host):
            raise RunError("LS0606", f"no snapshot could be taken of {peer}: its host does not answer")
        self.refuse_seed_of_retired(wanted)
        is_live = self.store.is_live(wanted)
        self.history.check(promises.incarnation(str(wanted), f"seeds {process.holder}", is_live=is_live))
        return host.disk

    def refuse_seed_of_retired(self, wanted: Holder) -> None:
        """As ``runtime/transfer`` does on both sides: it was chosen before it was retired."""
        if not self.store.is_live(wanted):
            raise RunError("LS0606", f"no snapshot could be taken of {wanted.replica}: {wanted} was retired")

    def last_host(self, replica: str) -> str:
        """Where the state of a replica is."""
        return self.store.fact(state_at(replica)) or ""

    def is_booting(self, pid: int) -> bool:
        """Whether a process lives and follows no ledger yet."""
        process = self.processes[pid - 1]
        return process.alive and process.stage_progress is None

    def published(self, side: SimSink) -> None:
        """Something became visible: by nobody who was replaced there."""
        newest = holder_named(side.visible[-1][1].by)
        noted = side.noted.get(newest.replica, 0) if isinstance(side, TellingSink) else 0
        deed = f"publishes epoch {side.visible[-1][1].epoch} to {side.name}"
        super().published(side)
        self.history.check(promises.incarnation(str(newest), deed, is_live=noted <= newest.incarnation))

    def _retired(self, replica: str) -> None:
        """Whoever acts for a replica and was retired is a zombie, if it lives: wherever it is, nobody counts on it."""
        for one in self.processes:
            if one.alive and one.name == replica and one.holder.incarnation and not one.zombie:
                one.tell("is retired while it lives")
                one.down()
                one.zombie = True

    def disk_of(self, replica: str) -> Disk:
        """That of the host where it spoke last."""
        host = self.hosts.get(self.last_host(replica))
        return host.disk if host is not None else {}

    def _sound(self, floor: int) -> set[tuple[str, int]]:
        return {
            (name, stage)
            for name in {*self.names, *(replica for host in self.hosts.values() for replica, _ in host.disk)}
            for (replica, stage), one in self.disk_of(name).items()
            if replica == name and one.sound and one.epoch >= floor
        }

    # Fate.

    def _plan(self) -> None:
        super()._plan()
        self.store.history = self.history
        for name in self.hosts:
            self.store.announce(name, {})
        for at_s, name, down_s in self.scenario.hosts_killed_s:
            self.timeline.after(at_s, partial(self._kill_host, name, down_s))
        for at_s, name, cut_s in self.scenario.cut_off_s:
            self.timeline.after(at_s, partial(self._cut_off, name, cut_s))

    def _on(self, host: SimHost) -> list[SimCoordinator]:
        return [one for one in self.supervisors if one.alive and one.host is host]

    def _kill_host(self, name: str, down_s: float) -> None:
        host = self.hosts.get(name)
        if host is None or not host.is_up:
            return
        self.tell(f"{name} dies", "a host dies")
        host.is_up = False
        for one in self._on(host):
            one.alive = False
            self.store.sessions.fall_silent(one.name)
        for process in host.agent.children:
            if process.alive:
                process.exit(EXIT_KILLED)
        self.store.sessions.fall_silent(name)
        self.timeline.after(down_s, partial(self._boot, host))

    def _boot(self, host: SimHost) -> None:
        self.history.note("world", f"{host.name} is up again")
        host.renew()
        self._announce_soon(host)

    def _cut_off(self, name: str, cut_s: float) -> None:
        host = self.hosts.get(name)
        if host is None or host.is_cut_off:
            return
        self.tell(f"{name} is cut off for {cut_s:.1f} s", "a host is cut off")
        host.is_cut_off = True
        for process in host.agent.children:
            process.down()
        for who in (name, *(one.name for one in self._on(host))):
            self.store.sessions.fall_silent(who)
        self.timeline.after(cut_s, partial(self._mend, host))

    def _mend(self, host: SimHost) -> None:
        self.history.note("world", f"{host.name} is back in the network")
        host.come_back()
        self.store.sessions.hear(host.name)
        for one in self._on(host):
            if not one.hangs:
                self.store.sessions.hear(one.name)
        for process in host.agent.children:
            if process.alive:
                process.wake_all()
        if host.is_up:
            self._announce_soon(host)

    def _announce_soon(self, host: SimHost) -> None:
        def announce() -> None:
            if host.is_reachable:
                self.store.sessions.hear(host.name)
                self.store.announce(host.name, {})

        self.timeline.after(self.draw.uniform(0.0, 0.3), announce)

    def _black_out(self) -> None:
        self.history.note("world", "blackout: everything dies")
        for name in self.hosts:
            self._kill_host(name, self.draw.uniform(0.1, 1.0))

    def _to_supervisor(self, strike: Any) -> None:
        """Strike whoever coordinates; if nobody does, one of those that are about to."""
        alive = [one for one in self.supervisors if one.alive and not one.hangs]
        target = self.leader if self.leader is not None or not alive else self.draw.choice(alive)
        if target in alive:
            strike(target)

    def tell(self, line: str, what: str) -> None:
        """A line for the trace, and what kind of trouble it is."""
        self.history.note("world", line)
        self.history.told[what] += 1

    # Who coordinates.

    @property
    def leader(self) -> SimCoordinator | None:
        """Whoever has the lease."""
        holder = self.store.holder(LEASE)
        return next((one for one in self.supervisors if one.alive and one.name == holder), None)

    def lost(self, coordinator: SimCoordinator) -> None:
        """A process that coordinated, or waited to, has ended: the agent of its host gives its lease back for it."""

        def give_back() -> None:
            if coordinator.host.is_reachable:
                self.store.give_back(LEASE, coordinator.name)

        self.store.sessions.fall_silent(coordinator.name)
        self.timeline.after(self.draw.uniform(0.05, 0.3), give_back)

    def _look(self) -> None:
        self.timeline.after(LOOK_S, self._look)
        self.operator.look()
        if self._ending:
            return
        self._keep_candidates()
        leader = self.leader
        if leader is None:
            # Whoever stopped it starts it again.
            self.wanted = True
        elif leader.stopping or leader.hangs:
            return
        elif self._stops_s and self.timeline.elapsed_s >= self._stops_s[0]:
            self._stops_s.pop(0)
            self.history.note("world", "the job is stopped, and started again")
            self.wanted = False
            leader.stop()
        elif self.timeline.elapsed_s >= self.scenario.total_s and self._is_recovered():
            self.operator.check_end()
            self._ending, self._last = True, [one for one in self.live() if one.holder.incarnation]
            self.wanted = False
            leader.stop()

    def _keep_candidates(self) -> None:
        for host in self.hosts.values():
            if not host.is_up or self._on(host):
                self._candidates_s[host.name] = 0.0
            elif self._candidates_s[host.name] == 0.0:
                self._candidates_s[host.name] = self.timeline.elapsed_s + self.draw.uniform(*CANDIDATE_LOADS_S)
            elif self.timeline.elapsed_s >= self._candidates_s[host.name]:
                self._start_candidate(host)

    def _start_candidate(self, host: SimHost) -> None:
        candidate = SimCoordinator(self, len(self.supervisors) + 1, host)
        cast("list[SimCoordinator]", self.supervisors).append(candidate)
        candidate.start()

    def _is_over(self) -> bool:
        return self._ending and not any(one.alive and one.leads for one in self.supervisors)

    def _check_leftovers(self) -> None:
        left = [one for one in self.processes if one.alive]
        names = [f"process {one.pid} ({one.acts_for or 'a spare'} on {one.host.name})" for one in left]
        self.history.check([f"stopping: {name} outlived the job" for name in names])
