"""The processes of a job, as its supervisor holds them through the agents of all hosts that the job may use.

On a laptop there is one, which `lockstep run` has built in. What an agent has is asked once before every decision; a
process is what its agent said last of it.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from lockstep.agent.client import AgentClient, AgentGone, AgentSilent
from lockstep.agent.contact import Contact
from lockstep.agent.hosting import Listed
from lockstep.agent.processes import with_jvm
from lockstep.config import Settings
from lockstep.control.coordinator.taking_over import END, WRITE
from lockstep.control.hosts.placing import Room, choose_host, crowded, may_live
from lockstep.control.supervise.spares import Shape, Spare
from lockstep.faults.switch import command_prefix, replica_environment
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.store.protocols import Store

SILENT_PAUSE_S = 1.0
"""An agent that did not answer is asked again after this; what it said last holds meanwhile."""
SILENT_S_MAX = 60.0
"""One that is silent for so long is taken for gone, if there are others."""
FIRST_LOOK_S = 15.0
PATIENCE_S = 5.0
"""For processes that are not adopted to finish their epoch."""
_POLL_S = 0.05


@dataclass(frozen=True)
class Found:
    """What runs already, for whoever begins to supervise."""

    replicas: dict[str, RemoteProcess]
    """To be adopted: they are what would be started."""
    spares: tuple[RemoteProcess, ...]
    others: tuple[RemoteProcess, ...]
    """With other code or settings, or not wanted any more, or ended."""


class Directory(Protocol):
    """The agents that a job may use."""

    def contacts(self) -> Mapping[str, Contact]:
        """Those that are there now, by the names of their hosts."""

    def lost(self, host: str, why: str) -> str:
        """This one is gone; what is done about it, for people. Empty: told before."""


class RemoteProcess:
    """A process of some agent's, as it was seen last. Implements what a supervisor wants of a process, and a spare."""

    def __init__(self, client: AgentClient, listed: Listed) -> None:
        self.listed = listed
        self.host = client.contact.host
        self._client: AgentClient | None = client

    def lose(self) -> None:
        """Its agent is gone, and it ends: there is nobody to tell it anything."""
        self._client = None
        if self.listed.exit_code is None:
            self.listed = replace(self.listed, exit_code=-signal.SIGKILL)

    @property
    def pid(self) -> int:
        """Its process id on its host, for people."""
        return self.listed.pid

    @property
    def handle(self) -> str:
        """What it is known by, everywhere."""
        return self.listed.handle

    @property
    def where(self) -> str:
        """For people."""
        return f"pid {self.pid} on {self.host}" if self.host else f"pid {self.pid}"

    @property
    def gentle(self) -> bool:
        """Whether it has less than a full share of the processor."""
        return self.listed.gentle

    @property
    def is_ready(self) -> bool:
        """Whether it has booted and is warm, if it is a spare."""
        return self.listed.ready

    @property
    def last_words(self) -> str:
        """Why it ended, if it is a spare that did."""
        return self.listed.last_words

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self.listed.exit_code

    def error(self) -> str:
        """What it wrote down about its end."""
        return self.listed.error

    def cpu_s(self) -> float:
        """The processor time that it and all below it have used; 0 if nobody can tell now."""
        try:
            return self._client.cpu_s(self.listed.handle) if self._client is not None else 0.0
        except (AgentSilent, AgentGone):
            return 0.0

    def full_speed(self) -> None:
        """Give it its full share: it has caught up."""
        self._command("full-speed")
        self.listed = replace(self.listed, gentle=False)

    def drain(self) -> None:
        """Ask it to finish the epoch under way and end."""
        self._command("drain")

    def kill(self) -> None:
        """End it at once; if it has ended, let the agent forget it."""
        self._command("kill")
        if self.listed.exit_code is None:
            self.listed = replace(self.listed, exit_code=-signal.SIGKILL)

    def become(self, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell a spare which replica it is; whether it was there to listen."""
        if self._client is None:
            return False
        try:
            heard = self._client.become(self.listed.handle, spec, gently=gently)
        except (AgentSilent, AgentGone):
            return False
        self.listed = replace(self.listed, replica=spec.replica, gentle=gently)
        return heard

    def _command(self, what: str) -> None:
        # If it is gone, its processes end with it, or are ended by the next one; the next look sees that.
        with suppress(AgentGone):
            if self._client is not None:
                self._client.command(self.listed.handle, what)


class _Host:
    """One agent, and the processes of its that this supervisor knows."""

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self.known: dict[str, RemoteProcess] = {}
        self.memory_free_bytes = 0
        self.next_look_s = 0.0
        self.silent_since_s: float | None = None

    def keep(self, process: RemoteProcess) -> RemoteProcess:
        self.known[process.handle] = process
        return process

    def look(self) -> None:
        listed, self.memory_free_bytes = self.client.listed()
        self.silent_since_s = None
        seen = {one.handle: one for one in listed}
        for handle, process in list(self.known.items()):
            if handle in seen:
                process.listed = seen[handle]
            else:
                # It was ended and acknowledged.
                self.known.pop(handle).lose()
        for handle in seen.keys() - self.known.keys():
            # The answer to its start was lost and it was given up, or its host was cut off and has come back.
            RemoteProcess(self.client, seen[handle]).kill()

    def lose(self) -> int:
        """It is gone; how many of its processes ran."""
        running = sum(one.exit_code() is None for one in self.known.values())
        for one in self.known.values():
            one.lose()
        self.client.close()
        return running

    def room(self) -> Room:
        running = [one for one in self.known.values() if one.exit_code() is None]
        replicas = frozenset(one.listed.replica for one in running if one.listed.replica)
        return Room(self.client.contact.host, replicas, len(running))


class AgentProcesses:
    """Starts the processes of one job through agents."""

    def __init__(
        self,
        directory: Directory,
        job: str,
        term: int,
        last_host: Callable[[str], str] = lambda _: "",
        elapsed_s: Callable[[], float] = time.monotonic,
        connect: Callable[[Contact, str, int], AgentClient] = AgentClient,
    ) -> None:
        self._connect = connect
        self._directory = directory
        self._job = job
        self._term = term
        self._last_host = last_host
        self._elapsed_s = elapsed_s
        self._hosts: dict[str, _Host] = {}
        self._follow_directory()

    def running(self) -> list[RemoteProcess]:
        """All processes on all hosts, for whoever begins to supervise; none of them is known before it is adopted."""
        found = []
        for host in self._hosts.values():
            try:
                listed, host.memory_free_bytes = host.client.listed(FIRST_LOOK_S)
            except (AgentGone, AgentSilent):
                continue  # told by the first look; what it has is not adopted, and ended when it is back
            found += [RemoteProcess(host.client, one) for one in listed]
        return found

    def adopt(self, process: RemoteProcess) -> RemoteProcess:
        """Go on with a process that runs already."""
        return self._hosts[process.host].keep(process)

    def shape(self, spec: ReplicaSpec) -> Shape:
        """What the process of a replica is started with."""
        return shape_of(spec.parsed_settings(), spec.replica)

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> RemoteProcess:
        """A new process for a replica. OSError if it cannot be started now."""
        return self._start(spec, {}, spare=False, gently=gently)

    def spare(self, spec: ReplicaSpec, shape: Shape) -> RemoteProcess:
        """A new spare, of the shape of this replica, where a replica may live if another host is lost."""
        return self._start(spec, shape.to_json(), spare=True, gently=True)

    def may_become(self, spare: Spare, replica: str) -> bool:
        """Whether a replica may live where this spare does: not beside another one while a host has none."""
        assert isinstance(spare, RemoteProcess)
        return may_live(self._rooms(), spare.host, replica)

    def host_names(self) -> list[str]:
        """The hosts that the job may use now; one without a name if it lives on this one alone."""
        return list(self._hosts)

    def crowded(self) -> str | None:
        """A replica that shares its host although some host has none."""
        return crowded(self._rooms())

    def memory_free_bytes(self) -> int:
        """What could be had at the last look, on the host that has most."""
        return max((host.memory_free_bytes for host in self._hosts.values()), default=0)

    def standings(self, stages: int) -> list[tuple[str, tuple[int, ...]]]:
        """Each replica and the newest epoch that each of its stages has computed, as all hosts know it."""
        found: list[tuple[str, tuple[int, ...]]] = []
        for host in self._hosts.values():
            with suppress(AgentGone, AgentSilent):
                found += host.client.standings(stages).items()
        return found

    def look(self) -> str:
        """See how all processes are; what to tell about those who have them, if one is gone."""
        told = self._follow_directory()
        for name, host in list(self._hosts.items()):
            if self._elapsed_s() < host.next_look_s:
                continue
            try:
                host.look()
            except AgentGone as error:
                told.append(self._lose(name, str(error.why)))
            except AgentSilent as error:
                told.append(self._note_silence(name, error))
        return " ".join(filter(None, told))

    def close(self) -> None:
        """Give the connections back."""
        for host in self._hosts.values():
            host.client.close()

    def _follow_directory(self) -> list[str]:
        contacts, told = self._directory.contacts(), []
        for name, host in list(self._hosts.items()):
            if contacts.get(name) != host.client.contact:
                told.append(self._lose(name, f"the agent of host {name} is not announced any more."))
        self._take_up_new()
        return told

    def _take_up_new(self) -> None:
        for name, contact in self._directory.contacts().items():
            if name not in self._hosts:
                self._hosts[name] = _Host(self._connect(contact, self._job, self._term))

    def _lose(self, name: str, why: str) -> str:
        text = self._directory.lost(name, why)
        if not text:
            return ""
        running = self._hosts.pop(name).lose()
        self._take_up_new()
        return f"{text} The {running} processes of the first one end."

    def _note_silence(self, name: str, error: AgentSilent) -> str:
        host, now_s = self._hosts[name], self._elapsed_s()
        host.next_look_s = now_s + SILENT_PAUSE_S
        host.silent_since_s = now_s if host.silent_since_s is None else host.silent_since_s
        if now_s - host.silent_since_s <= SILENT_S_MAX:
            return ""
        if len(self._hosts) == 1:
            raise host.client.silence(now_s - host.silent_since_s)
        return self._lose(name, str(error))

    def _rooms(self) -> list[Room]:
        return [host.room() for host in self._hosts.values() if host.silent_since_s is None]

    def _start(self, spec: ReplicaSpec, shape: dict[str, Any], *, spare: bool, gently: bool) -> RemoteProcess:
        name = self._host_for(spec, spare=spare)
        host = self._hosts[name]
        # On one host whoever supervises has loaded what it takes to find the JVM's command; other hosts find their own.
        sent = spec if name else with_jvm(spec)
        try:
            listed = host.client.start(secrets.token_hex(8), sent, shape, spare=spare, gently=gently)
        except (AgentSilent, AgentGone) as error:
            raise OSError(str(error)) from None
        return host.keep(RemoteProcess(host.client, listed))

    def _host_for(self, spec: ReplicaSpec, *, spare: bool) -> str:
        """Where it has to live, or where it lives best. OSError if there is no such host now."""
        rooms, replica = self._rooms(), "" if spare else spec.replica
        if spec.host and not spare:
            rooms = [room for room in rooms if room.host == spec.host]
        name = choose_host(rooms, replica, self._last_host(replica) if replica else "")
        if name is None:
            raise OSError(f"host {spec.host} is not there" if spec.host else "no host is there to start it on")
        return name


def shape_of(settings: Settings, replica: str) -> Shape:
    """What the process of a replica is started with."""
    environment, prefix = replica_environment(replica), tuple(command_prefix(replica))
    return Shape(settings.spark_of(replica).model_dump(mode="json"), environment, prefix)


def sorted_out(
    running: Sequence[RemoteProcess],
    likeness: str,
    roster: Mapping[str, str],
    speaking: Mapping[str, str],
    kinds: Collection[str] = (),
) -> Found:
    """Who can be gone on with: each replica once. ``roster`` has the likeness that each should have, ``likeness`` is
    that of spares, and ``speaking`` has the handle of whoever spoke last for each replica.

    While an operation is under way a replica may be of one of its ``kinds`` and not be what it should be now: it is
    gone on with too, and leaves when the others do without it.

    Of two processes of a replica one was retired while its host was cut off: the one that does not speak for it.
    """
    replicas: dict[str, RemoteProcess] = {}
    spares, others = [], []
    for one in sorted(running, key=lambda one: speaking.get(one.listed.replica) != one.handle):
        name, runs = one.listed.replica, one.exit_code() is None
        if runs and not name and one.listed.likeness == likeness:
            spares.append(one)
        elif runs and name and one.listed.likeness in (roster.get(name), *kinds) and name not in replicas:
            replicas[name] = one
        else:
            others.append(one)
    return Found(replicas, tuple(spares), tuple(others))


def end_others(
    others: Sequence[RemoteProcess],
    look: Callable[[], Sequence[RemoteProcess]],
    store: Store,
    elapsed_s: Callable[[], float] = time.monotonic,
) -> Steps[None]:
    """Let those that are not adopted finish their epoch, and end them."""
    for one in others:
        if one.exit_code() is None:
            yield Step(END, partial(_unless_silent, one.drain))
            text = f"{one.where} of an earlier run has other code or settings: it ends"
            yield Step(WRITE, partial(store.add_event, "replica-not-adopted", text, one.listed.replica))
    handles = {one.handle for one in others}
    deadline_s = elapsed_s() + PATIENCE_S
    while handles and elapsed_s() < deadline_s:
        if all(one.exit_code() is not None for one in look() if one.handle in handles):
            break
        yield Pause(_POLL_S)
    for one in others:
        yield Step(END, partial(_unless_silent, one.kill))


def _unless_silent(command: Callable[[], None]) -> None:
    """An agent that does not answer now is asked again by the supervisor, which ends what it does not know."""
    with suppress(AgentSilent):
        command()
