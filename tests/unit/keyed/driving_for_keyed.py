"""Drives an operator over epochs without Spark: one cell for each key, which goes through bytes after every epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from lockstep.keyed.codec import decode, encode
from lockstep.keyed.engine import BucketTurn
from lockstep.keyed.operator import Arrival, Cell, Key, Operator, Position

SECOND_US = 1_000_000


class Given(NamedTuple):
    """One record: its key, its values, its event time, its position."""

    key: Key
    values: tuple[Any, ...]
    at_us: int | None = None
    position: Position = ()


class Emission(NamedTuple):
    """What an operator emitted, and in which epoch."""

    epoch: int
    values: tuple[Any, ...]
    at_us: int | None


@dataclass(frozen=True)
class Epoch:
    records: Sequence[Given]
    watermark_us: int | None = None
    epoch_time_us: int = 0


def drive(operator: Operator, epochs: Iterable[Epoch]) -> tuple[list[Emission], dict[Key, Any]]:
    """What was emitted, in order, and what is left in the keys' cells."""
    cells: dict[Key, Any] = {}
    timers: dict[Key, list[list[Any]] | None] = {}
    found: list[Emission] = []
    for number, epoch in enumerate(epochs):
        turn = BucketTurn(epoch.watermark_us, epoch.epoch_time_us, len(operator.outputs), 0)
        placed = enumerate(epoch.records)
        ordered = sorted(placed, key=lambda one: one[1].at_us if one[1].at_us is not None else -1)
        keys = dict.fromkeys((*timers, *(one.key for _, one in ordered)))
        for key in keys:
            records = [
                Arrival(0, one.values, one.at_us, one.position or ("journal", "0", number, place))
                for place, one in ordered
                if one.key == key
            ]
            cell = Cell(decode(encode(cells[key])) if key in cells else None)
            turn.begin(key, timers.get(key))
            _fire(operator, cell, turn)
            if records:
                operator.on_records(cell, records, turn)
                _fire(operator, cell, turn)
            timers[key] = turn.timers()
            if cell.changed:
                cells[key] = cell.data
            if cells.get(key) is None and timers[key] is None:
                cells.pop(key, None)
                timers.pop(key, None)
        rows = zip(turn.outputs[0].rows, turn.outputs[0].at_us, strict=True)
        found += [Emission(number, values, at_us) for values, at_us in rows]
    return found, cells


def _fire(operator: Operator, cell: Cell, turn: BucketTurn) -> None:
    while (timer := turn.next_due()) is not None:
        operator.on_timer(cell, timer, turn)


def cut(records: Sequence[Given], cuts: Sequence[int]) -> list[Epoch]:
    """The records in epochs that end at ``cuts``."""
    bounds = [0, *sorted(min(at, len(records)) for at in cuts), len(records)]
    return [Epoch(records[start:end]) for start, end in pairwise(bounds)]
