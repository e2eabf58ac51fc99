"""The few statistics that the benches report, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lockstep.observe.quantiles import quantile

Row = dict[str, float | int | str | bool | None]


def percentile(values: Sequence[float], part: float) -> float:
    """The nearest-rank percentile: a value that really occurred, nan if there are none.

    >>> percentile([5, 1, 4, 2, 3], 0.5), percentile(range(1, 101), 0.99)
    (3.0, 99.0)
    """
    return float(quantile(values, part)) if len(values) else math.nan


def median(values: Sequence[float]) -> float:
    """The middle value (the lower one of two).

    >>> median([3, 1, 2])
    2.0
    """
    return percentile(values, 0.5)


def spread(values: Sequence[float]) -> float:
    """How far repeated measurements lie apart: (largest - smallest) / median, 0 for a single one.

    >>> spread([9.0, 10.0, 11.0])
    0.2
    """
    if len(values) < 2:
        return 0.0
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else math.nan


def summary(values: Sequence[float], unit: str) -> Row:
    """p50, p90, p99, max and count, with the unit last in the names.

    >>> summary([1.0, 2.0, 3.0], "ms")
    {'p50_ms': 2.0, 'p90_ms': 3.0, 'p99_ms': 3.0, 'max_ms': 3.0, 'count': 3}
    """
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {**{f"{name}_{unit}": percentile(values, part) for name, part in parts.items()}, "count": len(values)}
