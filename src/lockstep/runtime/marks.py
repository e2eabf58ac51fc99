"""How event time is decided for the next epoch: pure functions, so that every replica could have decided the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.store.protocols import Entry

PAUSE_US = 10_000_000
"""Epochs come at least once a heartbeat (1 s); ten without one mean that the job was not running."""


@dataclass(frozen=True)
class TimeStep:
    """One ``event_time`` step: the sources that feed it, how disordered they may be, and when they count as idle."""

    id: str
    sources: tuple[str, ...]
    out_of_order_us: int
    idle_after_us: int | None


def next_marks(
    steps: tuple[TimeStep, ...],
    previous: Entry | None,
    observed: Mapping[str, int | None],
    epoch_time_us: int,
    advanced: Mapping[str, bool],
    pause_us: int = PAUSE_US,
) -> dict[str, int | None]:
    """The marks of the epoch after ``previous``, in which ``observed`` was the highest event time per step.

    ``advanced`` says which sources have records in the new epoch: those are not idle, however long ago the epoch before
    was. After a pause of the whole job there is a backlog, and a mark that went on with the clock would make it late.
    """
    found: dict[str, int | None] = {}
    for step in steps:
        mark = _known_mark(step, previous, observed.get(step.id))
        quiet = not any(advanced.get(source, False) for source in step.sources)
        quiet = quiet and not _was_paused(previous, epoch_time_us, pause_us)
        found[step.id] = _idle_mark(step, mark, previous, epoch_time_us) if previous and quiet else mark
    return found


def _was_paused(previous: Entry | None, epoch_time_us: int, pause_us: int) -> bool:
    """Whether the job itself was down before this epoch: then its sources were not quiet, nobody was listening."""
    return previous is not None and epoch_time_us - previous.epoch_time_us > pause_us


def _known_mark(step: TimeStep, previous: Entry | None, observed: int | None) -> int | None:
    if previous is None:
        return None
    known = [value for value in (previous.marks.get(step.id), observed) if value is not None]
    return max(known) if known else None


def _idle_mark(step: TimeStep, mark: int | None, previous: Entry, epoch_time_us: int) -> int | None:
    """A quiet source's mark: event time goes on at the pace of the clock, and never beyond epoch time.

    Jumping straight to epoch time would make every later record of a replayed history late; keeping the pace gives the
    same result for live data, whose event time is close to the clock.
    """
    active_us = max((previous.active_us.get(source, 0) for source in step.sources), default=0)
    if step.idle_after_us is None or epoch_time_us - active_us < step.idle_after_us:
        return mark
    latest = epoch_time_us - step.out_of_order_us
    if mark is None:
        return latest
    # The mark of an epoch that was idle too has gone on already, up to its own epoch time.
    was_idle = previous.epoch_time_us - active_us >= step.idle_after_us
    since_us = previous.epoch_time_us if was_idle else active_us
    return max(mark, min(latest, mark + (epoch_time_us - since_us)))


def next_active(
    previous: Entry | None, advanced: Mapping[str, bool], epoch_time_us: int, pause_us: int = PAUSE_US
) -> dict[str, int]:
    """Per source, the epoch time of the last epoch that had records of it (the first one, and after a pause, count)."""
    before = previous.active_us if previous and not _was_paused(previous, epoch_time_us, pause_us) else {}
    return {source: epoch_time_us if moved else before.get(source, epoch_time_us) for source, moved in advanced.items()}
