"""The built-in job's input, and what it has to publish for it: plain Python over what was fed, without Lockstep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from lockstep.chaos.records import DISORDER_US

JOURNAL = "documents"
SOURCE = "shared"
CUSTOMERS = 60
PUBLIC = "public"
OUT_OF_ORDER_S = 2
"""As in the job."""
LATE_S = 60
"""Nothing is fed between this late and as late as the job waits for: a record is either in time or hopelessly late."""
_SHARED_WITH = ("team", "company", PUBLIC)
_WEIGHTS = (55, 30, 15)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Documents:
    """Makes document-shared events, each with a number of its own."""

    def __init__(self) -> None:
        self._made = 0

    def record(self, draw: Random, at_us: int) -> dict[str, Any]:
        """The next event, which happened shortly before ``at_us``."""
        self._made += 1
        return {
            "number": self._made,
            "customer": draw.randrange(CUSTOMERS),
            "shared_with": draw.choices(_SHARED_WITH, _WEIGHTS)[0],
            "at": _EPOCH + timedelta(microseconds=at_us - draw.randrange(DISORDER_US)),
        }


def reference(inputs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Everything the sinks have to hold, in no order: each public document once, and each closed second's count.

    Lateness is decided by how far event time had come before a record: those a minute and more behind it are late. The
    last record of the input comes far ahead of all others, so every second but its own is closed.

    >>> def event(number, second):
    ...     at = datetime(2025, 1, 1, 0, second // 60, second % 60, tzinfo=UTC)
    ...     return {"number": number, "customer": 7, "shared_with": "public", "at": at}
    >>> found = reference({"shared": [event(1, 600), event(2, 600), event(3, 5), event(4, 900)]})
    >>> [(row["documents"], row["newest"]) for row in found["alerts"]], len(found["public"])
    ([(2, 2)], 4)
    """
    newest = _EPOCH
    public = []
    windows: dict[tuple[int, datetime], list[int]] = {}
    for event in inputs[SOURCE]:
        late = event["at"] < newest - timedelta(seconds=LATE_S)
        newest = max(newest, event["at"])
        if event["shared_with"] == PUBLIC:
            public.append(dict(event))
            if not late:
                windows.setdefault((event["customer"], event["at"].replace(microsecond=0)), []).append(event["number"])
    closed_until = newest - timedelta(seconds=OUT_OF_ORDER_S)
    second = timedelta(seconds=1)
    alerts = [
        {
            "customer": customer,
            "window_start": start,
            "window_end": start + second,
            "documents": len(numbers),
            "newest": max(numbers),
        }
        for (customer, start), numbers in windows.items()
        if start + second <= closed_until
    ]
    return {"public": public, "alerts": alerts}
