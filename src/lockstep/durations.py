"""Lengths of time as people write them: "5 seconds", "200 ms", "1 minute 30 s"."""

from __future__ import annotations

import re
from datetime import timedelta

from lockstep.errors import PlanError

_UNITS_US = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")

Duration = str | timedelta
"""A length of time as people write it, ``"5 seconds"`` or ``"1 minute 30 seconds"``, or a timedelta."""


def duration_us(value: Duration) -> int:
    """A length of time in microseconds.

    >>> duration_us("1 minute 30 s")
    90000000
    >>> duration_us("0.5 seconds")
    500000
    >>> duration_us(timedelta(hours=1))
    3600000000
    """
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if not isinstance(value, str):
        raise _not_a_duration(value, f"a {type(value).__name__} has no unit.")
    total, at = 0.0, 0
    while match := _PART.match(value, at):
        unit = match.group(2).lower()
        factor = _UNITS_US.get(unit) or _UNITS_US.get(unit.removesuffix("s"))
        if factor is None:
            raise _not_a_duration(value, f'"{match.group(2)}" is not a unit of time.')
        total += float(match.group(1)) * factor
        at = match.end()
    if at == 0 or at != len(value):
        raise _not_a_duration(value, "a duration is a number and a unit, perhaps several of them.")
    return round(total)


def duration_text(us: int) -> str:
    """The shortest exact way to write a duration.

    >>> duration_text(90_000_000), duration_text(200_000), duration_text(3_600_000_000)
    ('90 seconds', '200 ms', '1 hour')
    """
    for name, size in (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000)):
        if us >= size and us % size == 0:
            return f"{us // size} {name}{'s' if us != size else ''}"
    return f"{us // 1000} ms" if us % 1000 == 0 else f"{us} us"


def _not_a_duration(value: object, why: str) -> PlanError:
    return PlanError(
        "LS0103",
        f"{value!r} is not a duration",
        why=why,
        hint='write it like "5 seconds", "200 ms" or "1 minute 30 seconds".',
    )
