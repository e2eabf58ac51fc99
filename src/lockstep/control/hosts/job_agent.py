"""The agent of a job that `lockstep run` has built in: the one that runs already on this host, or a new one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lockstep import __version__
from lockstep.agent.client import AgentClient, AgentGone, AgentSilent
from lockstep.agent.contact import Contact
from lockstep.agent.description import Description, new
from lockstep.agent.starting import Started, find_agent, start_agent
from lockstep.config import RunSettings
from lockstep.runtime.desired_run import DesiredRun

RESTART_PAUSE_S = 1.0
"""Between two starts of an agent."""
_END_S = 15.0
_POLL_S = 0.05


class JobAgent:
    """Found or started; ended with the job. The only one in its directory (``Directory`` in ``agents.py``).

    ``may_start`` is asked before one is started for one that is gone: it raises if somebody else supervises by now,
    whose replicas would be ended.
    """

    def __init__(
        self,
        job: str,
        folder: Path,
        project: Path,
        run: RunSettings,
        term: int,
        may_start: Callable[[], None] = lambda: None,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._folder, self._project, self._run, self.term = job, folder, project, run, term
        self._may_start = may_start
        self._elapsed_s = elapsed_s
        self._next_start_s = 0.0
        self._started: Started | None = None
        self._description = self._found() or self._start()

    @property
    def is_new(self) -> bool:
        """Whether it was started just now, and has no process."""
        return self._started is not None

    def contacts(self) -> Mapping[str, Contact]:
        """The one there is."""
        return {"": self._description.contact}

    def lost(self, host: str, why: str) -> str:
        """It is gone: another one is started."""
        del host
        if self._elapsed_s() < self._next_start_s:
            return ""
        self._next_start_s = self._elapsed_s() + RESTART_PAUSE_S
        self._may_start()
        try:
            self._description = self._start()
        except OSError as error:
            return f"{why} No other one can be started now, it is tried again: {error}."
        return f"{why} Another one is started."

    def follow(self, orders: Sequence[DesiredRun]) -> None:
        """All code is in the job's folder."""

    def leave(self) -> None:
        """The run was refused: an agent that was started for it ends, one that was there stays."""
        if self.is_new:
            self.end()

    def forget(self) -> None:
        """Another one has it now."""

    def end(self) -> None:
        """End it, with all that it still has."""
        self._end(AgentClient(self._description.contact, self._job, self.term))

    def _found(self) -> Description | None:
        found = find_agent(self._folder, self._run.stop_timeout_s + _END_S)
        if found is None:
            return None
        about, client = found
        client.term = self.term
        if (about.version, about.orphan_timeout_s) == (__version__, self._run.orphan_timeout_s):
            client.close()
            return about
        # It would start replicas with another version than this one's, or wait for another time.
        self._end(client)
        return None

    def _start(self) -> Description:
        run = self._run
        about = new(self._job, self._folder, __version__, run.orphan_timeout_s, run.stop_timeout_s)
        self._started = start_agent(about, self._project)
        return about

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
        try:
            return client.is_ending()
        except OSError:
            return True  # it has forgotten the job, and is about to end
