"""How far event time has come in each partition of a topic: the slowest that is not idle counts. Pure functions.

A partition is in order by itself, and another one may be an hour ahead. What is concluded here rests on what the ledger
says of the epochs before, and on what the last of them saw: so it is the same in every replica, and a restart forgets
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.store.protocols import Entry

Observed = Mapping[str, int | None]


@dataclass(frozen=True)
class Reached:
    """How far a partition has come."""

    newest_us: int | None
    """Its highest event time; None before its first record."""
    active_us: int
    """The epoch time of the last epoch that had a record of it; where none had, of the one that took it up."""


def by_partition(step: str, newest_us: Mapping[str, int]) -> dict[str, int | None]:
    """What an epoch saw of the partitions of a step, as the store keeps it.

    >>> by_partition("at", {"0": 7})
    {'at/0': 7}
    """
    return {f"{step}/{partition}": time_us for partition, time_us in newest_us.items()}


def reached(step: str, source: str, previous: Entry, observed: Observed) -> dict[str, Reached]:
    """The partitions that ``previous`` has in its cut, with what it saw of them (``observed``)."""
    before, base_us = previous.partitions.get(step, {}), previous.marks.get(step) or 0
    now_us = previous.epoch_time_us
    found = {}
    for partition in previous.cut.get(source, {}):
        ahead_us, quiet_us = before.get(partition, (None, 0))
        newest_us = None if ahead_us is None else base_us + ahead_us
        seen_us = observed.get(f"{step}/{partition}")
        if seen_us is not None:
            newest_us = seen_us if newest_us is None else max(newest_us, seen_us)
        # Whoever is held back has records that nobody reads.
        is_active = seen_us is not None or source in previous.held
        found[partition] = Reached(newest_us, now_us if is_active else now_us - (quiet_us or 0))
    return found


def written(
    partitions: Mapping[str, Reached], mark_us: int | None, epoch_time_us: int, *, was_paused: bool
) -> dict[str, tuple[int | None, int]]:
    """As the next entry keeps it. While the job was down nobody listened: then none was quiet."""
    return {
        name: (
            None if one.newest_us is None else one.newest_us - (mark_us or 0),
            0 if was_paused else epoch_time_us - one.active_us,
        )
        for name, one in partitions.items()
    }


def awake(partitions: Mapping[str, Reached], previous: Entry, idle_after_us: int | None) -> list[Reached]:
    """The partitions that are not idle.

    It is counted up to the last epoch of which is known what it saw, not up to the next one: however long an epoch
    takes, whoever had a record in the one before is not idle.
    """
    if idle_after_us is None:
        return list(partitions.values())
    return [one for one in partitions.values() if previous.epoch_time_us - one.active_us < idle_after_us]


def slowest_us(partitions: list[Reached]) -> int | None:
    """The lowest of the highest event times; None if one of the partitions has none yet, or there is no partition.

    >>> slowest_us([Reached(90, 0), Reached(60, 0)]), slowest_us([Reached(90, 0), Reached(None, 0)])
    (60, None)
    """
    known = [one.newest_us for one in partitions if one.newest_us is not None]
    return min(known, default=None) if len(known) == len(partitions) else None


def newest_us(partitions: Mapping[str, Reached]) -> int | None:
    """The highest event time of all."""
    return max((one.newest_us for one in partitions.values() if one.newest_us is not None), default=None)


def idle_us(partitions: Mapping[str, Reached], epoch_time_us: int) -> int | None:
    """Where event time is while all are idle: it goes on from the highest at the pace of the clock."""
    newest, active_us = (
        newest_us(partitions),
        max((one.active_us for one in partitions.values()), default=epoch_time_us),
    )
    return None if newest is None else newest + epoch_time_us - active_us
