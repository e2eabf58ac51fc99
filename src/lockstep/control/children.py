"""Processes that one of ours starts and watches from outside (a bench, chaos), each with a log and ended with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from lockstep.agent.processes import kill_tree
from lockstep.errors import RunError

STOP_TIMEOUT_S = 45.0
"""A graceful stop of `lockstep run` takes at most its ``stop_timeout_s`` of 30 s."""
POLL_S = 0.05
LOG_LINES_SHOWN = 20


class Child:
    """One process with a log; it has a group of its own, so that Ctrl-C reaches its parent alone, which ends it."""

    code: ClassVar[str] = "LS0630"
    hint: ClassVar[str] = "`lockstep bench NAME --keep` keeps the folder with all logs."
    """What to try when it fails. Whoever starts it for something else than a bench has its own code and hint."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        program: str = sys.executable,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, also its group's."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise if it has ended: nothing that is measured from now on would mean anything."""
        if (code := self._process.poll()) is not None:
            raise self.failure(f"{self.name} ended by itself with exit code {code}")

    def failure(self, fact: str) -> RunError:
        """An error with the end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        why = "\n".join(lines) or "it said nothing."
        return RunError(self.code, fact, why=why, hint=self.hint)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> float:
        """Seconds until ``condition`` held; raises if that takes too long or the process ends."""
        begun_s = time.monotonic()
        while not condition():
            self.check()
            if time.monotonic() - begun_s > timeout_s:
                raise self.failure(f"{what} took longer than {timeout_s:.0f} s")
            time.sleep(POLL_S)
        return time.monotonic() - begun_s

    def end_input(self) -> None:
        """Close its standard input: for one that ends by itself then."""
        self._close_pipe()

    def wait_end(self, timeout_s: float) -> None:
        """Wait until it ends by itself; raises if that takes too long or it fails."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failure(f"{self.name} took longer than {timeout_s:.0f} s") from None
        if code != 0:
            raise self.failure(f"{self.name} ended with exit code {code}")

    def wait_gone(self) -> None:
        """Wait until it has ended, however; end it if that takes longer than a graceful stop may."""
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_pipe()

    def stop(self) -> None:
        """Ask it to end, wait, and end whatever is left of its tree."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self.wait_gone()

    def kill(self) -> None:
        """End its whole tree at once."""
        if self._process.poll() is None:
            kill_tree(self._process.pid)
        self._process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


AnyChild = TypeVar("AnyChild", bound=Child)


@contextmanager
def running(child: AnyChild) -> Iterator[AnyChild]:
    """Stop the process at the end; after an error or Ctrl-C, at once."""
    try:
        yield child
    except BaseException:
        child.kill()
        raise
    else:
        child.stop()


@contextmanager
def killed(child: AnyChild) -> Iterator[AnyChild]:
    """End the process at once at the end, however it came: for one that has nothing to lose."""
    try:
        yield child
    finally:
        child.kill()


class Checked(Protocol):
    """A process, or several, that can be looked at."""

    def check(self) -> None:
        """Raise if one ended that should not."""


def pass_by(children: Sequence[Checked], seconds: float) -> None:
    """Let time pass, as long as none of the processes ends."""
    deadline_s = time.monotonic() + seconds
    while (left_s := deadline_s - time.monotonic()) > 0:
        for child in children:
            child.check()
        time.sleep(min(left_s, 0.5))
