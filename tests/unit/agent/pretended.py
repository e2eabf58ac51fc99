"""An agent in a thread of the test, with processes that are none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.agent.description import Description
from lockstep.agent.hosting import Here, Hosted, HostedJob
from lockstep.agent.serving import Agent
from lockstep.agent.starting import listen
from lockstep.runtime.spec import ReplicaSpec


class Pretended:
    """A process that is none: what it was told is written down."""

    gentle = False
    is_ready = True
    last_words = ""

    def __init__(self, spec: ReplicaSpec, pid: int = 4711) -> None:
        self.spec, self.pid = spec, pid
        self.code: int | None = None
        self.heard: list[str] = []

    def exit_code(self) -> int | None:
        return self.code

    def cpu_s(self) -> float:
        return 1.5

    def full_speed(self) -> None:
        self.heard.append("full speed")

    def drain(self) -> None:
        self.heard.append("drain")
        self.code = 0

    def kill(self) -> None:
        self.heard.append("kill")
        self.code = -9 if self.code is None else self.code


class PretendedMachine:
    """Where they come from."""

    def __init__(self, make: Callable[..., Hosted] = Pretended) -> None:
        self._make = make
        self.made: list[Any] = []

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Hosted:
        made = self._make(spec)
        self.made.append(made)
        return made

    def spare(self, spec: ReplicaSpec, name: str) -> Any:
        return self.replica(spec, gently=True)

    def become(self, spare: Pretended, spec: ReplicaSpec, *, gently: bool) -> bool:
        spare.spec = spec
        return spare.code is None

    def tend(self) -> float | None:
        return None


HERE = Here(Path("/p"), Path("/p/.lockstep"))


def hosted(job: str, machine: PretendedMachine, orphan_timeout_s: float, here: Here = HERE) -> HostedJob:
    """A job whose processes are none."""
    return HostedJob(job, machine, here, orphan_timeout_s=orphan_timeout_s)


class AgentThread:
    """Serves until it is told to end, or nobody talks to it."""

    def __init__(self, description: Description, job: HostedJob) -> None:
        self._agent, self._description = Agent({description.job: job}), description
        self._thread = threading.Thread(target=self._serve, args=(listen(description),), daemon=True)
        self._thread.start()

    def _serve(self, listening: socket.socket) -> None:
        self._agent.serve(listening, self._description.token)
        self._description.remove()

    def poll(self) -> int | None:
        """As :class:`subprocess.Popen` tells it."""
        return None if self._thread.is_alive() else 0

    def wait(self) -> None:
        """Until it has ended."""
        self._thread.join(60)
        assert not self._thread.is_alive()


def started(machine: PretendedMachine) -> Callable[[Description, Path], AgentThread]:
    """In place of :func:`lockstep.agent.starting.start_agent`."""

    def start(description: Description, project: Path) -> AgentThread:
        here = Here(project, Path(description.folder).parent.parent)
        return AgentThread(description, hosted(description.job, machine, description.orphan_timeout_s, here))

    return start
