"""Latencies as counts in fixed, log-spaced buckets: small, mergeable, and good to 5 % at any scale."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

GROWTH = 1.08
"""Each bucket ends 8 % above the one before. A value is answered with its bucket's geometric middle, which is off by at
most sqrt(1.08) - 1 = 3.9 %, inside the promised 5 %."""
VALUE_MIN_MS = 1e-3
VALUE_MAX_MS = 1e9
"""11 days. Values outside the limits count in the outermost buckets: ln(1e12) / ln(1.08) = 360 buckets at most."""
_LOG_GROWTH = math.log(GROWTH)


@dataclass(frozen=True)
class Histogram:
    """How often each latency occurred. Immutable: ``add`` and ``merge`` answer with a new one.

    >>> latencies = Histogram().add_all([10.0] * 98 + [200.0, 400.0])
    >>> round(latencies.percentile_ms(0.5), 1), round(latencies.percentile_ms(0.99)), latencies.max_ms
    (9.7, 195, 400.0)
    """

    counts: Mapping[int, int] = field(default_factory=dict)
    """Bucket number -> how many; empty buckets are absent."""
    max_ms: float = 0.0
    """The largest value, exactly."""

    @property
    def count(self) -> int:
        """How many values were added."""
        return sum(self.counts.values())

    def add(self, value_ms: float) -> Histogram:
        """With one more value; a negative one (two clocks that disagree) counts as zero."""
        return self.add_all((value_ms,))

    def add_all(self, values_ms: Iterable[float]) -> Histogram:
        """With all of ``values_ms``."""
        counts, highest = dict(self.counts), self.max_ms
        for value in values_ms:
            bucket = _bucket(value)
            counts[bucket] = counts.get(bucket, 0) + 1
            highest = max(highest, value)
        return Histogram(counts, highest)

    def merge(self, other: Histogram) -> Histogram:
        """The histogram of both sets of values.

        >>> Histogram().add(1.0).merge(Histogram().add(9.0)) == Histogram().add_all([1.0, 9.0])
        True
        """
        counts = dict(self.counts)
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        return Histogram(counts, max(self.max_ms, other.max_ms))

    def percentile_ms(self, share: float) -> float:
        """The smallest value that at least ``share`` (0 to 1) of all values do not exceed; 0 if there are none."""
        rank = max(1, math.ceil(share * self.count))
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return min(_middle_ms(bucket), self.max_ms)
        return 0.0

    def summary_ms(self) -> dict[str, float]:
        """p50, p90, p99 and max in milliseconds, and the count.

        >>> Histogram().summary_ms()
        {'p50': 0.0, 'p90': 0.0, 'p99': 0.0, 'max': 0.0, 'count': 0}
        """
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        summary = {name: self.percentile_ms(share) for name, share in shares.items()}
        return {**summary, "max": self.max_ms, "count": self.count}

    def to_json(self) -> str:
        """One line of JSON that :meth:`from_json` reads."""
        return json.dumps({"growth": GROWTH, "max_ms": self.max_ms, "counts": sorted(self.counts.items())})

    @staticmethod
    def from_json(text: str) -> Histogram:
        """What :meth:`to_json` wrote.

        >>> Histogram.from_json(Histogram().add(3.5).to_json()) == Histogram().add(3.5)
        True
        """
        raw = json.loads(text)
        assert raw["growth"] == GROWTH, "buckets of another width cannot be read as these"
        return Histogram({int(bucket): int(count) for bucket, count in raw["counts"]}, float(raw["max_ms"]))


def _bucket(value_ms: float) -> int:
    """Bucket n holds the values from GROWTH**n up to GROWTH**(n+1)."""
    return math.floor(math.log(min(max(value_ms, VALUE_MIN_MS), VALUE_MAX_MS)) / _LOG_GROWTH)


def _middle_ms(bucket: int) -> float:
    return math.exp((bucket + 0.5) * _LOG_GROWTH)
