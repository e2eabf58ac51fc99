"""Several hosts with an agent on each, and a Kafka and a ZooKeeper beside them: for the demo, benches and tests.

The hosts are Linux's namespaces (``services/hosts.py``); where these are not permitted, folders on this host, whose
processes are stopped instead of cut off. The servers have a host of their own, so that killing one of the others hurts
the job and nobody else.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from lockstep import services
from lockstep.agent.processes import kill_tree
from lockstep.agent.shares import family
from lockstep.bench.children import Child
from lockstep.security import TOKEN_VARIABLE, new_token
from lockstep.services.hosts import Host, hosts, is_own_network
from lockstep.store.opening import open_hosts

PORT = 7411
READY_TIMEOUT_S = 120.0


class Machine(Protocol):
    """A host that an agent stands for."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def address(self) -> str:
        """Where others reach it."""

    @property
    def folder(self) -> Path:
        """Its disk."""

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs ``words`` there."""

    def start(self) -> None:
        """Switch it on."""

    def kill(self) -> None:
        """Cut its power."""

    def pull_cable(self) -> None:
        """Cut it off from all others."""

    def plug_in(self) -> None:
        """Put the cable back."""


@dataclass
class FolderMachine:
    """A folder that stands for a host. Its processes are killed with its agent; cut off, they are stopped."""

    name: str
    folder: Path
    address: str = "127.0.0.1"
    agent_pid: int = 0

    def command(self, words: Sequence[str]) -> list[str]:
        """As everywhere."""
        return list(words)

    def start(self) -> None:
        """Nothing to do."""

    def kill(self) -> None:
        """All that its agent has."""
        kill_tree(self.agent_pid)

    def pull_cable(self) -> None:
        """Nobody hears of it any more."""
        self._signal(signal.SIGSTOP)

    def plug_in(self) -> None:
        """It goes on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for one in family(self.agent_pid):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(number)


class AgentOnHost(Child):
    """`lockstep agent` on one host."""

    def __init__(self, host: Machine, store: str, token: str) -> None:
        self.host = host
        self.folder = host.folder / "lockstep"
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "lockstep", "--project", str(self.folder), "agent"]
        words += [
            "--store",
            store,
            "--listen",
            f"{host.address}:{PORT if isinstance(host, Host) else 0}",
            "--name",
            host.name,
        ]
        program, *arguments = host.command(words)
        environment = {**os.environ, TOKEN_VARIABLE: token}
        super().__init__(
            f"the agent of {host.name}", arguments, self.folder / "agent.log", self.folder, environment, program
        )


@dataclass
class Cluster:
    """Hosts that run jobs, and the servers that outlive them."""

    machines: Sequence[Machine]
    servers: Mapping[str, services.Service]
    token: str
    agents: dict[str, AgentOnHost] = field(default_factory=dict)
    root: str = field(default_factory=lambda: f"lockstep-{secrets.token_hex(4)}")

    @property
    def store(self) -> str:
        """The address of the store that all hosts share."""
        return f"zookeeper://{self.servers['zookeeper'].address}/{self.root}"

    @property
    def kafka(self) -> str:
        """Where the broker is."""
        return self.servers["kafka"].address

    @property
    def environment(self) -> dict[str, str]:
        """For whoever talks to the agents."""
        return {**os.environ, TOKEN_VARIABLE: self.token}

    def start_agent(self, host: Machine) -> None:
        """Make a host one of those that jobs run on."""
        self.agents[host.name] = AgentOnHost(host, self.store, self.token)
        if isinstance(host, FolderMachine):
            host.agent_pid = self.agents[host.name].pid

    def wait_for_agents(self, count: int) -> None:
        """Until so many hosts are announced."""
        registry = open_hosts(self.store)
        try:
            one = next(iter(self.agents.values()))
            one.wait_until(lambda: len(registry.hosts()) >= count, READY_TIMEOUT_S, f"{count} hosts to be announced")
        finally:
            registry.close()

    def host(self, name: str) -> Machine:
        """One of them by its name."""
        return next(one for one in self.machines if one.name == name)

    def kill(self, name: str) -> None:
        """Cut a host's power."""
        self.host(name).kill()
        self.agents.pop(name).kill()

    def switch_on(self, name: str) -> None:
        """Start a host that was killed, and its agent."""
        host = self.host(name)
        host.start()
        self.start_agent(host)


@contextmanager
def cluster(folder: Path, machines: int = 3, disk_bytes: int = 0) -> Iterator[Cluster]:
    """So many hosts, each with an agent: real ones if this process is in a network of its own (``own_network``).

    With ``disk_bytes`` real ones have disks of that size.
    """
    with ExitStack() as stack:
        made = stack.enter_context(hosts(machines + 1, folder, disk_bytes)) if is_own_network() else []
        there = stack.enter_context(services.running("kafka", "zookeeper=3", folder=folder / "services", on=made[-1:]))
        used: Sequence[Machine] = made[:-1] or [
            FolderMachine(f"h{number}", folder / f"h{number}") for number in range(1, machines + 1)
        ]
        one = Cluster(used, {str(name): server for name, server in there.items()}, new_token())
        os.environ[TOKEN_VARIABLE] = one.token
        try:
            for host in one.machines:
                one.start_agent(host)
            one.wait_for_agents(machines)
            yield one
        finally:
            for agent in one.agents.values():
                agent.kill()
