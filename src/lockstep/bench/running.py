"""A job run as a user would run it, `lockstep run` in a folder of its own; and killing its replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.agent.processes import kill_tree
from lockstep.bench.children import Child
from lockstep.clock import wall_us
from lockstep.config import CONFIG_FILE, STORE_FOLDER
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Holder, Progress, Store

START_TIMEOUT_S = 180.0
SINK_FOLDER = "out"
"""Where the jobs of the benches publish, below their project folder."""


@dataclass(frozen=True)
class Run:
    """What to run: a job's text and how."""

    job: str
    """The job's name, as in its text."""
    text: str
    replicas: int = 1
    master: str = "local[1]"
    settings: Mapping[str, str] | None = None
    store: str = ""
    """The address of its store; empty: embedded, in its folder."""
    journals: str = ""
    """Where its own journals are; empty: in its folder."""
    checkpoints: str = ""
    """Where replicas keep their checkpoints; empty: in its folder."""
    arguments: Sequence[str] = ()
    """More words for `lockstep run`."""


@dataclass(frozen=True)
class Usage:
    """What a process tree has used: CPU seconds so far, memory now."""

    cpu_s: float
    memory_bytes: int


class JobRun(Child):
    """`lockstep run` as a process, and the job's store to look into."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self.folder = folder
        job_file = folder / "job.py"
        job_file.write_text(run.text, encoding="utf-8")
        arguments = ["-m", "lockstep", "--project", str(folder), "run", str(job_file)]
        arguments += ["--replicas", str(run.replicas), "--master", run.master]
        for key, value in (run.settings or {}).items():
            arguments += ["--set", f"{key}={value}"]
        places = {"store": run.store, "journals": run.journals, "checkpoints": run.checkpoints}
        lines = [f'{name} = "{place}"\n' for name, place in places.items() if place]
        if lines:
            (folder / CONFIG_FILE).write_text("".join(lines), encoding="utf-8")
        arguments += run.arguments
        self.store: Store = open_store(run.store or address_in(self.store_folder), run.job)
        super().__init__("`lockstep run`", arguments, folder / "run.log", folder)

    @property
    def store_folder(self) -> Path:
        """Where ledger and journals are."""
        return self.folder / STORE_FOLDER

    @property
    def manifests(self) -> Path:
        """Where the sink's published epochs appear."""
        return self.folder / SINK_FOLDER / "_lockstep" / "manifests"

    def progress(self, replica: str) -> Progress | None:
        """The newest word of one replica."""
        return next((one for one in self.store.progress() if one.replica == replica), None)

    def all_run(self) -> bool:
        """Whether every replica computes and none is behind."""
        running = [one for one in self.store.progress() if one.state == "running" and one.epoch >= 0]
        return len(running) == self.run.replicas

    def wait_running(self) -> float:
        """Seconds until all replicas ran."""
        return self.wait_until(self.all_run, START_TIMEOUT_S, "starting the replicas")

    def newest_sealer(self) -> str:
        """The replica that sealed the newest epoch."""
        head = self.store.head()
        return Holder.replica_of(head.sealed_by) if head is not None else ""

    def lag(self, replica: str) -> int | None:
        """How many epochs one replica is behind the newest sealed one."""
        head, said = self.store.head(), self.progress(replica)
        return head.epoch - said.epoch if head is not None and said is not None else None

    def kill_replica(self, replica: str) -> tuple[int, int]:
        """Kill -9 a replica's driver, JVM and workers; (its process id, when)."""
        said = self.progress(replica)
        if said is None:
            raise self.failure(f"there is no replica {replica} to kill")
        at_us = wall_us()
        kill_tree(said.pid)
        return said.pid, at_us

    def usage(self) -> Usage:
        """What supervisor and replicas use."""
        return usage(self.pid)

    def stop(self) -> None:
        """Stop it as SIGTERM does, and give the store back."""
        super().stop()
        self.store.close()

    def kill(self) -> None:
        """End everything at once, and give the store back."""
        super().kill()
        self.store.close()


def usage(pid: int) -> Usage:
    """What a process and all below it use."""
    cpu_s, memory_bytes = 0.0, 0
    root = psutil.Process(pid)
    for one in (root, *root.children(recursive=True)):
        try:
            with one.oneshot():
                times = one.cpu_times()
                cpu_s += times.user + times.system
                memory_bytes += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return Usage(cpu_s, memory_bytes)
