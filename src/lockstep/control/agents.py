"""The processes of a job as its supervisor holds them: an agent has them, and is asked once before every decision."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lockstep.agent.client import AgentClient, AgentGone, AgentSilent
from lockstep.agent.hosting import Listed
from lockstep.agent.processes import with_jvm
from lockstep.config import Settings
from lockstep.control.spares import Shape
from lockstep.faults.switch import command_prefix, replica_environment
from lockstep.runtime.spec import ReplicaSpec

SILENT_PAUSE_S = 2.0
"""After a look that was not answered: the supervisor has other things to do than to wait for an agent."""
SILENT_S_MAX = 60.0
"""Longer than this nobody can be started or ended, and the job is stopped as with a store that is in trouble."""
RESTART_PAUSE_S = 1.0
"""Between two starts of an agent."""


def shape_of(settings: Settings, replica: str) -> Shape:
    """What the process of a replica is started with."""
    spark = settings.spark_of(replica).model_dump(mode="json")
    return Shape(spark, replica_environment(replica), tuple(command_prefix(replica)))


class RemoteProcess:
    """A replica or a spare in the hands of an agent, as it was at the last look."""

    def __init__(self, client: AgentClient, listed: Listed) -> None:
        self.listed = listed
        self._client: AgentClient | None = client

    def lose(self) -> None:
        """Its agent is gone, and it ends: there is nobody to tell it anything."""
        self._client = None
        if self.listed.exit_code is None:
            self.listed = replace(self.listed, exit_code=-signal.SIGKILL)

    @property
    def pid(self) -> int:
        """What the replica reports as its process id."""
        return self.listed.pid

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


class AgentProcesses:
    """Starts the processes of one job through an agent, and another agent if that one dies."""

    def __init__(
        self,
        client: AgentClient,
        settings: Settings,
        new_agent: Callable[[], AgentClient],
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings
        self._new_agent = new_agent
        self._elapsed_s = elapsed_s
        self._known: dict[str, RemoteProcess] = {}
        self._memory_free_bytes = 0
        self._next_look_s = 0.0
        self._next_agent_s = 0.0
        self._silent_since_s: float | None = None

    def adopt(self, listed: Listed) -> RemoteProcess:
        """Go on with a process that runs already."""
        return self._keep(listed)

    def shape(self, replica: str) -> Shape:
        """What the process of a replica is started with."""
        return shape_of(self._settings, replica)

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> RemoteProcess:
        """A new process for a replica. OSError if the agent cannot start it now."""
        return self._start(spec, {}, spare=False, gently=gently)

    def spare(self, spec: ReplicaSpec, shape: Shape) -> RemoteProcess:
        """A new spare, of the shape of this replica."""
        return self._start(spec, shape.to_json(), spare=True, gently=True)

    def memory_free_bytes(self) -> int:
        """What could be had at the last look."""
        return self._memory_free_bytes

    def look(self) -> str:
        """See how all processes are. If the agent is gone, all of them are, and another one is started: told then."""
        if self._elapsed_s() < self._next_look_s:
            return ""
        try:
            listed, self._memory_free_bytes = self._client.listed()
        except AgentGone as error:
            return self._replaced_agent(str(error.why))
        except AgentSilent:
            self._note_silence()
            return ""
        self._silent_since_s = None
        self._see({one.handle: one for one in listed})
        return ""

    def _see(self, listed: Mapping[str, Listed]) -> None:
        for handle, process in list(self._known.items()):
            if handle in listed:
                process.listed = listed[handle]
            else:
                # It was ended and acknowledged.
                self._known.pop(handle).lose()
        for handle in listed.keys() - self._known.keys():
            # The answer to its start was lost, and it was given up.
            RemoteProcess(self._client, listed[handle]).kill()

    def _note_silence(self) -> None:
        now_s = self._elapsed_s()
        self._next_look_s = now_s + SILENT_PAUSE_S
        self._silent_since_s = now_s if self._silent_since_s is None else self._silent_since_s
        if now_s - self._silent_since_s > SILENT_S_MAX:
            raise self._client.silence(now_s - self._silent_since_s)

    def _replaced_agent(self, why: str) -> str:
        if self._elapsed_s() < self._next_agent_s:
            return ""
        self._next_agent_s = self._elapsed_s() + RESTART_PAUSE_S
        running = sum(one.exit_code() is None for one in self._known.values())
        for one in self._known.values():
            one.lose()
        self._known.clear()
        self._client.close()
        try:
            self._client = self._new_agent()
        except OSError as error:
            return f"{why} No other one can be started now, it is tried again: {error}"
        return f"{why} Another one is started; the {running} processes of the first one end."

    def _start(self, spec: ReplicaSpec, shape: dict[str, Any], *, spare: bool, gently: bool) -> RemoteProcess:
        try:
            listed = self._client.start(secrets.token_hex(8), with_jvm(spec), shape, spare=spare, gently=gently)
        except (AgentSilent, AgentGone) as error:
            raise OSError(str(error)) from None
        return self._keep(listed)

    def _keep(self, listed: Listed) -> RemoteProcess:
        process = RemoteProcess(self._client, listed)
        self._known[listed.handle] = process
        return process
