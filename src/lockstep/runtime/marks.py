"""How event time is decided for the next epoch: pure functions, so that every replica could have decided the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.store.protocols import Entry


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
) -> dict[str, int | None]:
    """The marks of the epoch after ``previous``, in which ``observed`` was the highest event time per step."""
    return {step.id: _next_mark(step, previous, observed.get(step.id), epoch_time_us) for step in steps}


def _next_mark(step: TimeStep, previous: Entry | None, observed: int | None, epoch_time_us: int) -> int | None:
    if previous is None:
        return None
    known = [value for value in (previous.marks.get(step.id), observed) if value is not None]
    mark = max(known) if known else None
    if step.idle_after_us is None:
        return mark
    active_us = max((previous.active_us.get(source, 0) for source in step.sources), default=0)
    quiet_us = epoch_time_us - active_us
    if quiet_us < step.idle_after_us:
        return mark
    return _idle_mark(mark, observed_at_us=active_us, epoch_time_us=epoch_time_us, out_of_order_us=step.out_of_order_us)


def _idle_mark(mark: int | None, *, observed_at_us: int, epoch_time_us: int, out_of_order_us: int) -> int:
    """A quiet source's mark: event time goes on at the pace of the clock, and never beyond epoch time.

    Jumping straight to epoch time would make every later record of a replayed history late; keeping the pace gives the
    same result for live data, whose event time is close to the clock.
    """
    latest = epoch_time_us - out_of_order_us
    if mark is None:
        return latest
    return max(mark, min(latest, mark + (epoch_time_us - observed_at_us)))


def next_active(previous: Entry | None, advanced: Mapping[str, bool], epoch_time_us: int) -> dict[str, int]:
    """Per source, the epoch time of the last epoch that had records of it (its first epoch counts as one)."""
    before = previous.active_us if previous else {}
    return {source: epoch_time_us if moved else before.get(source, epoch_time_us) for source, moved in advanced.items()}
