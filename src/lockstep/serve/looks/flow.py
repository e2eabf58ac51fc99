"""How records flow through a job: rates and skew of its sources, what waits, rows of its sinks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lockstep.clock import US_PER_S
from lockstep.store.protocols import Digest, Entry, Positions

_NOT_COUNTED = frozenset({"files"})
"""Kinds of sources whose positions are places in files rather than numbers of records."""
SKEW_AT = 2.0
"""A partition with more than twice the median's records is skewed."""


@dataclass(frozen=True)
class SourceFlow:
    """One source over the epochs that were looked at."""

    source: str
    records_per_s: float | None
    """None where positions do not count records, and it is not the only such source."""
    partitions: int
    skew: float
    """The fullest partition's share over the median's; 1 where there is one partition."""
    waiting: int | None = None
    """Records that are there and in no epoch yet; None where only its brokers know."""


def sources(entries: Sequence[Entry], kinds: Mapping[str, str], ends: Mapping[str, Positions]) -> list[SourceFlow]:
    """What came in between the first and the last of these entries.

    ``kinds`` are the sources and their kinds, ``ends`` is where some of them end now.

    >>> one = Entry(4, 0, {"clicks": {"0": 10, "1": 10}, "logs": {"0": 0}})
    >>> two = Entry(9, 2 * US_PER_S, {"clicks": {"0": 40, "1": 20}, "logs": {"0": 1 << 40}}, records=100)
    >>> for flow in sources([one, two], {"clicks": "journal", "logs": "files"}, {"clicks": {"0": 45, "1": 20}}):
    ...     flow
    SourceFlow(source='clicks', records_per_s=20.0, partitions=2, skew=1.5, waiting=5)
    SourceFlow(source='logs', records_per_s=30.0, partitions=1, skew=1.0, waiting=None)
    """
    if not entries:
        return []
    first, last = entries[0], entries[-1]
    seconds = (last.epoch_time_us - first.epoch_time_us) / US_PER_S if last.epoch > first.epoch else 0.0
    came = {name: _came(first.cut.get(name, {}), last.cut.get(name, {})) for name in kinds}
    counted = {name: sum(came[name]) for name, kind in kinds.items() if kind not in _NOT_COUNTED}
    if len(others := set(kinds) - set(counted)) == 1:
        # Whatever is not of the sources that count is of the one that does not.
        counted[others.pop()] = max(0, sum(one.records for one in entries[1:]) - sum(counted.values()))
    return [
        SourceFlow(
            name,
            None if name not in counted else counted[name] / seconds if seconds > 0 else 0.0,
            len(parts),
            _skew(parts),
            _waiting(last.cut.get(name, {}), ends.get(name)),
        )
        for name, parts in sorted(came.items())
    ]


def _came(begin: Positions, end: Positions) -> list[int]:
    return [position - begin.get(partition, position) for partition, position in end.items()]


def _skew(came: Sequence[int]) -> float:
    middle = median(came) if came else 0
    return max(came) / middle if middle else 1.0


def _waiting(end: Positions, ends: Positions | None) -> int | None:
    return None if ends is None else sum(max(0, at - end.get(partition, 0)) for partition, at in ends.items())


def sink_rates(entries: Sequence[Entry], digests: Mapping[int, Sequence[Digest]]) -> dict[str, float]:
    """Rows per second of each sink, from the digests of the same epochs.

    >>> two = [Entry(0, 0, {}), Entry(1, US_PER_S, {})]
    >>> sink_rates(two, {1: [Digest(1, "alerts", name, 1, "d", 30, "v") for name in ("r0", "r1")]})
    {'alerts': 30.0}
    """
    if len(entries) < 2:
        return {}
    seconds = max(1e-6, (entries[-1].epoch_time_us - entries[0].epoch_time_us) / US_PER_S)
    rows: dict[str, int] = {}
    for entry in entries[1:]:
        of_epoch: dict[str, int] = {one.sink: one.rows for one in digests.get(entry.epoch, ())}
        for sink, count in of_epoch.items():
            rows[sink] = rows.get(sink, 0) + count
    return {sink: count / seconds for sink, count in rows.items()}


def watermark_us(head: Entry | None) -> int | None:
    """How far event time has come in the slowest ``event_time`` step; None where there is none, or nothing came."""
    seen = [mark for mark in head.marks.values() if mark is not None] if head is not None else []
    return min(seen, default=None)
