"""Which sources wait because they are far ahead of others in event time.

Records that meet in a join, or in a window over a union, wait in state for the slowest of their sources. A small input
that runs months ahead of a large one would wait there as a whole; unread, it costs nothing. What is concluded here
becomes part of the sealed cut, from what the ledger says of the epochs before: so it is the same in every replica, and
a restart forgets nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from lockstep.runtime.decide.marks import TimeStep, known_mark
from lockstep.store.protocols import Entry


@dataclass(frozen=True)
class Ahead:
    """Why a source is held back: how far it is ahead, and of whom."""

    slowest: str
    ahead_us: int


def held_back(
    steps: Iterable[TimeStep],
    previous: Entry | None,
    observed: Mapping[str, int | None],
    moving: Collection[str],
    epoch_time_us: int,
    max_ahead_us: int,
) -> dict[str, Ahead]:
    """The sources that read nothing in the next epoch; ``moving`` are those that have something to read.

    Nobody waits for a source that has nothing to read, be it idle, ended or empty. And each source has one event time
    here, the lowest of its steps: so the slowest of those that move is never held back, and something always moves.
    What a source reads in one epoch may take it beyond the limit: that is no more than the machine computes in a second
    or two. Less would cost time: of a history with a record an hour, a day at a time is 24 records an epoch.
    """
    if previous is None:
        return {}
    steps = tuple(step for step in steps if step.meets)
    reached_us = _reached(steps, {step.id: known_mark(step, previous, observed) for step in steps})
    found = {}
    for source in sorted(reached_us.keys() & set(moving)):
        others = [(reached_us[one], one) for one in _met(steps, source) if one in moving and one in reached_us]
        slowest_us, slowest = min(others, default=(reached_us[source], source))
        limit_us = slowest_us + max_ahead_us
        # Up to the clock nobody is ahead of a source that is live. An event time beyond it is a mistake, and must not
        # hold its source back until that day.
        if limit_us < min(reached_us[source], epoch_time_us):
            found[source] = Ahead(slowest, reached_us[source] - slowest_us)
    return found


def _reached(steps: Iterable[TimeStep], marks: Mapping[str, int | None]) -> dict[str, int]:
    """Per source, how far its event time has come; without those of which nobody knows."""
    found: dict[str, int] = {}
    for step in steps:
        mark = marks.get(step.id)
        if mark is not None:
            found |= {source: min(mark, found.get(source, mark)) for source in step.sources}
    return found


def _met(steps: Iterable[TimeStep], source: str) -> set[str]:
    return {other for step in steps if source in step.sources for other in step.meets} - {source}
