"""Lets a record through if none like it was let through nearby in time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lockstep.keyed.operator import Arrival, Cell, Timer, Turn


class DistinctOperator:
    """The cell holds the times of the records of this key that were let through and are still of interest, sorted.

    By event time a record may come up to ``within`` behind the watermark and still be compared with everything less
    than ``within`` from it; so times are kept for twice that long. What comes later than that is dropped: whether it
    is a duplicate cannot be known any more. Epoch time only goes forward, so the bound itself is enough there.
    """

    def __init__(self, schema: pa.Schema, within_us: int, *, by_event_time: bool) -> None:
        self.outputs: Sequence[pa.Schema] = (schema,)
        self._width = len(schema)
        self._within_us = within_us
        self._by_event_time = by_event_time
        self._kept_us = 2 * within_us if by_event_time else within_us

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Let through what has no like nearby; a record without an event time has no place in time and is dropped."""
        times: list[int] = cell.data or []
        before = len(times)
        for arrival in records:
            at_us = arrival.at_us if self._by_event_time else turn.epoch_time_us
            if at_us is None or self._is_too_late(at_us, turn) or self._is_known(at_us, times):
                continue
            times.append(at_us)
            turn.emit(arrival.values[: self._width], arrival.at_us)
        if len(times) == before:
            return
        times.sort()
        cell.data, cell.changed = times, True
        if before == 0:
            self._set_timer(times, turn)

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        """Forget what no record can come near to any more; the key itself when nothing is left."""
        left = [at_us for at_us in cell.data or [] if at_us + self._kept_us > timer.at_us]
        cell.data, cell.changed = left or None, True
        if left:
            self._set_timer(left, turn)

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:  # noqa: ARG002
        """Never: there is one input, by key."""
        raise AssertionError("a broadcast record without a broadcast")

    def _is_too_late(self, at_us: int, turn: Turn) -> bool:
        if not self._by_event_time or turn.watermark_us is None:
            return False
        return at_us + self._within_us <= turn.watermark_us

    def _is_known(self, at_us: int, times: list[int]) -> bool:
        return any(abs(at_us - other_us) < self._within_us for other_us in times)

    def _set_timer(self, times: list[int], turn: Turn) -> None:
        """One timer for the key: when its oldest time may be forgotten."""
        turn.set_timer(Timer("event" if self._by_event_time else "epoch", times[0] + self._kept_us))
