"""What is around a supervisor: clocks, processes, and who keeps them; the machine's, or those of a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lockstep.agent.leftovers import LockHolder
from lockstep.clock import wall_us
from lockstep.runtime.spec import ReplicaSpec


class Process(Protocol):
    """A started replica, as far as its supervisor is concerned."""

    @property
    def gentle(self) -> bool:
        """Whether it has less than a full share of the processor."""

    @property
    def pid(self) -> int:
        """Its process id on its host, for people."""

    @property
    def handle(self) -> str:
        """What it is known by: a replica reports it with everything it says."""

    @property
    def where(self) -> str:
        """For people: ``pid 4711``, and its host if there are several."""

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""

    def error(self) -> str:
        """What it wrote down about its end, as :meth:`LockstepError.to_wire`; empty if it left no word."""

    def cpu_s(self) -> float:
        """The processor time that it and all below it have used."""

    def full_speed(self) -> None:
        """Give it its full share: it has caught up."""

    def drain(self) -> None:
        """Ask it to finish the epoch under way and end."""

    def kill(self) -> None:
        """End it at once."""


class Starter(Protocol):
    """How a replica becomes a process."""

    def __call__(self, spec: ReplicaSpec, *, gently: bool) -> Process:
        """Start it."""


class Reserve(Protocol):
    """Who keeps spares beside the replicas."""

    def tend(self, *, orders: bool = True) -> None:
        """Look after them, and order what is missing unless something else is to boot first; called several times a
        second."""

    def close(self) -> None:
        """End all that have become no replica."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The clocks and processes around a supervisor: the machine's, or those of a simulation."""

    now_us: Callable[[], int] = wall_us
    elapsed_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    start: Starter
    adopted: Mapping[str, Process] = field(default_factory=dict)
    """The replicas that run already: a supervisor before this one started them."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """What each of them was started with (its likeness), where that may be something else than it should be now."""
    look: Callable[[], str] = str
    """See how all processes are, once before every decision; what to tell about whoever keeps them, if anything."""
    crowded: Callable[[], str | None] = lambda: None
    """A replica that shares its host although some host has none, as it was seen at the last look."""
    aside: Callable[[Callable[[], None]], None] = lambda act: act()
    """Do something that may take minutes (a file system that does not answer) and that nothing waits for."""
    reserve: Reserve | None = None
    lock_holder: Callable[[], LockHolder | None] = lambda: None
    """Who holds the store's write lock now, as it is seen from outside."""
