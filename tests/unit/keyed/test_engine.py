"""The engine against a plain loop over dicts: random keys, timers, broadcasts and epochs; order and crashes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.clock import END_US
from lockstep.errors import FunctionError
from lockstep.keyed.codec import decode, encode
from lockstep.keyed.engine import Engine, Layout, Tick, clocks
from lockstep.keyed.operator import Arrival, Cell, Timer, Turn
from lockstep.keyed.pages import TIMERS, Pages
from lockstep.keyed.tester import MemoryStore

OUTPUT = pa.schema([("key", pa.string()), ("what", pa.string())])
NAMES = ["key", "n", "hash", "time", "source", "partition", "offset", "part"]


@dataclass(frozen=True)
class Given:
    """A record of these tests."""

    key: str | None
    n: int
    at: int | None
    source: str = "s"
    partition: str = "0"
    offset: int = 0
    part: int | None = None

    @property
    def place(self) -> tuple[Any, ...]:
        """Its place in the order, written differently from the engine: nulls before everything."""
        return (
            (self.at is not None, self.at or 0),
            self.source,
            self.partition,
            self.offset,
            (self.part is not None, self.part or 0),
            encode([0, self.key, self.n, _hash(self.key)]),
        )


def _hash(key: str | None) -> int:
    return random.Random(key or "").getrandbits(63) - (1 << 62)


def _batch(records: Sequence[Given]) -> pa.RecordBatch:
    columns = [
        pa.array([one.key for one in records], pa.string()),
        pa.array([one.n for one in records], pa.int64()),
        pa.array([_hash(one.key) for one in records], pa.int64()),
        pa.array([one.at for one in records], pa.int64()),
        pa.array([one.source for one in records], pa.string()),
        pa.array([one.partition for one in records], pa.string()),
        pa.array([one.offset for one in records], pa.int64()),
        pa.array([one.part for one in records], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=NAMES)


class Diary:
    """Says everything that happens, and lets each record set, cancel or forget something."""

    outputs = (OUTPUT,)

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        for record in records:
            _, n = record.values
            cell.data, cell.changed = (cell.data or 0) + 1, True
            turn.emit((turn.key[0], f"{n} is {cell.data}, common {turn.common.data}"), record.at_us)
            if n % 5 == 0:
                turn.set_timer(Timer("event", n * 3, f"t{n % 2}"))
            if n % 5 == 1:
                turn.set_timer(Timer("epoch", n * 2))
            if n % 7 == 2:
                turn.cancel_timer(Timer("epoch", (n - 1) * 2))
            if n % 11 == 3:
                cell.data = None

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        turn.emit((turn.key[0], f"{timer.kind} {timer.at_us} {timer.tag} at {cell.data}"), timer.at_us)
        if timer.at_us % 4 == 0 and timer.at_us < 100:
            turn.set_timer(Timer(timer.kind, timer.at_us + 30, timer.tag))
        if timer.at_us % 6 == 0:
            cell.data, cell.changed = None, True

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:
        turn.common.data, turn.common.changed = record.values[1], True


class Plain:
    """The same by hand: dicts that live for ever, nothing encoded, one key after the other."""

    def __init__(self) -> None:
        self.cells: dict[Any, Cell] = {}
        self.timers: dict[Any, set[Timer]] = {}
        self.common = Cell()
        self.said: list[tuple[Any, ...]] = []
        self.key: tuple[Any, ...] = ()
        self.watermark_us: int | None = None
        self.epoch_time_us = 0

    def emit(self, values: tuple[Any, ...], at_us: int | None = None, output: int = 0) -> None:
        self.said.append((*values, at_us))

    def set_timer(self, timer: Timer) -> None:
        self.timers.setdefault(self.key, set()).add(timer)

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.setdefault(self.key, set()).discard(timer)

    def epoch(self, records: list[Given], broadcast: list[Given], watermark: int | None, epoch_time: int) -> None:
        self.watermark_us, self.epoch_time_us = watermark, epoch_time
        own = sorted(records, key=lambda one: one.place)
        for key in {*self.timers, *(() if broadcast else ((one.key,) for one in own))}:
            if broadcast or all((one.key,) != key for one in own):
                self._turn(key, [])
        marked = [(one.place, 1, one) for one in broadcast] + [(one.place, 0, one) for one in own]
        marked.sort(key=lambda item: item[0])
        while marked:
            kind = marked[0][1]
            count = next((i for i, item in enumerate(marked) if item[1] != kind), len(marked))
            segment, marked = [item[2] for item in marked[:count]], marked[count:]
            if kind == 1:
                self.key = ()
                for one in segment:
                    Diary().on_broadcast(Arrival(1, (one.key, one.n), one.at), self)
            else:
                for key in dict.fromkeys(one.key for one in segment):
                    self._turn((key,), [one for one in segment if one.key == key])

    def _turn(self, key: tuple[Any, ...], records: list[Given]) -> None:
        self.key = key
        cell = self.cells.setdefault(key, Cell())
        self._fire(cell)
        if records:
            Diary().on_records(cell, [Arrival(0, (one.key, one.n), one.at) for one in records], self)
            self._fire(cell)

    def _fire(self, cell: Cell) -> None:
        while True:
            limits = {"event": self.watermark_us, "epoch": self.epoch_time_us}
            due = [
                one
                for one in self.timers.get(self.key, ())
                if (limit := limits[one.kind]) is not None and one.at_us <= limit
            ]
            if not due:
                return
            first = min(due, key=lambda one: (one.at_us, one.kind, one.tag))
            self.timers[self.key].discard(first)
            Diary().on_timer(cell, first, self)


RECORD = st.builds(
    Given,
    key=st.sampled_from([None, "", "ann", "bob", "eve", "joe"]),
    n=st.integers(0, 40),
    at=st.one_of(st.none(), st.integers(0, 100)),
    source=st.sampled_from(["s", "t"]),
    partition=st.sampled_from(["0", "1", "10"]),
    offset=st.integers(0, 5),
    part=st.one_of(st.none(), st.integers(0, 2)),
)
CONTROL = RECORD.map(lambda record: replace(record, source=f"control of {record.source}"))
EPOCH = st.tuples(
    st.lists(RECORD, max_size=15), st.lists(CONTROL, max_size=3), st.one_of(st.none(), st.integers(0, 60))
)


def _said(turn: Any) -> list[tuple[Any, ...]]:
    emitted = turn.outputs[0]
    return [(*values, at_us) for values, at_us in zip(emitted.rows, emitted.at_us, strict=True)]


def _by_key(said: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    """What a key said, in order. Keys have no order among each other."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for one in said:
        found.setdefault(one[0], []).append(one)
    return found


