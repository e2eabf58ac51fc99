"""The agent of a job on this machine: the one that runs already, with what it has, or a new one."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep import __version__
from lockstep.agent.client import AgentClient, AgentGone, AgentSilent
from lockstep.agent.description import new
from lockstep.agent.hosting import Listed
from lockstep.agent.starting import Started, find_agent, start_agent
from lockstep.config import RunSettings
from lockstep.store.protocols import Store

PATIENCE_S = 5.0
"""For processes that are not adopted to finish their epoch."""
_FIRST_LOOK_S = 15.0
_END_S = 15.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Found:
    """What runs already, for whoever begins to supervise."""

    replicas: dict[str, Listed]
    """To be adopted: they are what would be started."""
    spares: tuple[Listed, ...]
    others: tuple[Listed, ...]
    """With other code or settings, or not wanted any more, or ended."""


def sorted_out(listed: Sequence[Listed], likeness: str, names: Collection[str]) -> Found:
    """Who can be gone on with: each replica once.

    >>> one = Listed("a1", "r0", 7, likeness="x", shape={})
    >>> found = sorted_out([one, Listed("b2", "r1", 8, "another", {}), Listed("c3", "", 9, "x", {})], "x", ["r0", "r1"])
    >>> list(found.replicas), [spare.pid for spare in found.spares], [other.pid for other in found.others]
    (['r0'], [9], [8])
    """
    replicas: dict[str, Listed] = {}
    spares, others = [], []
    for one in listed:
        fits = one.likeness == likeness and one.exit_code is None
        if fits and not one.replica:
            spares.append(one)
        elif fits and one.replica in names and one.replica not in replicas:
            replicas[one.replica] = one
        else:
            others.append(one)
    return Found(replicas, tuple(spares), tuple(others))


class JobAgent:
    """Found or started; ended with the job."""

    def __init__(self, job: str, folder: Path, project: Path, run: RunSettings, term: int) -> None:
        self._job, self._folder, self._project, self._run, self.term = job, folder, project, run, term
        self._started: Started | None = None
        self.client = self._found() or self.start()

    def _found(self) -> AgentClient | None:
        client = find_agent(self._folder, self._run.stop_timeout_s + _END_S)
        if client is None:
            return None
        client.term = self.term
        about = client.description
        if (about.version, about.orphan_timeout_s) == (__version__, self._run.orphan_timeout_s):
            return client
        # It would start replicas with another version than this one's, or wait for another time.
        self._end(client)
        return None

    def start(self) -> AgentClient:
        """A new one, at the beginning or because the one before is gone."""
        run = self._run
        about = new(self._job, self._folder, __version__, run.orphan_timeout_s, run.stop_timeout_s)
        self._started = start_agent(about, self._project)
        self.client = AgentClient(about, self.term)
        return self.client

    def listed(self) -> list[Listed]:
        """What it has; nothing if it was started just now."""
        return [] if self._started is not None else self.client.listed(_FIRST_LOOK_S)[0]

    def end_others(self, others: Sequence[Listed], store: Store) -> None:
        """Let those that are not adopted finish their epoch, and end them."""
        for one in others:
            if one.exit_code is None:
                self.client.command(one.handle, "drain")
                text = f"pid {one.pid} of an earlier run has other code or settings: it ends"
                store.add_event("replica-not-adopted", text, one.replica)
        handles = {one.handle for one in others}
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s and any(
            one.exit_code is None for one in self.client.listed(_FIRST_LOOK_S)[0] if one.handle in handles
        ):
            time.sleep(_POLL_S)
        for handle in handles:
            self.client.command(handle, "kill")

    def leave(self) -> None:
        """The run was refused: an agent that was started for it ends, one that was there stays."""
        if self._started is not None:
            self.end()

    def end(self) -> None:
        """End it, with all that it still has."""
        self._end(self.client)

    def _end(self, client: AgentClient) -> None:
        try:
            client.end()
            deadline_s = time.monotonic() + _END_S
            while time.monotonic() < deadline_s and self._is_there(client):
                time.sleep(_POLL_S)
        except (AgentGone, AgentSilent):
            # One that does not answer ends by itself when nobody talks to it any more.
            return
        finally:
            client.close()

    def _is_there(self, client: AgentClient) -> bool:
        if self._started is not None:
            return self._started.poll() is None
        # By a new connection each time: only that tells whether anybody listens.
        client.close()
        return client.is_ending()
