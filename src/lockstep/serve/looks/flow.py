"""How records flow through a job: rates and skew of its sources, what waits, rows of its sinks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lockstep.clock import US_PER_S
from lockstep.store.protocols import Digest, Entry, Positions

SKEW_AT = 2.0
"""A partition with more than twice the median's records is skewed."""


@dataclass(frozen=True)
class SourceFlow:
    """One source over the epochs that were looked at."""

    source: str
    records_per_s: float
    partitions: int
    skew: float
    """The fullest partition's records over the median's; 1 where there is one partition."""
    waiting: int | None = None
    """Records that are there and in no epoch yet; None where only its brokers know."""


def sources(entries: Sequence[Entry], ends: Mapping[str, Positions]) -> list[SourceFlow]:
    """What came in between the first and the last of these entries; ``ends`` is where sources end now.

    >>> one = Entry(4, 0, {"clicks": {"0": 10, "1": 10}})
    >>> two = Entry(9, 2 * US_PER_S, {"clicks": {"0": 40, "1": 20}})
    >>> sources([one, two], {"clicks": {"0": 45, "1": 20}})
    [SourceFlow(source='clicks', records_per_s=20.0, partitions=2, skew=1.5, waiting=5)]
    """
    if not entries:
        return []
    first, last = entries[0], entries[-1]
    seconds = max(1e-6, (last.epoch_time_us - first.epoch_time_us) / US_PER_S)
    return [
        _source(name, first.cut.get(name, {}), positions, seconds if last.epoch > first.epoch else 0.0, ends.get(name))
        for name, positions in sorted(last.cut.items())
    ]


def _source(name: str, begin: Positions, end: Positions, seconds: float, ends: Positions | None) -> SourceFlow:
    came = [position - begin.get(partition, position) for partition, position in end.items()]
    middle = median(came) if came else 0
    rate = sum(came) / seconds if seconds else 0.0
    waiting = None if ends is None else sum(max(0, at - end.get(partition, 0)) for partition, at in ends.items())
    return SourceFlow(name, rate, len(end), max(came) / middle if middle else 1.0, waiting)


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
