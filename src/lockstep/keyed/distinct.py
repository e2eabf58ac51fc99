"""Lets one of the records through that are alike and near each other in time: the first, or the last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lockstep.keyed.operator import Arrival, Cell, Position, Timer, Turn

_Waiting = tuple[int, Position, tuple[Any, ...] | None]
"""The time and position of a record, and its values; None if a later one has taken its place."""


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


class LastOperator(DistinctOperator):
    """Lets a record through when none of its key can come any more that is less than ``within`` later.

    The cell holds [records that wait, times of those let through]. A record that another one follows is not let
    through; its time is kept as long as one may still come that it follows. What comes near a record that was let
    through is dropped: by event time that is known for as long as :class:`DistinctOperator` knows it.
    """

    wants_positions = True
    """Of records of one time the last is the one with the latest position."""

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Hold back what has no like after it; a record without an event time has no place in time and is dropped."""
        waiting, given = self._known(cell)
        before = len(waiting)
        for arrival in records:
            at_us = arrival.at_us if self._by_event_time else turn.epoch_time_us
            if at_us is not None and not self._is_too_late(at_us, turn) and not self._is_known(at_us, given):
                waiting.append((at_us, arrival.position, arrival.values[: self._width]))
        if len(waiting) > before:
            self._keep(cell, self._without_followed(waiting), given, turn)

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:  # noqa: ARG002
        """Let through what has waited long enough; forget what no record can come near to any more."""
        now_us = turn.watermark_us if self._by_event_time else turn.epoch_time_us
        assert now_us is not None, "a timer is due by a clock that has begun"
        waiting, given = self._known(cell)
        for at_us, _, values in waiting:
            if at_us + self._within_us <= now_us and values is not None:
                # As a window's result it happens at the last instant of the time that it has waited: it is not late.
                turn.emit(values, at_us + self._within_us - 1 if self._by_event_time else None)
                given.append(at_us)
        left = [one for one in waiting if one[0] + self._within_us > now_us]
        self._keep(cell, left, [at_us for at_us in given if at_us + self._kept_us > now_us], turn)

    def _known(self, cell: Cell) -> tuple[list[_Waiting], list[int]]:
        """What the cell holds; nothing also if a timer comes for a record that came before what it was set for."""
        waiting, given = cell.data or ([], [])
        return waiting, given

    def _without_followed(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """In order of time and position; without the values of those that another follows within the bound."""
        waiting.sort(key=lambda one: one[:2])
        followed = [later[0] - one[0] < self._within_us for one, later in pairwise(waiting)]
        return [
            (at_us, position, None if is_followed else values)
            for (at_us, position, values), is_followed in zip(waiting, [*followed, False], strict=True)
        ]

    def _keep(self, cell: Cell, waiting: list[_Waiting], given: list[int], turn: Turn) -> None:
        cell.data, cell.changed = [waiting, given] if waiting or given else None, True
        due = [one[0] + self._within_us for one in waiting[:1]] + [at_us + self._kept_us for at_us in given[:1]]
        if due:
            turn.set_timer(Timer("event" if self._by_event_time else "epoch", min(due)))
