"""Try a process function without Spark: feed it records, move the clocks, look at what it sent and what it keeps."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lockstep.durations import Duration, duration_us
from lockstep.keyed.codec import time_us, unpack, utc_time
from lockstep.keyed.engine import Engine, Layout, Tick
from lockstep.keyed.operator import Cell
from lockstep.keyed.pages import DATA, KEY, TIMERS, Pages, key_bytes
from lockstep.keyed.process import FiredTimer, Input, InputKind, Process, ProcessOperator, users_timers
from lockstep.keyed.results import batch_of
from lockstep.plan.schema import Schema, parse_schema
from lockstep.store.arrow import arrow_schema, batch_from_pylist

Records = Iterable[Mapping[str, Any]]


class MemoryStore(dict[str, bytes]):
    """Pages in a dict."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a page."""
        self[name] = value

    def delete(self, name: str) -> None:
        """Forget one."""
        self.pop(name, None)


class ProcessTester:
    """Runs a process function over epochs that the test makes.

    >>> import lockstep as ls
    >>> class Count(ls.Process):
    ...     seen = ls.value_state("bigint")
    ...     def on_record(self, record, ctx):
    ...         self.seen.set(self.seen.get(0) + 1)
    ...         ctx.emit(user=ctx.key.user, seen=self.seen.get())
    >>> tester = ProcessTester(Count(), "user string, at timestamp", key="user", schema="user string, seen bigint")
    >>> tester.send({"user": "ann"}, {"user": "bob"}, {"user": "ann"})
    [{'user': 'ann', 'seen': 1}, {'user': 'ann', 'seen': 2}, {'user': 'bob', 'seen': 1}]
    >>> tester.state("ann")
    {'seen': 2}

    ``time`` names the column that is the event time. Clocks stand still until they are moved, with
    :meth:`move_watermark` and :meth:`pass_time`; epoch time begins at ``start``.
    """

    def __init__(
        self,
        process: Process,
        columns: str | Schema,
        *,
        schema: str | Schema,
        key: str | Sequence[str] = (),
        time: str | None = None,
        other: str | Schema | None = None,
        broadcast: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None,
        ordered: bool = False,
        start: datetime = datetime(2026, 1, 1, tzinfo=UTC),
    ) -> None:
        self._keys = (key,) if isinstance(key, str) else tuple(key)
        self._time = time
        kinds: list[tuple[InputKind, str | Schema]] = [("left" if other is not None else "record", columns)]
        kinds += [("right", other)] if other is not None else []
        kinds += [("broadcast", broadcast)] if broadcast is not None else []
        self._inputs = {kind: number for number, (kind, _) in enumerate(kinds)}
        self._schemas = [parse_schema(given) for _, given in kinds]
        outputs = {"": schema, **(side_outputs or {})}
        self._outputs = [(name, arrow_schema(parse_schema(given))) for name, given in outputs.items()]
        operator = ProcessOperator(
            step="process",
            # A copy: the handles of the states are bound to this tester, and the given instance may be used again.
            process=copy.deepcopy(process),
            inputs=tuple(Input(kind, one.names) for (kind, _), one in zip(kinds, self._schemas, strict=True)),
            key_names=self._keys,
            schemas=tuple(self._outputs),
            timed=time is not None,
            ordered=ordered,
        )
        layouts = [self._layout(kind, one) for (kind, _), one in zip(kinds, self._schemas, strict=True)]
        self._engine = Engine("process", operator, layouts)
        self._process = operator.process
        self.store = MemoryStore()
        self._watermark_us: int | None = None
        self._epoch_time_us = time_us(start)
        self._count = 0
        self.emitted: list[dict[str, Any]] = []
        """Everything that was sent on so far."""
        self.aside: dict[str, list[dict[str, Any]]] = {name: [] for name in outputs if name}
        """Everything that was sent to side outputs so far, by name."""

    def send(self, *records: Mapping[str, Any]) -> list[dict[str, Any]]:
        """One epoch with these records; returns what was sent on."""
        return self.epoch(records)

    def epoch(self, records: Records = (), *, other: Records = (), broadcast: Records = ()) -> list[dict[str, Any]]:
        """One epoch with records of each stream; returns what was sent on."""
        given = {0: records, self._inputs.get("right"): other, self._inputs.get("broadcast"): broadcast}
        batches = [(number, self._batch(number, list(rows))) for number, rows in given.items() if number is not None]
        tick = Tick(self._time is not None, self._watermark_us, self._epoch_time_us)
        turn = self._engine.run(self.store, batches, [tick])
        made: list[dict[str, Any]] = []
        for (name, schema), emitted in zip(self._outputs, turn.outputs, strict=True):
            rows = batch_of("process", emitted, schema).select(schema.names).to_pylist() if emitted.rows else []
            if name:
                self.aside[name] += rows
            else:
                made = rows
        self.emitted += made
        return made

    def move_watermark(self, to: datetime) -> list[dict[str, Any]]:
        """Event time has come so far: an epoch without records, in which timers fire."""
        self._watermark_us = time_us(to)
        return self.epoch()

    def pass_time(self, duration: Duration) -> list[dict[str, Any]]:
        """So much epoch time passes: an epoch without records, in which timers fire and state expires."""
        self._epoch_time_us += duration_us(duration)
        return self.epoch()

    @property
    def epoch_time(self) -> datetime:
        """The epoch time now."""
        return utc_time(self._epoch_time_us)

    def state(self, *key: Any) -> dict[str, Any]:
        """The states of a key by name; empty if nothing is kept for it."""
        entry = self._entry(key)
        cell = Cell(unpack(entry[DATA])) if entry is not None and entry[DATA] else Cell()
        found = {}
        for name, state in self._process.states().items():
            if not state.shared and (kept := state.shown(cell.data or {}, self._epoch_time_us)) is not None:
                found[name] = kept
        return found

    def broadcast_state(self) -> dict[str, Any]:
        """The broadcast states by name."""
        return dict(Pages(self.store).common() or {})

    def timers(self, *key: Any) -> list[FiredTimer]:
        """The timers that a key has set, the earliest first."""
        entry = self._entry(key)
        return users_timers(entry[TIMERS] or ()) if entry is not None else []

    def keys(self) -> list[tuple[Any, ...]]:
        """The keys of which something is kept."""
        return [tuple(unpack(entry[KEY])) for entry in Pages(self.store)]

    def _entry(self, key: tuple[Any, ...]) -> list[Any] | None:
        wanted = key_bytes(key)
        return next((entry for entry in Pages(self.store) if entry[KEY] == wanted), None)

    def _layout(self, kind: InputKind, schema: Schema) -> Layout:
        if kind == "broadcast":
            return Layout(len(schema.names), None)
        return Layout(len(schema.names), tuple(schema.names.index(name) for name in self._keys))

    def _batch(self, number: int, records: list[Mapping[str, Any]]) -> pa.RecordBatch:
        schema = self._schemas[number]
        values = batch_from_pylist(records, schema)
        times = self._times(values)
        keys = [key_bytes(tuple(record.get(name) for name in self._keys)) for record in records]
        hashes = [int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True) for key in keys]
        positions = range(self._count, self._count + len(records))
        self._count += len(records)
        further = [
            pa.array(hashes, pa.int64()),
            times,
            pa.array(["tester"] * len(records), pa.string()),
            pa.array(["0"] * len(records), pa.string()),
            pa.array(positions, pa.int64()),
            pa.nulls(len(records), pa.int64()),
        ]
        names = [*values.schema.names, "hash", "time", "source", "partition", "offset", "part"]
        return pa.RecordBatch.from_arrays([*values.columns, *further], names=names)

    def _times(self, values: pa.RecordBatch) -> pa.Array:
        if self._time is None or self._time not in values.schema.names:
            return pa.nulls(values.num_rows, pa.int64())
        return values.column(self._time).cast(pa.int64())
