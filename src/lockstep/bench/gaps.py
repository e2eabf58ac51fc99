"""What a reader of a sink notices of a kill: gaps between the moments at which epochs became visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lockstep.bench.statistics import percentile
from lockstep.clock import US_PER_S

SeenEpoch = tuple[int, int]
"""(epoch, when a reader first saw it in microseconds)."""


@dataclass(frozen=True)
class Disturbance:
    """The gaps around one kill, as a reader saw them."""

    before_p50_s: float
    before_p99_s: float
    before_max_s: float
    after_max_s: float
    after_max_at_s: float
    """When that one ended, counted from the kill: at once, while the replica joins, or when the next spare boots."""

    @property
    def ratio(self) -> float:
        """The longest gap after the kill against the p99 gap before it."""
        return self.after_max_s / self.before_p99_s if self.before_p99_s else float("inf")


def disturbance(seen_epochs: Sequence[SeenEpoch], kill_us: int, before_s: float, after_s: float) -> Disturbance:
    """The gaps in the ``before_s`` up to the kill, and the longest one in the ``after_s`` from it.

    >>> seen = [(n, n * 100_000) for n in range(200)] + [(200, 20_250_000), (201, 20_350_000)]
    >>> found = disturbance(seen, kill_us=20_000_000, before_s=20, after_s=0.3)
    >>> found.before_p99_s, found.after_max_s, round(found.ratio, 1)
    (0.1, 0.35, 3.5)
    """
    before = gaps_before(seen_epochs, kill_us, before_s)
    after_max_s, ended_us = longest_gap_after(seen_epochs, kill_us, after_s)
    return Disturbance(
        before_p50_s=percentile(before, 0.5),
        before_p99_s=percentile(before, 0.99),
        before_max_s=percentile(before, 1.0),
        after_max_s=after_max_s,
        after_max_at_s=(ended_us - kill_us) / US_PER_S,
    )


def gaps_before(seen_epochs: Sequence[SeenEpoch], kill_us: int, before_s: float) -> list[float]:
    """The gaps that began and ended within ``before_s`` before the kill."""
    first_us = kill_us - round(before_s * US_PER_S)
    times = [seen for _, seen in seen_epochs if first_us <= seen <= kill_us]
    return [(later - earlier) / US_PER_S for earlier, later in pairwise(times)]


def longest_gap_after(seen_epochs: Sequence[SeenEpoch], kill_us: int, after_s: float) -> tuple[float, int]:
    """The longest gap that reaches into the ``after_s`` from the kill on, observed to their end; and when it ended.

    The gap in which the kill fell counts from its beginning; one still open when the time is over counts up to there.
    """
    last_us = kill_us + round(after_s * US_PER_S)
    earlier = [seen for _, seen in seen_epochs if seen <= kill_us]
    after = [seen for _, seen in seen_epochs if kill_us < seen <= last_us]
    edges = [max(earlier, default=kill_us), *after, last_us]
    return max(((later - before) / US_PER_S, later) for before, later in pairwise(edges))


def gap_over(seen_epochs: Sequence[SeenEpoch], from_us: int, to_us: int, until_us: int) -> float:
    """The longest gap that has a moment in common with ``from_us`` to ``to_us``, from its beginning to its end.

    One that is still open counts up to ``until_us``.

    >>> seen = [(0, 0), (1, 100_000), (2, 700_000), (3, 1_700_000)]
    >>> gap_over(seen, from_us=150_000, to_us=600_000, until_us=9_000_000)
    0.6
    """
    gaps = pairwise([*(seen for _, seen in seen_epochs), until_us])
    return max((end - begin) / US_PER_S for begin, end in gaps if begin <= to_us and end >= from_us)


def wants_sealer(kills: int, of_sealers: int) -> bool:
    """Whether the next victim should be the replica that sealed the newest epoch: at least half of all are.

    >>> wants_sealer(0, 0), wants_sealer(1, 1), wants_sealer(2, 1), wants_sealer(3, 3)
    (True, False, True, False)
    """
    return of_sealers * 2 <= kills


def periods_ms(seen_epochs: Sequence[SeenEpoch]) -> list[float]:
    """From each epoch that was seen to the next.

    >>> periods_ms([(0, 0), (1, 250_000), (2, 400_000)])
    [250.0, 150.0]
    """
    return [(later - earlier) / 1000 for (_, earlier), (_, later) in pairwise(seen_epochs)]
