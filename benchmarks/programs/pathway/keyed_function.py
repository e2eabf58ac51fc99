"""A Python function with state by key, with Pathway: an accumulator of its own."""

from heapq import nlargest

import pathway as pw
from common import Event, read, run


class HighestThree(pw.BaseCustomAccumulator):
    """The three highest amounts of a key."""

    def __init__(self, best: list[int]) -> None:
        self.best = best

    @classmethod
    def from_row(cls, row: list[int]) -> "HighestThree":
        """One amount."""
        return cls([row[0]])

    def update(self, other: "HighestThree") -> None:
        """More amounts."""
        self.best = nlargest(3, [*self.best, *other.best])

    def compute_result(self) -> int:
        """Their sum."""
        return sum(self.best)


highest_three = pw.reducers.udf_reducer(HighestThree)
events = read("events", Event)
run(
    events.groupby(events.key).reduce(
        events.key,
        events=pw.reducers.count(),
        best=highest_three(events.amount),
        seq=pw.reducers.max(events.seq),
    )
)
