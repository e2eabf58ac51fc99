"""Several hosts with an agent on each, and a Kafka and a ZooKeeper beside them: for the demo, benches and tests.

The hosts are Linux's namespaces (``services/hosts.py``). The servers have a host of their own, so that killing one of
the others hurts the job and nobody else.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lockstep import services
from lockstep.bench.children import Child
from lockstep.security import TOKEN_VARIABLE, new_token
from lockstep.services.hosts import Host, hosts
from lockstep.store.opening import open_hosts

PORT = 7411
READY_TIMEOUT_S = 120.0


class AgentOnHost(Child):
    """`lockstep agent` on one host."""

    def __init__(self, host: Host, store: str, token: str) -> None:
        self.host = host
        self.folder = host.folder / "lockstep"
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "lockstep", "--project", str(self.folder), "agent"]
        words += ["--store", store, "--listen", f"{host.address}:{PORT}", "--name", host.name]
        program, *arguments = host.command(words)
        environment = {**os.environ, TOKEN_VARIABLE: token}
        super().__init__(
            f"the agent of {host.name}", arguments, self.folder / "agent.log", self.folder, environment, program
        )


@dataclass
class Cluster:
    """Hosts that run jobs, and the servers that outlive them."""

    machines: Sequence[Host]
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

    def start_agent(self, host: Host) -> None:
        """Make a host one of those that jobs run on."""
        self.agents[host.name] = AgentOnHost(host, self.store, self.token)

    def wait_for_agents(self, count: int) -> None:
        """Until so many hosts are announced."""
        registry = open_hosts(self.store)
        try:
            one = next(iter(self.agents.values()))
            one.wait_until(lambda: len(registry.hosts()) >= count, READY_TIMEOUT_S, f"{count} hosts to be announced")
        finally:
            registry.close()

    def host(self, name: str) -> Host:
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
def cluster(folder: Path, machines: int = 3) -> Iterator[Cluster]:
    """So many hosts, each with an agent; this process must be in a network of its own (``hosts.own_network``)."""
    with ExitStack() as stack:
        made = stack.enter_context(hosts(machines + 1, folder))
        there = stack.enter_context(services.running("kafka", "zookeeper=3", folder=folder / "services", on=made[-1:]))
        one = Cluster(made[:-1], {str(name): server for name, server in there.items()}, new_token())
        os.environ[TOKEN_VARIABLE] = one.token
        try:
            for host in one.machines:
                one.start_agent(host)
            one.wait_for_agents(machines)
            yield one
        finally:
            for agent in one.agents.values():
                agent.kill()
