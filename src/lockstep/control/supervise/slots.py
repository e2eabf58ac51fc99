"""One replica's place in a job, as its supervisor keeps it: its process and its history."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.clock import US_PER_S
from lockstep.control.supervise.supervision import BEHIND_TIMEOUT_S
from lockstep.control.supervise.surroundings import Process
from lockstep.store.protocols import COMPUTING, Progress


@dataclass
class Slot:
    """One replica's place: its process and its history."""

    name: str
    process: Process | None = None
    started_us: int = 0
    ended_us: int = 0
    exit_code: int | None = None
    error: str = ""
    restarts_us: list[int] = field(default_factory=list)
    starts: int = 0
    given_up: bool = False
    outvoted: bool = False
    leaves_since_us: int | None = None
    """Since when it has been asked to end, to be started on another host."""
    behind_since_us: int | None = None
    behind_then_epochs: int = 0
    failed_after: int | None = None
    likeness: str = ""
    """Of what its process was started with."""
    host: str = ""
    """Where its process says it lives; empty until it has said so, or if there is one host."""
    cpu_s: float = 0.0
    cpu_seen_us: int = 0
    busy_us: int = 0

    def begin_anew(self) -> None:
        """Something else is wanted in its place: its history of failures is not that one's."""
        self.given_up, self.exit_code, self.failed_after = False, None, None
        self.restarts_us.clear()
        self.likeness = ""


def computes(said: Progress | None) -> bool:
    """Whether a replica has computed an epoch, as its newest word tells."""
    return said is not None and said.state in COMPUTING


def note_lag(slot: Slot, said: Progress | None, head: int, now: int, lead: int) -> None:
    """Remember since when, and how far, a replica has been behind the lead."""
    lag = head - said.epoch if said is not None else 0
    in_large_epoch = said is not None and now - said.moved_us > BEHIND_TIMEOUT_S * US_PER_S
    # What it falls behind before its first epoch, or within one that takes its time, is no sign that it does not gain.
    if not computes(said) or lag <= lead or in_large_epoch:
        slot.behind_since_us = None
    elif slot.behind_since_us is None:
        slot.behind_since_us, slot.behind_then_epochs = now, lag
