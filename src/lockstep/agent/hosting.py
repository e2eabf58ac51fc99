"""The processes of one job on one host, as those see them who supervise the job: started once, listed, drained, ended.

Everything here happens in one thread, which lives as long as the agent: Linux ends a spare with the *thread* that
started it (``boot.end_with_parent``), and what happens in one thread needs no locks.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lockstep.errors import RunError
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.home import job_folder
from lockstep.store.names import checked_name

DRAIN_LOOK_S = 0.1
"""How often it is looked whether replicas that finish their epoch have ended."""
FORGOTTEN_MAX = 1000
"""Handles of processes that are gone, so that an order that comes late starts none of them again."""


class Hosted(Protocol):
    """A process as its host holds it."""

    @property
    def pid(self) -> int:
        """Of its driver."""

    @property
    def gentle(self) -> bool:
        """Whether it has less than a full share of the processor."""

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""

    def cpu_s(self) -> float:
        """The processor time that it and all below it have used."""

    def full_speed(self) -> None:
        """Give it its full share."""

    def drain(self) -> None:
        """Ask it to finish the epoch under way and end."""

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""


class HostedSpare(Hosted, Protocol):
    """A spare, and the replica that it becomes."""

    @property
    def is_ready(self) -> bool:
        """Whether it has booted and is warm."""

    @property
    def last_words(self) -> str:
        """Why it ended, if it did."""


Spare = TypeVar("Spare", bound=HostedSpare)


class Machine(Protocol[Spare]):
    """How processes come to be on this host."""

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Hosted:
        """A new process for a replica."""

    def spare(self, spec: ReplicaSpec, name: str) -> Spare:
        """A new spare."""

    def become(self, spare: Spare, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell a spare which replica it is; whether it was there to listen."""

    def tend(self) -> float | None:
        """Look after those that boot; after how long to look again, None while nobody boots."""


@dataclass(frozen=True)
class Listed:
    """One process, as it is told to whoever asks."""

    handle: str
    replica: str
    """Which replica it is; empty for a spare."""
    pid: int
    likeness: str
    """Of its spec (:attr:`ReplicaSpec.likeness`): whoever would start the same may go on with it."""
    shape: Mapping[str, Any]
    """What whoever ordered it noted about it."""
    gentle: bool = False
    ready: bool = False
    exit_code: int | None = None
    last_words: str = ""
    """Of a spare that has ended."""
    error: str = ""
    """Of a replica that has ended: what it wrote down about it, as :meth:`LockstepError.to_wire`."""


@dataclass(frozen=True)
class Here:
    """What a host knows and nobody else does: where things are on it."""

    project: Path
    home: Path
    host: str = ""
    hosts: Mapping[str, Any] | None = None
    """Its own settings of how hosts know each other (``[hosts]``); None: those that come with a spec."""

    def filled(self, spec: ReplicaSpec, handle: str) -> ReplicaSpec:
        """A spec, which is the same for all hosts, as a process of this one needs it.

        >>> spec = ReplicaSpec("", "", "job", "code/ab/job.py:job", "hash", "r0", "auto", {})
        >>> Here(Path("/p"), Path("/p/.lockstep"), "h1").filled(spec, "a1").job_file
        '/p/.lockstep/jobs/job/code/ab/job.py:job'
        """
        file = Path(spec.job_file)
        if file.is_absolute() or ".." in file.parts:
            raise ValueError(f"a job's file is one of its folder, not {spec.job_file}")
        return replace(
            spec,
            project=str(self.project),
            home=str(self.home),
            job_file=str(job_folder(self.home, spec.job) / file),
            replica=checked_name("replica", spec.replica),
            settings=spec.settings if self.hosts is None else {**spec.settings, "hosts": dict(self.hosts)},
            host=self.host,
            process=handle,
        )


@dataclass
class _Held:
    handle: str
    process: Hosted
    folder: Path
    """That of the replica: where it leaves word if it fails."""
    likeness: str
    shape: Mapping[str, Any]
    replica: str = ""


