"""Sharing out numbers of records: a limit over partitions, a range over tasks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from lockstep.connect.protocols import Slice

SLICE_RECORDS = 50_000
"""What one task reads at most: also the largest batch that a source yields."""
BATCH_ROWS = 50_000


def fair_shares(available: Mapping[str, int], total_max: int) -> dict[str, int]:
    """How many of its available records each partition may give, about ``total_max`` in all.

    >>> fair_shares({"0": 10, "1": 1000, "2": 1000}, 100)
    {'0': 10, '1': 45, '2': 45}
    >>> fair_shares({"0": 5, "1": 5}, 1)
    {'0': 1, '1': 1}
    """
    shares = dict.fromkeys(available, 0)
    hungry = sorted((name for name in available if available[name] > 0), key=lambda name: available[name])
    # At least one each: with a limit below the number of partitions, some would wait for ever.
    left = max(len(hungry), total_max)
    while hungry and left > 0:
        name = hungry.pop(0)
        # Smallest first: each takes at most an equal part of what is left, so whoever comes later can only get more.
        shares[name] = min(available[name], -(-left // (len(hungry) + 1)))
        left -= shares[name]
    return shares


def split_range(partition: str, start: int, end: int, detail: Mapping[str, object] | None = None) -> list[Slice]:
    """The range in slices of about equal size, each at most ``SLICE_RECORDS``.

    >>> [(piece.start, piece.end) for piece in split_range("0", 10, 120_010)]
    [(10, 40010), (40010, 80010), (80010, 120010)]
    """
    pieces = -(-(end - start) // SLICE_RECORDS)
    bounds = [start + (end - start) * index // pieces for index in range(pieces)] + [end] if pieces > 0 else []
    return [Slice(partition, first, last, last - first, dict(detail or {})) for first, last in pairwise(bounds)]
