"""The nearest-rank quantile: a value that really occurred."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def quantile(values: Sequence[float], part: float) -> float:
    """The value that ``part`` of all values do not exceed; 0 if there are none.

    >>> quantile([3.0, 1.0, 2.0, 4.0], 0.5), quantile([3.0, 1.0, 2.0, 4.0], 0.99), quantile([], 0.5)
    (2.0, 4.0, 0.0)
    """
    ordered = sorted(values)
    return ordered[max(0, ceil(part * len(ordered)) - 1)] if ordered else 0.0
