"""What an epoch costs: *fixed + per record x n*, fitted continuously; and what a job can carry at that cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from lockstep.runtime.decide.pacing import SLACK

FORGETTING = 0.998
"""Weight of all earlier epochs when one is added: the last 500 count. At 16 a window of a minute that is half an hour,
long enough to see epochs of different sizes, short enough to see that the job's data have changed."""
SAMPLES_MIN = 8.0
"""Fewer epochs say nothing."""
SIGNIFICANT = 2.0
"""A cost per record that is not so many times its own standard error is not told from none."""
OUTLIER = 4.0
"""An epoch that takes so many times what was expected (a pause of the garbage collector, a disk) counts as this."""
_SPREAD_MIN = 1e-4
"""Of the mean, squared: epochs whose sizes differ by less than a hundredth are all of one size."""


@dataclass(frozen=True)
class Cost:
    """What an epoch costs."""

    fixed_s: float
    per_record_s: float
    error: float = 0.0
    """The standard error of the cost per record, as a share of it."""

    @property
    def at_worst(self) -> Cost:
        """What it may well be, given how exactly it is known."""
        return Cost(self.fixed_s, self.per_record_s * (1.0 + SIGNIFICANT * self.error))

    def epoch_s(self, records: float) -> float:
        """How long an epoch with so many records takes.

        >>> Cost(0.05, 0.001).epoch_s(100)
        0.15000000000000002
        """
        return self.fixed_s + self.per_record_s * records

    def capacity_per_s(self, target_s: float, interval_s: float) -> float:
        """How many records a second can be carried by epochs that take ``target_s``.

        >>> round(Cost(0.1, 0.001).capacity_per_s(target_s=1.0, interval_s=0.1))
        692

        Epochs are sealed 1.3 times as far apart as the slowest replica takes for one. If the fixed cost alone is more
        than half of the target, epochs of twice the fixed cost are what can be had.
        """
        takes_s = max(target_s, 2 * self.fixed_s)
        return (takes_s - self.fixed_s) / self.per_record_s / max(interval_s, SLACK * takes_s)


@dataclass
class CostFit:
    """A line through (records, seconds) of the last epochs: weighted means, and sums of squares around them.

    Around the means, not around zero: a million records squared would swallow what the sizes differ by.

    >>> fit = CostFit()
    >>> for records in (100, 400, 200, 300) * 5:
    ...     fit.add(records, 0.05 + 0.001 * records)
    >>> cost = fit.cost()
    >>> round(cost.fixed_s, 6), round(cost.per_record_s, 6)
    (0.05, 0.001)

    Epochs of one size do not tell what of them is fixed:

    >>> fit = CostFit()
    >>> for _ in range(100):
    ...     fit.add(500, 0.3)
    >>> fit.cost() is None
    True
    """

    weight: float = 0.0
    records: float = 0.0
    seconds: float = 0.0
    spread: float = 0.0
    """Of the records, around their mean."""
    together: float = 0.0
    variation: float = 0.0
    """Of the seconds, around theirs."""

    def add(self, records: float, seconds: float) -> None:
        """Take one epoch into account."""
        if not (math.isfinite(records) and math.isfinite(seconds)) or records < 0 or seconds < 0:
            return
        cost = self.cost() if self.seconds and seconds > OUTLIER * self.seconds else None
        if cost is not None:
            seconds = min(seconds, OUTLIER * cost.epoch_s(records))
        self.weight = self.weight * FORGETTING + 1.0
        more, longer = records - self.records, seconds - self.seconds
        self.records += more / self.weight
        self.seconds += longer / self.weight
        self.spread = self.spread * FORGETTING + more * (records - self.records)
        self.together = self.together * FORGETTING + more * (seconds - self.seconds)
        self.variation = self.variation * FORGETTING + longer * (seconds - self.seconds)

    def cost(self) -> Cost | None:
        """The cost as far as it is known; None if it is not."""
        if self.weight < SAMPLES_MIN or self.spread <= _SPREAD_MIN * self.weight * max(1.0, self.records**2):
            return None
        slope = self.together / self.spread
        unexplained = max(0.0, self.variation - slope * self.together)
        error = math.sqrt(unexplained / max(1.0, self.weight - 2.0) / self.spread)
        if slope <= SIGNIFICANT * error or slope <= 0.0:
            return None
        return Cost(max(0.0, self.seconds - slope * self.records), slope, error / slope)

    def to_json(self) -> dict[str, float]:
        """As plain data.

        >>> CostFit.from_json(CostFit(weight=3.0).to_json()) == CostFit(weight=3.0)
        True
        """
        return asdict(self)

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> CostFit:
        """As it was kept."""
        return CostFit(**{one.name: float(kept.get(one.name, 0.0)) for one in fields(CostFit)})
