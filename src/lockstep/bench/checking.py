"""Comparing what was published with an independent count of what was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

WindowKey = tuple[str, int]
WindowValue = tuple[int, int]


@dataclass(frozen=True)
class Check:
    """How the output differs from what it has to be."""

    expected: int
    """Windows that have to be there."""
    lost: int
    """Windows that are not."""
    repeated: int
    """Rows for a window that had one already."""
    wrong: int
    """Windows with another count or sum: events in them were lost or counted twice."""

    @property
    def sound(self) -> bool:
        """Whether there is no difference."""
        return self.lost == self.repeated == self.wrong == 0


def compare(expected: Mapping[WindowKey, WindowValue], found: Iterable[tuple[WindowKey, WindowValue]]) -> Check:
    """Compare the published rows with the expected windows.

    >>> compare({("a", 0): (1, 5), ("b", 0): (2, 6)}, [(("a", 0), (1, 5)), (("a", 0), (1, 5)), (("c", 0), (1, 1))])
    Check(expected=2, lost=1, repeated=1, wrong=1)
    """
    rows = list(found)
    seen = Counter(key for key, _ in rows)
    return Check(
        expected=len(expected),
        lost=sum(key not in seen for key in expected),
        repeated=sum(count - 1 for count in seen.values()),
        wrong=sum(expected.get(key) != value for key, value in dict(rows).items()),
    )


def window_rows(table: pa.Table) -> list[tuple[WindowKey, WindowValue]]:
    """The rows of an output with the columns customer, window_start, events and total."""
    starts = pc.cast(table["window_start"], pa.int64()).to_pylist()
    columns = (table[name].to_pylist() for name in ("customer", "events", "total"))
    return [
        ((customer, start), (events, total)) for customer, events, total, start in zip(*columns, starts, strict=True)
    ]
