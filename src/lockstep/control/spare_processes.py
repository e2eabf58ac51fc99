"""The processes of spares, and what of the processor those that boot get: this machine's side of ``spares.py``."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from lockstep.config import Settings
from lockstep.control.processes import Group, ReplicaProcess, announced, opened_log, with_jvm
from lockstep.control.shares import STARVED_LOOK_S, Demand, first_share, next_share
from lockstep.control.spares import Shape
from lockstep.faults.switch import command_prefix, replica_environment
from lockstep.runtime.orders import BE
from lockstep.runtime.spare import READY
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.home import job_folder

FOLDER = "spares"


class SpareProcess(Group):
    """A spare, and the replica that it becomes."""

    def __init__(self, spec: ReplicaSpec, folder: Path) -> None:
        folder.mkdir(parents=True)
        path = folder / "spec.json"
        with_jvm(spec).write(path)
        self._folder = folder
        self._gathered_bytes = 0
        self._replica_log: Path | None = None
        log = opened_log(folder / "log.txt")
        self._boot_share = spec.parsed_settings().run.boot_share
        super().__init__("spare", spec, path, log, first_share(self._boot_share, spare=True, others_publish=True))

    @property
    def is_ready(self) -> bool:
        """Whether it has booted and is warm."""
        return (self._folder / READY).exists()

    @property
    def is_spare(self) -> bool:
        """Whether it has not been told yet which replica it is."""
        return self._replica_log is None

    @property
    def is_waiting(self) -> bool:
        """Whether it has nothing to do until it is told which replica it is."""
        return self.is_ready and self.is_spare

    def become(self, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell it which replica it is; whether it was there to listen."""
        path = announced(spec)
        share = first_share(self._boot_share, spare=False, others_publish=gently)
        # One that found no idle time while it booted need not look for it again.
        self.set_share(self.share if (self.share, share) == ("gentle", "idle") else share)
        self._replica_log = spec.folder / "log.txt"
        self._gather()
        return self.say(f"{BE} {path}")

    def kill(self) -> None:
        """End it and leave nothing but what its JVM wrote, in the replica's log."""
        super().kill()
        try:
            self._gather()
        except OSError as error:
            # The disk may be full, and whoever ends a process has others to see to.
            print(f"the log of {self.pid} is not whole: {error}", file=sys.stderr)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def last_words(self) -> str:
        """The last line of its own log: why it ended, if it did."""
        path = self._folder / "log.txt"
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")[:300]

    def _gather(self) -> None:
        """Add to the replica's log what this process has written to its own since the last time."""
        path = self._folder / "log.txt"
        if self._replica_log is None or not path.exists():
            return
        with path.open("rb") as own, opened_log(self._replica_log) as log:
            own.seek(self._gathered_bytes)
            shutil.copyfileobj(own, log)
            self._gathered_bytes = own.tell()


@dataclass(frozen=True)
class _Booting:
    """A process on its way, and what it had used and wanted of the processor at the last look."""

    group: Group
    looked_s: float
    demand: Demand

    def looked_at(self, now_s: float) -> _Booting | None:
        """See whether it starves; None when there is nothing to look for any more."""
        if self.group.is_waiting or self.group.share == "full" or self.group.exit_code() is not None:
            return None
        span_s = now_s - self.looked_s
        if span_s < STARVED_LOOK_S:
            return self
        demand = self.group.demand()
        used = demand.since(self.demand)
        if (share := next_share(self.group.share, used, span_s, spare=self.group.is_spare)) != self.group.share:
            self.group.set_share(share)
        return replace(self, looked_s=now_s, demand=demand)


class MachineProcesses:
    """Starts the processes of one job on this machine."""

    def __init__(
        self, template: ReplicaSpec, settings: Settings, elapsed_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._elapsed_s = elapsed_s
        self._folder = job_folder(Path(template.home), template.job) / FOLDER
        # Of an earlier run that was killed; its processes have ended.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._booting: list[_Booting] = []

    def shape(self, replica: str) -> Shape:
        """What the process of a replica is started with."""
        spark = self._settings.spark_of(replica).model_dump(mode="json")
        return Shape(spark, replica_environment(replica), tuple(command_prefix(replica)))

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Group:
        """A new process for a replica."""
        return ReplicaProcess(spec, gently=gently)

    def spare(self, spec: ReplicaSpec, number: int) -> SpareProcess:
        """A new spare, of the shape of this replica."""
        return SpareProcess(spec, self._folder / f"{os.getpid()}-{number}")

    def watch(self, process: Group) -> None:
        """See to it that a process does not starve on its way."""
        self._booting.append(_Booting(process, self._elapsed_s(), process.demand()))

    def tend(self) -> None:
        """Look at those that boot."""
        now_s = self._elapsed_s()
        self._booting = [left for one in self._booting if (left := one.looked_at(now_s)) is not None]

    def memory_free_bytes(self) -> int:
        """What could be had now."""
        return int(psutil.virtual_memory().available)