@settings(max_examples=120, deadline=None)
@given(st.lists(EPOCH, max_size=6), st.booleans(), st.randoms(use_true_random=False))
def test_the_engine_does_what_a_plain_loop_does(epochs: list[Any], broadcasts: bool, chance: random.Random) -> None:
    layouts = [Layout(2, (0,)), *([Layout(2, None)] if broadcasts else [])]
    engine, store, plain = Engine("diary", Diary(), layouts), MemoryStore(), Plain()
    watermark = None
    for number, (records, control, moved) in enumerate(epochs):
        watermark = moved if watermark is None else max(watermark, moved or 0)
        batches = _shuffled(records, 0, chance)
        batches += _shuffled(control, 1, chance) if broadcasts else []
        before = MemoryStore(store)
        turn = engine.run(store, batches, [Tick(True, watermark, number * 10)])
        plain.said = []
        plain.epoch(records, control if broadcasts else [], watermark, number * 10)
        assert _by_key(_said(turn)) == _by_key(plain.said)
        again = Engine("diary", Diary(), layouts).run(before, batches, [Tick(True, watermark, number * 10)])
        assert (_said(again), dict(before)) == (_said(turn), dict(store)), "a crash and a second run change nothing"


def _shuffled(records: list[Given], number: int, chance: random.Random) -> list[tuple[int, pa.RecordBatch]]:
    """As tasks bring them: in any order, in several batches."""
    mixed = chance.sample(records, len(records))
    cut = chance.randint(0, len(mixed))
    return [(number, _batch(part)) for part in (mixed[:cut], mixed[cut:])]


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORD, max_size=30), st.randoms(use_true_random=False))
def test_how_tasks_cut_and_mixed_the_records_does_not_show(records: list[Given], chance: random.Random) -> None:
    seen = set()
    for _ in range(3):
        store = MemoryStore()
        engine = Engine("diary", Diary(), [Layout(2, (0,))])
        turn = engine.run(store, _shuffled(records, 0, chance), [Tick(True, 50, 0)])
        seen.add(repr((_said(turn), sorted(store.items()))))
    assert len(seen) == 1


def test_a_key_without_data_and_timers_is_forgotten() -> None:
    store = MemoryStore()
    engine = Engine("diary", Diary(), [Layout(2, (0,))])
    engine.run(store, [(0, _batch([Given("ann", 4, 1), Given("ann", 3, 2)]))], [Tick(False, None, 0)])
    *_, inline = decode(store["front"])
    assert inline is None


class Restless:
    """Its timer sets itself again, in the past."""

    outputs = (OUTPUT,)

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        turn.set_timer(Timer("event", 1))

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        turn.set_timer(Timer("event", timer.at_us + 1))

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:
        raise AssertionError("there is none")


def test_a_timer_that_never_ends_is_stopped_with_its_key() -> None:
    engine = Engine("restless", Restless(), [Layout(2, (0,))])
    with pytest.raises(FunctionError) as caught:
        engine.run(MemoryStore(), [(0, _batch([Given("ann", 0, 0)]))], [Tick(True, 10**9, 0)])
    assert caught.value.code == "LS0312" and "'ann'" in caught.value.why and '"restless"' in caught.value.fact


def test_at_the_end_of_event_time_a_timer_that_sets_itself_again_fires_for_the_last_time() -> None:
    store, engine = MemoryStore(), Engine("restless", Restless(), [Layout(2, (0,))])
    engine.run(store, [(0, _batch([Given("ann", 0, 0)]))], [Tick(True, None, 0)])
    assert [entry[TIMERS] for entry in Pages(store)] == [[[0, 1, ""]]]
    engine.run(store, [], [Tick(True, END_US, 1)])
    assert list(Pages(store)) == []


def test_the_slowest_stream_with_an_event_time_decides_the_watermark() -> None:
    assert clocks([Tick(True, 7, 1), Tick(True, 5, 1), Tick(False, None, 1)]) == (5, 1)
    assert clocks([Tick(True, 7, 1), Tick(True, None, 1)]) == (None, 1)
    assert clocks([Tick(False, None, 1)]) == (None, 1)
