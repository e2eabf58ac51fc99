"""Time as integers: microseconds since 1970 in UTC, the unit of everything that is stored.

A pipeline never reads this clock: it reads the epoch time that was sealed in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Anything that answers with microseconds since 1970; passed in so that tests can move time by hand."""

US_PER_S = 1_000_000

END_US = 253_370_764_800 * US_PER_S
"""The end of event time (the year 9999): the mark of a bounded input that has been read to its end."""
NEAR_END_US = END_US - 400 * 86_400 * US_PER_S
"""A watermark beyond this is at the end: no stream is out of order by more than a year."""


def wall_us() -> int:
    """The machine's clock, in microseconds since 1970.

    >>> wall_us() > 1_600_000_000 * US_PER_S
    True
    """
    return time.time_ns() // 1000
