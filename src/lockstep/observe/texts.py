"""Times, lengths of time and rates as people read them: on a terminal and on a page alike."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime


def time_text(us: int) -> str:
    """A time of day in UTC, to the millisecond.

    >>> time_text(1_700_000_000_123_456)
    '22:13:20.123'
    """
    return f"{datetime.fromtimestamp(us // 1000 / 1000, UTC):%H:%M:%S.%f}"[:-3]


def iso_text(us: int) -> str:
    """A time as ISO 8601 in UTC, for programs.

    >>> iso_text(1_700_000_000_123_456)
    '2023-11-14T22:13:20.123456Z'
    """
    seconds, rest = divmod(us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def span_text(milliseconds: float) -> str:
    """A length of time, short enough for a column.

    >>> span_text(3.21), span_text(412.0), span_text(61_500.0), span_text(7_400_000.0), span_text(3e9)
    ('3.2 ms', '412 ms', '61.5 s', '123 min', '34.7 days')
    """
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 10_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 600_000:
        return f"{milliseconds / 1000:.1f} s"
    days = milliseconds / 86_400_000
    return f"{milliseconds / 60_000:.0f} min" if days < 2 else f"{days:.1f} days"


def rate_text(per_s: float) -> str:
    """A number of records a second; only none is shown as 0.

    >>> rate_text(0.0), rate_text(0.04), rate_text(7.25), rate_text(5462.9)
    ('0', '0.04', '7.2', '5,463')
    """
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.2g}"


def waiting_text(held: Mapping[str, Mapping[str, int]]) -> str:
    """Which sources are held back, and why; empty if none is.

    >>> waiting_text({"clicks": {"orders": 3_000_000_000_000}})
    'clicks waits, 34.7 days ahead of orders in event time'
    """
    ahead = [(source, slowest, us) for source, others in held.items() for slowest, us in others.items()]
    return "; ".join(f"{one} waits, {span_text(us / 1000)} ahead of {other} in event time" for one, other, us in ahead)
