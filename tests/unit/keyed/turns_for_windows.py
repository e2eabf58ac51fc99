"""Runs an operator over epochs for a few keys, one after the other, without an engine; and the epochs themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from lockstep.keyed.codec import decode, encode, time_us
from lockstep.keyed.operator import Arrival, Cell, Key, Operator, Timer
from lockstep.keyed.windows.contents import Processed
from lockstep.keyed.windows.results import Results

COLUMNS = ("key", "value", "at")
KEYS = pa.schema([("key", pa.string())])
LISTED = pa.schema([("values", pa.list_(pa.int64())), ("pane", pa.int64()), ("timing", pa.string())])
LATE = pa.schema([("key", pa.string()), ("value", pa.int64()), ("at", pa.int64())])


class Event(NamedTuple):
    """One record: its key, its time, and a number that no other record has."""

    key: str | None
    at_us: int | None
    value: int


class Epoch(NamedTuple):
    """One epoch: how far event time has come, the epoch's time, and its records."""

    watermark_us: int | None
    time_us: int
    events: tuple[Event, ...]


class Result(NamedTuple):
    """One result of a window, and the epoch that gave it."""

    epoch: int
    key: str | None
    start_us: int | None
    end_us: int | None
    values: tuple[int, ...]
    timing: str


@dataclass
class TurnHere:
    """The turn of a key in one epoch."""

    key: Key
    watermark_us: int | None
    epoch_time_us: int
    timers: set[Timer]
    common: Cell = field(default_factory=Cell)
    emitted: list[tuple[int, tuple[Any, ...], int | None]] = field(default_factory=list)

    def emit(self, values: tuple[Any, ...], at_us: int | None = None, output: int = 0) -> None:
        self.emitted.append((output, values, at_us))

    def set_timer(self, timer: Timer) -> None:
        self.timers.add(timer)

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.discard(timer)

    def due(self) -> Timer | None:
        clocks = {"event": self.watermark_us, "epoch": self.epoch_time_us}
        found = [one for one in self.timers if (now := clocks[one.kind]) is not None and one.at_us <= now]
        return min(found, key=lambda one: (one.at_us, one.kind, one.tag), default=None)


class Keys:
    """The state of every key, kept as bytes between epochs as an engine keeps it."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.cells: dict[Key, bytes] = {}
        self.timers: dict[Key, set[Timer]] = {}

    def epoch(self, epoch: Epoch) -> list[tuple[int, tuple[Any, ...], int | None]]:
        """Everything that an epoch emits, key by key."""
        by_key: dict[Key, list[Arrival]] = {}
        for event in sorted(epoch.events, key=lambda one: (one.at_us is not None, one.at_us or 0)):
            arrival = Arrival(0, (event.key, event.value, event.at_us), event.at_us)
            by_key.setdefault((event.key,), []).append(arrival)
        keys = sorted({*by_key, *self.timers}, key=repr)
        return [sent for key in keys for sent in self._turn(key, epoch, by_key.get(key, []))]

    def _turn(self, key: Key, epoch: Epoch, arrivals: list[Arrival]) -> list[tuple[int, tuple[Any, ...], int | None]]:
        cell = Cell(decode(self.cells[key]) if key in self.cells else None)
        turn = TurnHere(key, epoch.watermark_us, epoch.time_us, self.timers.pop(key, set()))
        self._fire(cell, turn)
        if arrivals:
            self.operator.on_records(cell, arrivals, turn)
            self._fire(cell, turn)
        if cell.changed:
            self.cells.pop(key, None)
            if cell.data is not None:
                self.cells[key] = encode(cell.data)
        if turn.timers:
            self.timers[key] = turn.timers
        return turn.emitted

    def _fire(self, cell: Cell, turn: TurnHere) -> None:
        while (timer := turn.due()) is not None:
            turn.timers.discard(timer)
            self.operator.on_timer(cell, timer, turn)


def results_of(operator: Operator, epochs: Sequence[Epoch]) -> tuple[list[Result], list[tuple[int, Event]], Keys]:
    """The results and the late records of the epochs, and what is left."""
    keys = Keys(operator)
    results: list[Result] = []
    late: list[tuple[int, Event]] = []
    for number, epoch in enumerate(epochs):
        for output, values, _ in keys.epoch(epoch):
            if output == 1:
                late.append((number, Event(values[0], values[2], values[1])))
                continue
            key, start, end, members, _, timing = values
            bounds = [None if edge is None else time_us(edge) for edge in (start, end)]
            results.append(Result(number, key, bounds[0], bounds[1], tuple(members), timing))
    return results, late, keys


def listing() -> tuple[Processed, Results]:
    """Contents whose results are the values themselves, and where results and late records go."""
    contents = Processed("listing", _listed, LISTED, COLUMNS)
    return contents, Results(KEYS, LISTED, LATE)


def _listed(records: list[Any], window: Any) -> dict[str, Any]:
    return {"values": [record.value for record in records], "pane": window.pane, "timing": window.timing}


def cut(events: Sequence[Event], cuts: Iterable[int], out_of_order_us: int, step_us: int) -> list[Epoch]:
    """The events in epochs that end at ``cuts``; then one with a watermark beyond everything.

    As in a job, an epoch's watermark is the highest time of the epochs before it, less the disorder.
    """
    edges = [0, *sorted(min(at, len(events)) for at in cuts), len(events)]
    epochs: list[Epoch] = []
    highest: int | None = None
    for number, (start, end) in enumerate(pairwise(edges)):
        watermark = None if highest is None else highest - out_of_order_us
        part = tuple(events[start:end])
        epochs.append(Epoch(watermark, (number + 1) * step_us, part))
        times = [event.at_us for event in part if event.at_us is not None]
        highest = max([*times, *([] if highest is None else [highest])], default=None)
    return [*epochs, Epoch(10**9, 10**9, ())]


@st.composite
def disordered(draw: st.DrawFn, out_of_order_us: int) -> list[Event]:
    """Events whose times go on, each at most ``out_of_order_us`` behind the latest before it: none is ever late."""
    events: list[Event] = []
    newest = 0
    for value in range(draw(st.integers(0, 25))):
        newest += draw(st.sampled_from([0, 0, 1, 3, 10, 40]))
        at_us = newest - draw(st.integers(0, out_of_order_us))
        events.append(Event(draw(st.sampled_from(["a", "b", None])), at_us, value))
    return events


@st.composite
def any_epochs(draw: st.DrawFn) -> list[Epoch]:
    """Events at any time in any epoch: many are late, some have no time, keys come and go, epochs are empty."""
    epochs: list[Epoch] = []
    watermark: int | None = None
    time = value = 0
    for _ in range(draw(st.integers(1, 10))):
        time += draw(st.sampled_from([1, 4, 10, 25]))
        if draw(st.booleans()):
            watermark = (watermark or 0) + draw(st.sampled_from([0, 2, 7, 20]))
        events = []
        for _ in range(draw(st.integers(0, 6))):
            at_us = draw(st.one_of(st.none(), st.integers(-10, 70))) if draw(st.booleans()) else (watermark or 0) + 3
            events.append(Event(draw(st.sampled_from(["a", None])), at_us, value))
            value += 1
        epochs.append(Epoch(watermark, time, tuple(events)))
    return [*epochs, Epoch((watermark or 0) + 45, time + 50, ()), Epoch(10**6, 10**6, ())]
