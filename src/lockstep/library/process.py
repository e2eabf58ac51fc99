"""The process that supervises a job which this program has started, as the program holds it."""

from __future__ import annotations

import copy
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from lockstep.agent.description import PID_FILE
from lockstep.agent.leftovers import leftovers
from lockstep.agent.processes import kill_tree, opened_log
from lockstep.errors import LockstepError, RunError, from_wire
from lockstep.runtime.process_environment import process_environment

STOP, KILL = "stop", "kill"
"""What it is told: to end the job after the epoch under way, or at once."""
LOG = "supervisor.log"
"""In the job's folder."""
_LOG_LINES_SHOWN = 15
_KILL_S_MAX = 60.0
"""A supervisor that was told to end everything at once and has not by then is ended itself, with all that it had."""
_GRACE_S = 60.0
"""What a graceful stop may take beyond the job's ``stop_timeout_s``: the agent ends, the store is told."""


class SupervisorProcess:
    """Started with an order; says once that the job may run or why not, and once how it ended.

    It is in a session of its own: Ctrl-C and the interrupt of a cell reach this program alone, which then decides.
    """

    def __init__(self, order: Mapping[str, Any], folder: Path) -> None:
        self._folder, self._project = folder, Path(order["project"])
        self._temporary = bool(order["temporary"])
        self._stop_timeout_s = 0.0
        self._hearing = threading.Lock()
        self.failure: LockstepError | None = None
        self.ended = False
        self.done = False
        """Whether the job came to its end by itself."""
        environment = process_environment()
        folder.mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        self._answers = os.fdopen(reading, "rb", buffering=0)
        self._poll = select.poll()
        self._poll.register(reading, select.POLLIN)
        try:
            self._process = self._started(writing, environment)
        finally:
            os.close(writing)
        self._say(json.dumps({**order, "owner": os.getpid()}))

    def _started(self, answers: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with opened_log(self._folder / LOG) as log:
            return subprocess.Popen(
                [sys.executable, "-m", "lockstep.library.supervising", str(answers)],
                stdin=subprocess.PIPE,
                bufsize=0,
                # Standard output stays that of this program: the console sink writes there.
                stdout=None,
                stderr=log,
                cwd=self._project,
                env=environment,
                pass_fds=(answers,),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Until the job may run; raises why it may not."""
        while not self._stop_timeout_s and not self.ended:
            self.look(None)
        self.check()

    def look(self, timeout_s: float | None) -> bool:
        """Wait so long (None: without a limit) for it to say something; whether the job is over."""
        if not self.ended and self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            with self._hearing:  # one thread may feed the job while another waits
                if not self.ended and self._poll.poll(0):
                    self._hear(self._answers.readline())
        return self.ended

    def check(self) -> None:
        """Raise what ended the job, if something did."""
        if self.failure is not None:
            # A new one each time: it carries the traceback of whoever asks, and all that hangs on that.
            raise copy.copy(self.failure)

    def stop(self) -> None:
        """End the job after the epoch under way, and wait until nothing of it is left."""
        self._say(STOP)
        if not self._over_within(self._stop_timeout_s + _GRACE_S):
            self.kill()

    def kill(self) -> None:
        """End the job at once, and wait until nothing of it is left."""
        self._say(KILL)
        if not self._over_within(_KILL_S_MAX):
            self._process.kill()
            self.look(None)
            end_at_once(self._folder)
            self.failure = None  # it was told to end

    def _over_within(self, seconds: float) -> bool:
        deadline_s = time.monotonic() + seconds
        while not self.ended and (left_s := deadline_s - time.monotonic()) > 0:
            self.look(left_s)
        return self.ended

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        # It may be gone: then its last words are what counts.
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{line}\n".encode())

    def _hear(self, line: bytes) -> None:
        said = json.loads(line) if line else None
        if said is None:
            self._over(self._vanished())
        elif "ready" in said:
            self._stop_timeout_s = said["stop_timeout_s"]
        else:
            self.done = said.get("done", False)
            self._over(from_wire(said.get("refused") or said["ended"]))

    def _over(self, failure: LockstepError | None) -> None:
        self.failure, self.ended = failure, True
        # First its end, then that of its pipe: it would take us for gone, and remove a temporary folder.
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._answers.close()

    def _vanished(self) -> RunError:
        """It was killed. Nobody will come for the replicas of a temporary folder: they are ended here."""
        if self._temporary:
            end_at_once(self._folder)
        lines = (self._folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        return RunError(
            "LS0698",
            "the process that supervised the job is gone",
            why="\n".join(lines) or "it said nothing: somebody has killed it.",
            hint=f"start the job again; {self._folder / LOG} is its log.",
        )


def end_at_once(folder: Path) -> None:
    """End the agent of a job and all that it has, whoever holds them."""
    with suppress(OSError, ValueError, psutil.Error):
        agent = psutil.Process(int((folder / PID_FILE).read_text(encoding="ascii")))
        if str(folder) in agent.cmdline():
            kill_tree(agent.pid)
    for one in leftovers(folder):
        kill_tree(one.pid)
