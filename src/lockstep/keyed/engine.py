"""Runs an operator over the keys of one bucket for one epoch. Pure: pages come from a small protocol, time from ticks.

The order of everything is defined, so that every replica does the same: records by event time (those without one
first), then by position (source, partition, offset, part), and where even that is equal, by content.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import groupby, repeat
from typing import Any

import pyarrow as pa

from lockstep.clock import NEAR_END_US
from lockstep.errors import FunctionError
from lockstep.keyed.codec import pack, unpack
from lockstep.keyed.columns import key_column, rows_of, values_of
from lockstep.keyed.operator import OWN, Arrival, Cell, Key, Operator, TimeKind, Timer, wants_positions
from lockstep.keyed.pages import DATA, EPOCH, EVENT, HASH, KEY, TIMERS, Entry, Page, Pages, PageStore, key_bytes
from lockstep.keyed.record_order import POSITION_COLUMNS, positions_of, sorted_order

TIMERS_PER_KEY_MAX = 100_000
"""So many timers of one key in one epoch mean that a timer sets itself again, for ever in the past."""
_KINDS: tuple[TimeKind, TimeKind] = ("event", "epoch")
_NUMBERS = {"event": EVENT, "epoch": EPOCH}
_MASK = (1 << 64) - 1
_arrival = partial(tuple.__new__, Arrival)
"""An Arrival from a tuple of its fields, in half the time that its own constructor takes."""


@dataclass(frozen=True)
class Layout:
    """How the batches of one input are built: values, then further key columns, then hash and position."""

    values: int
    """So many columns are the record's values; their order is the operator's."""
    keys: tuple[int, ...] | None
    """Which columns make the key; None for a broadcast input."""


@dataclass(frozen=True)
class Tick:
    """What one source says about time in an epoch; ``timed`` if the stream it belongs to has an event time at all."""

    timed: bool
    watermark_us: int | None
    epoch_time_us: int


class Emitted:
    """The records of one output in the order of emission: their values and event times."""

    __slots__ = ("at_us", "numbers", "order_us", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.at_us: list[int | None] = []
        self.numbers: list[int] = []
        """Of an operator with several outputs: which of all that were emitted each is. One output counts by itself."""
        self.order_us: list[int | None] = []
        """If it was asked for: the latest event time among those that the record's key has emitted so far."""


class BucketTurn:
    """The turn of one key after the other; what an operator calls (see ``operator.Turn``)."""

    __slots__ = (
        "_due",
        "_emitted",
        "_latest_us",
        "_timers",
        "changed",
        "closing",
        "common",
        "epoch_time_us",
        "first_number",
        "key",
        "outputs",
        "watermark_us",
    )

    def __init__(
        self, watermark_us: int | None, epoch_time_us: int, outputs: int, first_number: int, *, ordered: bool = False
    ) -> None:
        self.key: Key = ()
        self.watermark_us = watermark_us
        self.epoch_time_us = epoch_time_us
        self.common = Cell()
        self.outputs = [Emitted() for _ in range(outputs)]
        self.first_number = first_number
        """The number of the first record of each output: a record's number is its position."""
        self.changed = False
        self.closing = False
        """Whether a timer fires because event time has come to its end: then there is no later to set another for."""
        self._timers: dict[Timer, None] = {}
        self._due: list[tuple[int, str, str]] | None = None
        self._emitted = 0
        self._latest_us: dict[Key, int | None] | None = {} if ordered else None

    @property
    def emitted(self) -> int:
        """How many records all outputs have together."""
        return sum(len(output.rows) for output in self.outputs)

    def emit(self, values: tuple[Any, ...], at_us: int | None = None, output: int = 0) -> None:
        """Send a record to an output."""
        target = self.outputs[output]
        target.rows.append(values)
        target.at_us.append(at_us)
        if len(self.outputs) > 1:
            target.numbers.append(self._emitted)
            self._emitted += 1
        if self._latest_us is not None:
            latest = self._latest_us.get(self.key)
            if latest is None or (at_us is not None and at_us > latest):
                latest = self._latest_us[self.key] = at_us
            target.order_us.append(latest)

    def set_timer(self, timer: Timer) -> None:
        """Remember a timer of the key."""
        if timer not in self._timers and not (self.closing and timer.kind == "event"):
            self._timers[timer] = None
            self.changed = True
            if self._due is not None and self._is_due(timer):
                heappush(self._due, (timer.at_us, timer.kind, timer.tag))

    def cancel_timer(self, timer: Timer) -> None:
        """Forget it."""
        if timer in self._timers:
            del self._timers[timer]
            self.changed = True

    def begin(self, key: Key, timers: list[list[Any]] | None) -> None:
        """The next key has its turn."""
        self.key = key
        self.changed = False
        self._timers = {Timer(_KINDS[kind], at_us, tag): None for kind, at_us, tag in timers} if timers else {}
        self._due = None

    def timers(self) -> list[list[Any]] | None:
        """The key's timers as they are kept, in a defined order."""
        if not self._timers:
            return None
        return sorted([_NUMBERS[timer.kind], timer.at_us, timer.tag] for timer in self._timers)

    def next_due(self) -> Timer | None:
        """The earliest timer that is due (by time, then kind, then tag), taken off."""
        if not self._timers:
            return None
        if self._due is None:
            self._due = [(timer.at_us, timer.kind, timer.tag) for timer in self._timers if self._is_due(timer)]
            heapify(self._due)
        while self._due:
            at_us, kind, tag = heappop(self._due)
            timer = Timer("event" if kind == "event" else "epoch", at_us, tag)
            if timer in self._timers:
                self.cancel_timer(timer)
                return timer
        return None

    def _is_due(self, timer: Timer) -> bool:
        limit = self.watermark_us if timer.kind == "event" else self.epoch_time_us
        return limit is not None and timer.at_us <= limit


