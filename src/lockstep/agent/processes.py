"""The processes of replicas: started in groups of their own, ended as groups, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import psutil

from lockstep.agent.shares import Demand, Share, demand, family, first_share, set_share
from lockstep.faults.switch import command_prefix, replica_environment
from lockstep.runtime.orders import DRAIN
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spark.boot import end_with_parent
from lockstep.runtime.spec import ReplicaSpec

if TYPE_CHECKING:
    from lockstep.config import BootShare

LOG_BYTES_MAX = 20_000_000
"""A replica's log is begun anew (the old one kept once) when it is longer than this at a start."""


class Group:
    """A Python process of ours with all below it (JVM, Python workers), which it takes along when it ends."""

    def __init__(
        self, what: Literal["replica", "spare"], spec: ReplicaSpec, path: Path, log: IO[bytes], share: Share = "full"
    ) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [*command_prefix(spec.replica), python_of(spec), "-m", "lockstep.runtime.start", what, str(path)],
            stdin=subprocess.PIPE,
            # Unbuffered: a word to a replica that is gone fails when it is said, and not again when the pipe is closed.
            bufsize=0,
            # Standard output is the agent's, which is that of `lockstep run`: the console sink writes there.
            stdout=None,
            stderr=log,
            cwd=spec.project,
            env={**process_environment(), **replica_environment(spec.replica), **_environment_of(spec)},
            start_new_session=True,
            # In idle time, if there is none, it would never come to see that its agent is gone (measured).
            preexec_fn=end_with_parent if what == "spare" else None,  # noqa: PLW1509 - one call, no locks
        )
        self.share: Share = "full"
        if share != "full":
            # Booting a JVM takes a whole core for seconds; those who are publishing come first.
            self.set_share(share)

    @property
    def pid(self) -> int:
        """The driver's process id, which is also the group's."""
        return self._process.pid

    @property
    def is_spare(self) -> bool:
        """Whether nobody waits for it."""
        return False

    @property
    def is_waiting(self) -> bool:
        """Whether it has booted and has nothing to do."""
        return False

    @property
    def gentle(self) -> bool:
        """Whether it has less than a full share of the processor."""
        return self.share != "full"

    def set_share(self, share: Share) -> None:
        """Set its share of the processor, if that is possible and can be taken back."""
        if set_share(self.pid, share):
            self.share = share

    def demand(self) -> Demand:
        """The processor time that it and all below it have used, and waited for."""
        return demand(self.pid)

    def cpu_s(self) -> float:
        """The processor time that it and all below it have used, those of them that live."""
        used_s = 0.0
        for one in family(self.pid):
            with suppress(psutil.Error):
                times = one.cpu_times()
                used_s += times.user + times.system
        return used_s

    def full_speed(self) -> None:
        """Give a replica that was started gently its full share: it has caught up."""
        self.set_share("full")

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def say(self, line: str) -> bool:
        """Tell it something; whether it was there to listen."""
        if self._process.poll() is not None:
            return False
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{line}\n".encode())
        except OSError as error:
            print(f"replica {self.pid} does not listen any more: {error}", file=sys.stderr)
            return False
        return True

    def drain(self) -> None:
        """Ask it to finish the epoch under way and end."""
        self.say(DRAIN)

    def kill(self) -> None:
        """End the whole group at once, and wait until it is gone: its checkpoint is about to be used again."""
        # Once it has been waited for, its number may be somebody else's; not while some of its group live.
        if self._process.poll() is None or not psutil.pid_exists(self.pid):
            kill_tree(self.pid)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()


class ReplicaProcess(Group):
    """One started replica: driver, JVM and Python workers."""

    def __init__(self, spec: ReplicaSpec, *, gently: bool = False) -> None:
        path = announced(with_jvm(spec))
        log = opened_log(spec.folder / "log.txt")
        super().__init__("replica", spec, path, log, first_share(boot_share(spec), spare=False, others_publish=gently))


def python_of(spec: ReplicaSpec) -> str:
    """The Python that a process is started with."""
    return spec.environment.get("python", sys.executable)


def _environment_of(spec: ReplicaSpec) -> dict[str, str]:
    """What a process in another environment is told."""
    python, java = spec.environment.get("python"), spec.environment.get("java")
    told = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python} if python else {}
    return {**told, "JAVA_HOME": java} if java else told


def boot_share(spec: ReplicaSpec) -> BootShare:
    """What of the processor a boot may have. Read as it is: validating all settings would take an agent longer."""
    share: BootShare = spec.settings.get("run", {}).get("boot_share", "duty")
    return share


def with_jvm(spec: ReplicaSpec) -> ReplicaSpec:
    """Tell a process that is about to be started which JVM it has to start itself, unless it has been told."""
    if spec.jvm or spec.environment:
        # Which JVM another environment has, its own PySpark knows.
        return spec
    # Loaded only now: it takes half a second, and on one machine whoever supervises has done this.
    from lockstep.runtime.spark.address import with_client
    from lockstep.runtime.spark.launching import jvm_command, jvm_conf

    parsed = spec.parsed_settings()
    settings = with_client(parsed.spark_of(spec.replica), parsed.checkpoints)
    return replace(spec, jvm=jvm_command(settings), jvm_conf=jvm_conf(settings))


def announced(spec: ReplicaSpec) -> Path:
    """Write down what a replica is about to be started with, where its process will read it."""
    spec.folder.mkdir(parents=True, exist_ok=True)
    (spec.folder / "error.json").unlink(missing_ok=True)
    path = spec.folder / "spec.json"
    spec.write(path)
    return path


def kill_tree(pid: int) -> None:
    """Kill a replica's driver and all below it. Python workers have groups of their own, so walk the tree too."""
    below = family(pid)[1:]
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    kill_each(below)


def kill_each(processes: Sequence[psutil.Process]) -> None:
    """Kill those of them that are still there, and wait until they are gone."""
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(processes, timeout=5)


def opened_log(path: Path) -> IO[bytes]:
    """A log to add to."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".old.txt"))
    return path.open("ab")