class HostedJob:
    """The processes of one job here, and who may command them."""

    def __init__(
        self,
        job: str,
        machine: Machine[Any],
        here: Here,
        *,
        orphan_timeout_s: float = 30.0,
        stop_timeout_s: float = 30.0,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self.ending = False
        self.over = False
        """Whether nothing of it is left here."""
        self.orphan_timeout_s = orphan_timeout_s
        self.stop_timeout_s = stop_timeout_s
        self._machine = machine
        self._here = here
        self._elapsed_s = elapsed_s
        self._heard_s = elapsed_s()
        self._drained_by_s = 0.0
        self._term = 0
        self._held: dict[str, _Held] = {}
        self._forgotten: deque[str] = deque(maxlen=FORGOTTEN_MAX)

    def admit(self, term: int) -> None:
        """Obey whoever has the newest term, and nobody who had an older one: it may have slept for long."""
        if term < self._term:
            raise RunError(
                "LS0610",
                f'job "{self.job}" is supervised by another process now',
                why=f"a command of term {term} came, and the agent obeys term {self._term}.",
                hint="nothing to do: the other one goes on. See `lockstep status`.",
            )
        if self.ending:
            raise RunError(
                "LS0682",
                f'the agent of job "{self.job}" is ending',
                why="nobody talked to it for orphan_timeout_s, or it was told to end.",
                hint="nothing to do: `lockstep run` waits for it and starts another one.",
            )
        self._term = term
        self._heard_s = self._elapsed_s()

    def start(self, handle: str, spec: ReplicaSpec, shape: Mapping[str, Any], *, spare: bool, gently: bool) -> Listed:
        """Start a process, once for each handle: a repeated order gets the answer of the first."""
        held = self._held.get(handle)
        if held is None:
            if handle in self._forgotten:
                raise ProcessLookupError(f"process {handle} has been started, and is gone")
            full, machine = self._here.filled(spec, handle), self._machine
            process: Hosted = machine.spare(full, handle) if spare else machine.replica(full, gently=gently)
            name = "" if spare else spec.replica
            held = self._held[handle] = _Held(handle, process, full.folder, spec.likeness, shape, name)
        return _listed(held)

    def become(self, handle: str, spec: ReplicaSpec, *, gently: bool) -> bool:
        """Tell a spare which replica it is; whether it was there to listen. Said twice, it counts once."""
        held = self._held.get(handle)
        if held is None:
            return False
        if not held.replica:
            full = self._here.filled(spec, handle)
            if not self._machine.become(held.process, full, gently=gently):
                return False
            held.replica, held.folder, held.likeness = spec.replica, full.folder, spec.likeness
        return held.replica == spec.replica

    def listed(self) -> list[Listed]:
        """All processes, those that have ended too until they are acknowledged by :meth:`kill`."""
        return [_listed(one) for one in self._held.values()]

    def cpu_s(self, handle: str) -> float:
        """The processor time of one process."""
        held = self._held.get(handle)
        return held.process.cpu_s() if held is not None else 0.0

    def full_speed(self, handle: str) -> None:
        """Give one process its full share of the processor."""
        if (held := self._held.get(handle)) is not None:
            held.process.full_speed()

    def drain(self, handle: str) -> None:
        """Ask one process to finish the epoch under way and end."""
        if (held := self._held.get(handle)) is not None:
            held.process.drain()

    def kill(self, handle: str) -> None:
        """End one process at once, if it is there, and forget it."""
        if (held := self._held.pop(handle, None)) is not None:
            self._forgotten.append(handle)
            held.process.kill()

    def tend(self) -> float:
        """Look after those that boot, and whether anybody still supervises; after how long to look again."""
        now_s = self._elapsed_s()
        if not self.ending and now_s - self._heard_s > self.orphan_timeout_s:
            self.end()
        if self.ending:
            if now_s >= self._drained_by_s or self.is_empty():
                self.end_at_once()
            return DRAIN_LOOK_S
        again_s = self._machine.tend()
        return min(self._heard_s + self.orphan_timeout_s - now_s, again_s or self.orphan_timeout_s)

    def end(self) -> None:
        """Obey nobody any more: replicas finish their epoch, and then nothing is left (see :meth:`tend`)."""
        if not self.ending:
            self.ending, self._drained_by_s = True, self._elapsed_s() + self.stop_timeout_s
            self.drain_all()

    def end_at_once(self) -> None:
        """End all that is left."""
        self.ending = self.over = True
        for handle in list(self._held):
            self.kill(handle)

    def slept(self, seconds: float) -> None:
        """This process itself was stopped for so long: that says nothing about whoever supervises."""
        self._heard_s += seconds

    def drain_all(self) -> None:
        """Let all replicas finish their epoch, and end the spares."""
        for one in list(self._held.values()):
            if one.replica:
                one.process.drain()
            else:
                self.kill(one.handle)

    def is_empty(self) -> bool:
        """Whether no process runs."""
        return all(one.process.exit_code() is not None for one in self._held.values())


def _listed(held: _Held) -> Listed:
    process, code = held.process, held.process.exit_code()
    spare = process if not held.replica else None
    return Listed(
        handle=held.handle,
        replica=held.replica,
        pid=process.pid,
        likeness=held.likeness,
        shape=held.shape,
        gentle=process.gentle,
        ready=bool(getattr(spare, "is_ready", False)),
        exit_code=code,
        last_words=str(getattr(spare, "last_words", "")) if code is not None else "",
        error=_error(held.folder) if code is not None and held.replica else "",
    )


def _error(folder: Path) -> str:
    with suppress(OSError, ValueError, KeyError):
        return str(json.loads((folder / "error.json").read_text(encoding="utf-8"))["error"])
    return ""  # it left no word, or the disk had no room for it


def as_json(listed: Listed) -> dict[str, Any]:
    """For the wire."""
    return asdict(listed)