def clocks(ticks: Sequence[Tick]) -> tuple[int | None, int]:
    """The watermark and the epoch time of an epoch: the slowest stream that has an event time decides.

    >>> clocks([Tick(True, 70, 100), Tick(True, 50, 100), Tick(False, None, 100)])
    (50, 100)
    >>> clocks([Tick(True, 70, 100), Tick(True, None, 100)])
    (None, 100)
    """
    assert ticks, "every source sends one tick in every epoch"
    found = [tick.watermark_us for tick in ticks if tick.timed]
    known = [at_us for at_us in found if at_us is not None]
    return (min(known) if known and len(known) == len(found) else None), ticks[0].epoch_time_us


class Engine:
    """One operator and the shape of its inputs; used for many buckets and epochs."""

    def __init__(self, step: str, operator: Operator, layouts: Sequence[Layout], *, ordered: bool = False) -> None:
        """``ordered``: whether results come with what orders those of a key as they were emitted."""
        self._step = step
        self._ordered = ordered
        self._operator = operator
        self._positions = wants_positions(operator)
        self._layouts = layouts
        self._broadcasts = any(layout.keys is None for layout in layouts)

    def run(self, store: PageStore, batches: Sequence[tuple[int, pa.RecordBatch]], ticks: Sequence[Tick]) -> BucketTurn:
        """Run one bucket for one epoch; what was emitted is in the turn's ``outputs``."""
        # Collecting garbage among hundreds of thousands of records that are all in use costs a third of the time.
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._run(store, batches, ticks)
        finally:
            if collects:
                gc.enable()

    def _run(
        self, store: PageStore, batches: Sequence[tuple[int, pa.RecordBatch]], ticks: Sequence[Tick]
    ) -> BucketTurn:
        pages = Pages(store)
        watermark_us, epoch_time_us = clocks(ticks)
        outputs = len(self._operator.outputs)
        turn = BucketTurn(watermark_us, epoch_time_us, outputs, pages.emitted, ordered=self._ordered)
        if self._broadcasts:
            self._run_in_order(pages, turn, batches)
        else:
            self._run_by_key(pages, turn, batches)
        pages.emitted += turn.emitted
        pages.save()
        return turn

    def _run_by_key(self, pages: Pages, turn: BucketTurn, batches: Sequence[tuple[int, pa.RecordBatch]]) -> None:
        keys, hashes, arrivals = self._arrivals(batches)
        groups = _grouped(keys, arrivals)
        group_hashes = dict(zip(keys, hashes, strict=True))
        encoded = {key_bytes(key): key for key in groups}
        for page, entry in _in_order(pages.due(turn.watermark_us, turn.epoch_time_us), turn):
            if entry[KEY] not in encoded:
                self._turn(turn, page, entry, tuple(unpack(entry[KEY])), ())
        for name, key in encoded.items():
            self._turn(turn, *pages.find(group_hashes[key] & _MASK, name), key, groups[key])

    def _run_in_order(self, pages: Pages, turn: BucketTurn, batches: Sequence[tuple[int, pa.RecordBatch]]) -> None:
        """With broadcast inputs: all records in one order, cut where a broadcast record stands."""
        turn.common = Cell(pages.common())
        for page, entry in _in_order(pages.due(turn.watermark_us, turn.epoch_time_us), turn):
            self._turn(turn, page, entry, tuple(unpack(entry[KEY])), ())
        keys, hashes, arrivals = self._arrivals(batches)
        keyed = [layout.keys is not None for layout in self._layouts]
        together = zip(keys, hashes, arrivals, strict=True)
        for is_keyed, segment in groupby(together, key=lambda one: keyed[one[2].input]):
            if not is_keyed:
                turn.begin((), None)
                for _, _, arrival in segment:
                    self._operator.on_broadcast(arrival, turn)
                continue
            rows = list(segment)
            found = {key: key_hash for key, key_hash, _ in rows}
            groups = _grouped([row[0] for row in rows], [row[2] for row in rows])
            for key, records in groups.items():
                self._turn(turn, *pages.find(found[key] & _MASK, key_bytes(key)), key, records)
        if turn.common.changed:
            pages.save_common(turn.common.data)

    def _turn(self, turn: BucketTurn, page: Page, entry: Entry, key: Key, records: Sequence[Arrival]) -> None:
        """One key: timers that are due, its records, timers that became due meanwhile."""
        cell = Cell(unpack(entry[DATA]) if entry[DATA] else None)
        turn.begin(key, entry[TIMERS])
        fired = self._fire(cell, turn, 0) if entry[TIMERS] else 0
        if records:
            self._operator.on_records(cell, records, turn)
            self._fire(cell, turn, fired)
        if cell.changed:
            entry[DATA] = b"" if cell.data is None else pack(cell.data)
        if turn.changed:
            entry[TIMERS] = turn.timers()
        if cell.changed or turn.changed:
            page.keep(entry)

    def _fire(self, cell: Cell, turn: BucketTurn, fired: int) -> int:
        while (timer := turn.next_due()) is not None:
            fired += 1
            if fired > TIMERS_PER_KEY_MAX:
                raise FunctionError(
                    "LS0312",
                    f'step "{self._step}" fired {TIMERS_PER_KEY_MAX} timers of one key in one epoch',
                    why=f"key: {turn.key!r}; the last one: {timer}. A timer that is due fires at once.",
                    hint="set the next timer beyond the present: beyond ctx.watermark, or ctx.epoch_time.",
                )
            at_end = turn.watermark_us is not None and turn.watermark_us >= NEAR_END_US
            # A timer of Lockstep's own brings a record that was held back: what that sets is set by a record.
            turn.closing = at_end and not timer.tag.startswith(OWN)
            self._operator.on_timer(cell, timer, turn)
            turn.closing = False
        return fired

    def _arrivals(self, batches: Sequence[tuple[int, pa.RecordBatch]]) -> tuple[list[Key], list[int], list[Arrival]]:
        """Keys, their hashes, and the records, all in order."""
        filled = [(number, batch) for number, batch in batches if batch.num_rows]
        if not filled:
            return [], [], []
        order = sorted_order([batch for _, batch in filled], [number for number, _ in filled])
        if len({number for number, _ in filled}) == 1:
            number = filled[0][0]
            batch = _joined([batch for _, batch in filled])
            return self._read(number, batch if order is None else batch.take(pa.array(order)))
        parts = [self._read(number, batch) for number, batch in filled]
        keys = [key for part in parts for key in part[0]]
        hashes = [key_hash for part in parts for key_hash in part[1]]
        arrivals = [arrival for part in parts for arrival in part[2]]
        if order is None:
            return keys, hashes, arrivals
        return [keys[i] for i in order], [hashes[i] for i in order], [arrivals[i] for i in order]

    def _read(self, number: int, batch: pa.RecordBatch) -> tuple[list[Key], list[int], list[Arrival]]:
        layout = self._layouts[number]
        columns = batch.columns
        hashes, at_us = values_of(columns[-1 - POSITION_COLUMNS]), values_of(columns[-POSITION_COLUMNS])
        rows = rows_of(columns[: layout.values], batch.num_rows)
        positions = positions_of(columns) if self._positions else repeat(())
        arrivals = list(map(_arrival, zip(repeat(number), rows, at_us, positions)))
        keys = (
            list(zip(*(key_column(columns[i]) for i in layout.keys), strict=True)) if layout.keys else [()] * len(rows)
        )
        return keys, hashes, arrivals


def _grouped(keys: Sequence[Key], arrivals: Sequence[Arrival]) -> dict[Key, list[Arrival]]:
    groups: dict[Key, list[Arrival]] = {}
    get = groups.get
    for key, arrival in zip(keys, arrivals, strict=True):
        if (group := get(key)) is None:
            groups[key] = [arrival]
        else:
            group.append(arrival)
    return groups


def _in_order(entries: Iterable[tuple[Page, Entry]], turn: BucketTurn) -> list[tuple[Page, Entry]]:
    """Entries with due timers, the earliest first."""
    limits = (turn.watermark_us, turn.epoch_time_us)

    def earliest(entry: Entry) -> int:
        known = ((int(at_us), limits[kind]) for kind, at_us, _ in entry[TIMERS])
        return min(at_us for at_us, limit in known if limit is not None and at_us <= limit)

    return sorted(entries, key=lambda found: (earliest(found[1]), found[1][HASH], found[1][KEY]))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
