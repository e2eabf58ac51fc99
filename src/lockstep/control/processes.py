"""The processes of replicas: started in groups of their own, ended as groups, never left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import psutil

from lockstep.runtime.environment import process_environment
from lockstep.runtime.spec import ReplicaSpec

GENTLE_NICENESS = 10
LOG_BYTES_MAX = 20_000_000
"""A replica's log is begun anew (the old one kept once) when it is longer than this at a start."""


class ReplicaProcess:
    """One started replica: driver, JVM and Python workers."""

    def __init__(self, spec: ReplicaSpec, *, gently: bool = False) -> None:
        spec.folder.mkdir(parents=True, exist_ok=True)
        path = spec.folder / "spec.json"
        spec.write(path)
        (spec.folder / "error.json").unlink(missing_ok=True)
        self._log = _opened_log(spec.folder / "log.txt")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.runtime.replica", str(path)],
            stdin=subprocess.PIPE,
            # Unbuffered: a word to a replica that is gone fails when it is said, and not again when the pipe is closed.
            bufsize=0,
            # Standard output stays ours: the console sink writes there. Everything else goes to the log.
            stdout=None,
            stderr=self._log,
            cwd=spec.project,
            env=process_environment(),
            start_new_session=True,
        )
        self.gentle = gently and _may_renice()
        if self.gentle:
            # Booting a JVM takes a whole core for seconds; those who are publishing come first.
            os.setpriority(os.PRIO_PROCESS, self._process.pid, GENTLE_NICENESS)

    @property
    def pid(self) -> int:
        """The driver's process id, which is also the group's."""
        return self._process.pid

    def full_speed(self) -> None:
        """Give a replica that was started gently its full share: it has caught up."""
        self.gentle = False
        for group in _groups(self.pid):
            try:
                os.setpriority(os.PRIO_PGRP, group, 0)
            except ProcessLookupError:
                continue

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def drain(self) -> None:
        """Ask it to finish the epoch under way and end."""
        if self._process.poll() is not None:
            return
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(b"drain\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError) as error:
            print(f"replica {self.pid} does not listen any more: {error}", file=sys.stderr)

    def kill(self) -> None:
        """End the whole group at once, and wait until it is gone: its checkpoint is about to be used again."""
        kill_tree(self.pid)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()


def _may_renice() -> bool:
    """Whether niceness can be taken back later: not for ordinary users, unless the system allows it."""
    return os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_NICE)[0] >= 20


def _groups(pid: int) -> set[int]:
    groups = {pid}
    try:
        for one in psutil.Process(pid).children(recursive=True):
            groups.add(os.getpgid(one.pid))
    except (psutil.NoSuchProcess, ProcessLookupError):
        return groups
    return groups


def kill_tree(pid: int) -> None:
    """Kill a replica's driver and all below it. Python workers have groups of their own, so walk the tree too."""
    family: list[psutil.Process] = []
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        family = list(family)
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=5)


def end_leftover(pid: int, folder: Path, patience_s: float) -> bool:
    """End a replica's process that an earlier, dead supervisor left behind; whether there was one."""
    if not _is_replica(pid, folder):
        return False
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and _is_replica(pid, folder):
        time.sleep(0.1)
    if _is_replica(pid, folder):
        kill_tree(pid)
    return True


def _is_replica(pid: int, folder: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and str(folder / "spec.json") in process.cmdline()
    except psutil.Error:
        return False


def _opened_log(path: Path) -> IO[bytes]:
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".old.txt"))
    return path.open("ab")
