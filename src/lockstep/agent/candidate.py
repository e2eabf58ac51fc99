"""The process that would coordinate a job from this host: it waits for the job's lease, and goes on if it gets it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lockstep.agent.processes import kill_tree, opened_log
from lockstep.credentials import write_private
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spark.boot import end_with_parent

DESIRED_FILE = "desired.json"
"""In a job's folder: what is to run. An agent that is started again takes it up if it is still wanted."""
LOG = "coordinator.log"
MODULE = "lockstep.control.coordinator.candidate"
AGAIN_S = 2.0
"""Between two starts of one that ended: it was replaced as coordinator, or something was in its way."""
LOOK_S = 0.5


def command(order: Path, project: Path, identity: str) -> list[str]:
    """How the process is started."""
    return [sys.executable, "-m", MODULE, str(order), str(project), identity]


class Candidate:
    """Kept running for as long as the job is wanted. It ends with this process, and with this thread."""

    def __init__(
        self,
        folder: Path,
        project: Path,
        host: str,
        on_death: Callable[[str], None],
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._project, self._host = folder, project, host
        self._on_death = on_death
        self._elapsed_s = elapsed_s
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._number = 0
        self._wanted = False

    def take_up(self, order: Mapping[str, Any]) -> None:
        """Have a process for this order; one that was started for another ends by itself when it sees the new one."""
        text = json.dumps(order, sort_keys=True)
        path = self._folder / DESIRED_FILE
        if path.exists() and path.read_text(encoding="utf-8") == text and self._wanted:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        write_private(path, text)
        self._end_process()
        self._wanted = True
        self._started_s = self._elapsed_s() - AGAIN_S

    def tend(self) -> float:
        """Start it if it is wanted and not there; after how long to look again."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            if code == 0:
                self.forget()
            elif code < 0:
                # Killed: its lease would be held until the coordination service sees that its session is over.
                self._on_death(self._identity)
        if self._wanted and self._process is None and self._elapsed_s() >= self._started_s + AGAIN_S:
            self._start()
        return LOOK_S

    def forget(self) -> None:
        """The job is over: nobody takes it up again."""
        self._wanted = False
        self._end_process()
        (self._folder / DESIRED_FILE).unlink(missing_ok=True)

    def end(self) -> None:
        """This agent ends; the job is still wanted."""
        self._wanted = False
        self._end_process()

    @property
    def _identity(self) -> str:
        return f"{self._host}.{self._number}"

    def _start(self) -> None:
        self._started_s = self._elapsed_s()
        self._number = time.time_ns()
        with opened_log(self._folder / LOG) as log:
            self._process = subprocess.Popen(
                command(self._folder / DESIRED_FILE, self._project, self._identity),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._project,
                env=process_environment(),
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one call, no locks
            )

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill_tree(process.pid)
            process.wait()
