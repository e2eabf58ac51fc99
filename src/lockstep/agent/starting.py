"""Finding the agent of a job on this host, and starting one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from lockstep.agent.client import AgentClient, AgentGone
from lockstep.agent.description import LOG, Description, read
from lockstep.agent.processes import opened_log
from lockstep.errors import RunError

_POLL_S = 0.1


class Started(Protocol):
    """The process of an agent that was started here."""

    def poll(self) -> int | None:
        """How it ended, None while it runs."""


def find_agent(
    folder: Path, wait_s: float, sleep: Callable[[float], None] = time.sleep
) -> tuple[Description, AgentClient] | None:
    """The agent that serves a job's folder, None if there is none. One that is ending is waited for."""
    description = read(folder)
    if description is None:
        return None
    client = AgentClient(description.contact, description.job)
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            if not client.is_ending():
                return description, client
        except AgentGone:
            return None
        if time.monotonic() > deadline_s:
            raise RunError(
                "LS0682",
                f'the agent of job "{description.job}" does not end',
                why=f"its replicas have been finishing their epoch for {wait_s:.0f} s.",
                hint=f"end it: kill -9 $(cat {folder}/agent.pid), then run the job again.",
            )
        sleep(_POLL_S)


def start_agent(description: Description, project: Path) -> Started:
    """Start an agent that outlives this process. It can be talked to at once: what is said waits until it listens."""
    listening = listen(description)
    log = opened_log(Path(description.folder) / LOG)
    with listening, log:
        return subprocess.Popen(
            [sys.executable, "-m", "lockstep.agent", description.folder, str(listening.fileno())],
            stdin=subprocess.DEVNULL,
            # Standard output stays that of `lockstep run`: replicas have it from the agent.
            stdout=None,
            stderr=log,
            cwd=project,
            pass_fds=(listening.fileno(),),
            start_new_session=True,
        )


def listen(description: Description) -> socket.socket:
    """A socket for an agent, for its owner alone, with its description beside it."""
    path, before_it = Path(description.socket), read(Path(description.folder))
    if before_it is not None:
        # One that was killed has left it.
        Path(before_it.socket).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    listening.listen()
    description.write()
    return listening
