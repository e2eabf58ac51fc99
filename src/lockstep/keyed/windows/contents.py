"""What a window keeps of its records, and what it makes of them when it gives a result.

Contents are plain data, None for a window without records. Where the records themselves are kept they are
(time, values, position); a result is computed over them in the order of their times, then positions, so that it does
not matter in which epoch each came. What is added up as it comes (sums, reduce, fold) sees records epoch by epoch,
those of an epoch in order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from lockstep.keyed.accumulators import Totals
from lockstep.keyed.functions import Returned, explained
from lockstep.keyed.operator import Arrival, Position
from lockstep.keyed.records import Record
from lockstep.keyed.reducing import MEND, Folder, Reducer
from lockstep.keyed.windows.panes import Pane

Element = tuple[int | None, tuple[Any, ...], Position]
"""A record that is kept: its event time, values and position."""


class Contents(Protocol):
    """Adds records to what a window keeps, joins two windows, and gives results."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a result, without keys and window."""

    def add(self, kept: Any, record: Arrival) -> Any:
        """What is kept with one more record."""

    def merge(self, kept: Any, later: Any) -> Any:
        """What is kept of two windows that became one; neither is empty."""

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:
        """The values of each result."""


@dataclass(frozen=True)
class Added:
    """Aggregates, added up record by record."""

    totals: Totals

    @property
    def schema(self) -> pa.Schema:
        """A column for each aggregate."""
        return self.totals.schema

    def add(self, kept: Any, record: Arrival) -> Any:
        """The totals with one more record."""
        return self.totals.add(self.totals.initial() if kept is None else kept, record.values)

    def merge(self, kept: Any, later: Any) -> Any:
        """The totals of both."""
        return self.totals.merge(kept, later)

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:  # noqa: ARG002
        """One."""
        return [self.totals.results(kept)]


class Kept:
    """Contents that keep the records themselves."""

    def add(self, kept: Any, record: Arrival) -> Any:
        """The records with one more."""
        element = element_of(record)
        if kept is None:
            return [element]
        kept.append(element)
        return kept

    def merge(self, kept: Any, later: Any) -> Any:
        """The records of both."""
        return [*kept, *later]


@dataclass(frozen=True)
class InOrder(Kept):
    """What is added up record by record, but depends on their order, or cannot be made one of two when windows merge:
    the records are kept, and added up in order of time for each result."""

    of: Contents

    @property
    def schema(self) -> pa.Schema:
        """As of what is added up."""
        return self.of.schema

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:
        """As many as it gives of all records."""
        state = None
        for at_us, values, position in in_order(kept):
            state = self.of.add(state, Arrival(0, values, at_us, position))
        return self.of.results(state, pane)


@dataclass(frozen=True)
class Reduced:
    """Records made one by the user's function; what is kept are the values of that one."""

    reducer: Reducer
    columns: pa.Schema
    names: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The record's columns, without those that stand before them already."""
        return pa.schema([self.columns.field(name) for name in self.names])

    def add(self, kept: Any, record: Arrival) -> Any:
        """The record so far and a new one, made one."""
        return self.merge(kept, record.values)

    def merge(self, kept: Any, later: Any) -> Any:
        """Two records made one."""
        so_far = None if kept is None else self.reducer.record(kept)
        return self.reducer.state(self.reducer.add(so_far, later))

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:  # noqa: ARG002
        """One."""
        values = dict(zip(self.columns.names, self.reducer.values(self.reducer.record(kept)), strict=True))
        return [tuple(values[name] for name in self.names)]


@dataclass(frozen=True)
class Folded:
    """A value that the user's function changes with each record; kept in a tuple, since None is a value too."""

    folder: Folder
    schema: pa.Schema

    def add(self, kept: Any, record: Arrival) -> Any:
        """The value after one more record."""
        before = self.folder.initial() if kept is None else kept[0]
        return (self.folder.add(before, record.values),)

    def merge(self, kept: Any, later: Any) -> Any:  # noqa: ARG002
        """Two values cannot be made one; sessions keep their records instead (:class:`InOrder`)."""
        raise AssertionError("windows that merge are folded when they give a result")

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:  # noqa: ARG002
        """One."""
        # A function may go on changing the value that it was given, and a result must not change any more.
        return [self.folder.values(copy.deepcopy(kept[0]))]


@dataclass(frozen=True)
class Processed(Kept):
    """All records of the window, given to the user's function."""

    step: str
    function: Any
    schema: pa.Schema
    names: tuple[str, ...]

    def results(self, kept: Any, pane: Pane) -> Iterable[tuple[Any, ...]]:
        """As many as the function returns or yields."""
        records = [Record(dict(zip(self.names, values, strict=False))) for _, values, _ in in_order(kept)]
        try:
            made = self.function(records, pane)
            returned = Returned(self.step, self.schema)
            return [returned.values(one) for one in _as_many(made)]
        except Exception as error:
            raise explained(self.step, error, f"{len(records)} records of {pane}", MEND) from None


def element_of(record: Arrival) -> Element:
    """What is kept of a record. Without a time it stays where it came, so its position is of no use."""
    return record.at_us, record.values, () if record.at_us is None else record.position


def in_order(kept: list[Element]) -> list[Element]:
    """The records by time, then by position; those without a time first, as they came.

    >>> kept = [(2, "b", ()), (1, "d", ("s", "0", 7)), (None, "c", ()), (1, "a", ("s", "0", 3))]
    >>> [values for _, values, _ in in_order(kept)]
    ['c', 'a', 'd', 'b']
    """
    return sorted(kept, key=time_and_position)


def time_and_position(element: Element) -> tuple[bool, int, Position]:
    """What puts records in order."""
    return element[0] is not None, element[0] or 0, element[2]


def _as_many(made: Any) -> Iterable[Any]:
    """None, one record, or any number of them."""
    if made is None:
        return ()
    if isinstance(made, Mapping | Record | tuple) or not isinstance(made, Iterable):
        return (made,)
    return made
