"""Operators of rows that replace each other: the newest row of a key, and aggregates of the rows that hold.

Both give changes: a row that holds no longer is taken back (sign -1), then comes the one that holds now (sign 1). In an
epoch a key gives at most one of each, whatever happened in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lockstep.keyed.operator import Arrival, Cell, Timer, Turn
from lockstep.keyed.signed import SignedTotals

SIGN = pa.field("__change", pa.int32())
"""The last value of a change."""


class Changing:
    """An operator with one output of changes, no timers and no broadcast."""

    def __init__(self, output: pa.Schema) -> None:
        self.outputs: Sequence[pa.Schema] = (output.append(SIGN),)

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:  # noqa: ARG002
        """Never: no timer is ever set."""
        raise AssertionError(f"a timer that nobody set: {timer}")

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:  # noqa: ARG002
        """Never: there is one input, by key."""
        raise AssertionError("a broadcast record without a broadcast")

    @staticmethod
    def _tell(turn: Turn, before: tuple[Any, ...] | None, after: tuple[Any, ...] | None) -> None:
        """What held and what holds now, if that is not the same."""
        if before == after:
            return
        if before is not None:
            turn.emit((*before, -1))
        if after is not None:
            turn.emit((*after, 1))


class LatestOperator(Changing):
    """``latest``: the cell holds the row. The last by position is the newest: event time may go back and forth."""

    wants_positions = True

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Take the row back that there was."""
        newest = max(records, key=lambda arrival: arrival.position).values
        self._tell(turn, cell.data, newest)
        cell.data, cell.changed = newest, True


class AggregateOfChangesOperator(Changing):
    """``agg`` of changes: the cell holds how many rows there are, and the states of the aggregates."""

    def __init__(self, totals: SignedTotals, output: pa.Schema) -> None:
        super().__init__(output)
        self._totals = totals

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Count each row with its sign; a key without rows is forgotten."""
        totals = self._totals
        state = totals.initial() if cell.data is None else cell.data
        before = totals.results(state)
        for arrival in records:
            state = totals.add(state, arrival.values, arrival.values[-1])
        after = totals.results(state)
        self._tell(turn, before and (*turn.key, *before), after and (*turn.key, *after))
        cell.data, cell.changed = (None if after is None else state), True
