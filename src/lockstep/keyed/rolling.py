"""Rolling results by key: operators that keep one value for each key and give it after each record, or each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lockstep.keyed.accumulators import Totals
from lockstep.keyed.operator import Arrival, Cell, Timer, Turn
from lockstep.keyed.reducing import Folder, Reducer
from lockstep.keyed.value_order import order_key


class Rolling:
    """An operator with one output, no timers and no broadcast: what the rolling ones have in common."""

    def __init__(self, output: pa.Schema, *, per_record: bool) -> None:
        self.outputs: Sequence[pa.Schema] = (output,)
        self._per_record = per_record

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:  # noqa: ARG002
        """Never: no timer is ever set."""
        raise AssertionError(f"a timer that nobody set: {timer}")

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:  # noqa: ARG002
        """Never: there is one input, by key."""
        raise AssertionError("a broadcast record without a broadcast")


class ReduceOperator(Rolling):
    """``reduce``: the cell holds the record so far as a tuple."""

    def __init__(self, reducer: Reducer, kept: Sequence[int], output: pa.Schema, *, per_record: bool) -> None:
        """``kept`` are the indexes of the columns that follow the keys in a result."""
        super().__init__(output, per_record=per_record)
        self._reducer = reducer
        self._kept = tuple(kept)

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Put each record to what there is."""
        reducer, add = self._reducer, self._reducer.add
        so_far = None if cell.data is None else reducer.record(cell.data)
        if self._per_record:
            for arrival in records:
                so_far = add(so_far, arrival.values)
                turn.emit(self._result(turn.key, reducer.values(so_far)), arrival.at_us)
        else:
            for arrival in records:
                so_far = add(so_far, arrival.values)
            if so_far is not None and records:
                turn.emit(self._result(turn.key, reducer.values(so_far)), records[-1].at_us)
        if so_far is not None:
            cell.data, cell.changed = reducer.state(so_far), True

    def _result(self, key: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*key, *[values[at] for at in self._kept])


class ExtremeOperator(Rolling):
    """``min_by`` and ``max_by``: the cell holds the record, what it is compared by comes last."""

    def __init__(self, kept: Sequence[int], output: pa.Schema, *, largest: bool, per_record: bool) -> None:
        """``kept`` are the indexes of the columns that follow the keys in a result."""
        super().__init__(output, per_record=per_record)
        self._kept = tuple(kept)
        self._largest = largest

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Keep the best record; one whose value is null is never it."""
        best = cell.data
        best_key = None if best is None else order_key(best[-1])
        largest, per_record = self._largest, self._per_record
        for arrival in records:
            by = arrival.values[-1]
            if by is not None:
                by_key = order_key(by)
                if best is None or (by_key > best_key if largest else by_key < best_key):
                    best, best_key = arrival.values, by_key
                    cell.data, cell.changed = best, True
            if per_record and best is not None:
                turn.emit(self._result(turn.key, best), arrival.at_us)
        if not per_record and records and best is not None:
            turn.emit(self._result(turn.key, best), records[-1].at_us)

    def _result(self, key: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*key, *[values[at] for at in self._kept])


class FoldOperator(Rolling):
    """``fold``: the cell holds the accumulator, inside a tuple so that None is a value too."""

    def __init__(self, folder: Folder, output: pa.Schema, *, per_record: bool) -> None:
        super().__init__(output, per_record=per_record)
        self._folder = folder

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Let each record change the accumulator."""
        folder, add = self._folder, self._folder.add
        accumulator = folder.initial() if cell.data is None else cell.data[0]
        if self._per_record:
            for arrival in records:
                accumulator = add(accumulator, arrival.values)
                turn.emit((*turn.key, *folder.values(accumulator)), arrival.at_us)
        else:
            for arrival in records:
                accumulator = add(accumulator, arrival.values)
            if records:
                turn.emit((*turn.key, *folder.values(accumulator)), records[-1].at_us)
        cell.data, cell.changed = (accumulator,), True


class AggregateOperator(Rolling):
    """``agg``: the cell holds the states of the accumulators."""

    def __init__(self, totals: Totals, output: pa.Schema, *, per_record: bool) -> None:
        super().__init__(output, per_record=per_record)
        self._totals = totals

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Add each record."""
        totals = self._totals
        states = totals.initial() if cell.data is None else cell.data
        for arrival in records:
            states = totals.add(states, arrival.values)
            if self._per_record:
                turn.emit((*turn.key, *totals.results(states)), arrival.at_us)
        if not self._per_record and records:
            turn.emit((*turn.key, *totals.results(states)), records[-1].at_us)
        cell.data, cell.changed = states, True
