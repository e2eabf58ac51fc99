"""The records of a window with the largest or smallest values, each with its rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lockstep.keyed.operator import Arrival
from lockstep.keyed.value_order import order_key
from lockstep.keyed.windows.contents import Element, Kept, element_of, time_and_position
from lockstep.keyed.windows.panes import Pane


@dataclass(frozen=True)
class Ranked(Kept):
    """Keeps no more records than it gives, the best first; among equals the earlier by time, then by position.

    The schema has the rank and the columns of a record; only the latter where the rank is not wanted.
    """

    schema: pa.Schema
    number: int
    by: int
    """Where a record's values have what it is ranked by; one whose value is null has no rank."""
    places: tuple[int, ...]
    """Where a record's values have the columns of a result, those after the rank."""
    largest: bool

    def add(self, kept: Any, record: Arrival) -> Any:
        """The best with one more record."""
        best: list[Element] = [] if kept is None else kept
        if record.values[self.by] is not None:
            self._insert(best, element_of(record))
        return best

    def merge(self, kept: Any, later: Any) -> Any:
        """The best of both."""
        for element in later:
            self._insert(kept, element)
        return kept

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:  # noqa: ARG002
        """One for each record that has a rank."""
        rows = [tuple(values[place] for place in self.places) for _, values, _ in kept]
        if len(self.schema) == len(self.places):
            return rows
        return [(rank, *row) for rank, row in enumerate(rows, start=1)]

    def _insert(self, best: list[Element], element: Element) -> None:
        place = len(best)
        while place and self._is_before(element, best[place - 1]):
            place -= 1
        best.insert(place, element)
        del best[self.number :]

    def _is_before(self, one: Element, other: Element) -> bool:
        by, other_by = order_key(one[1][self.by]), order_key(other[1][self.by])
        if by != other_by:
            return bool(by > other_by if self.largest else by < other_by)
        return time_and_position(one) < time_and_position(other)
