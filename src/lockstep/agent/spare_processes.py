"""The processes of spares, and what of the processor those that boot get (a host's side of its ``Spares``)."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.agent.processes import Group, ReplicaProcess, announced, boot_share, opened_log, with_jvm
from lockstep.agent.shares import STARVED_LOOK_S, Demand, first_share, next_share
from lockstep.runtime.orders import BE, READY
from lockstep.runtime.spec import ReplicaSpec

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
        self._boot_share = boot_share(spec)
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
    """Starts the processes of one job on this machine, and sees to it that none starves on its way."""

    def __init__(self, folder: Path, elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._elapsed_s = elapsed_s
        self._folder = folder / FOLDER
        # Of an earlier agent that was killed; its processes have ended.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._booting: list[_Booting] = []

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Group:
        """A new process for a replica."""
        process = ReplicaProcess(spec, gently=gently)
        if gently:
            self._watch(process)
        return process

    def spare(self, spec: ReplicaSpec, name: str) -> SpareProcess:
        """A new spare, of the shape of this replica, with a folder of this name."""
        process = SpareProcess(spec, self._folder / name)
        self._watch(process)
        return process

    def become(self, spare: SpareProcess, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell a spare which replica it is; whether it was there to listen."""
        heard = spare.become(spec, gently=gently)
        if gently:
            self._watch(spare)
        return heard

    def _watch(self, process: Group) -> None:
        self._booting.append(_Booting(process, self._elapsed_s(), process.demand()))

    def tend(self) -> float | None:
        """Look at those that boot; after how long to look again, None while nobody boots."""
        now_s = self._elapsed_s()
        self._booting = [left for one in self._booting if (left := one.looked_at(now_s)) is not None]
        return STARVED_LOOK_S if self._booting else None
