"""What runs in Spark's Python workers for a keyed step: packing, the engine over Spark's state store, unpacking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from lockstep.compile.bucket_states import BucketStates
from lockstep.compile.hidden_columns import EPOCH_TIME, EVENT_TIME, OFFSET, ORDER_TIME, PARTITION, SOURCE
from lockstep.errors import carried_by_spark
from lockstep.keyed.codec import decode, encode
from lockstep.keyed.engine import Engine, Layout, Tick
from lockstep.keyed.loads import counted
from lockstep.keyed.operator import Operator
from lockstep.keyed.record_order import POSITION_COLUMNS
from lockstep.keyed.results import EMITTED, batch_of

PACKED = "bucket int, input int, tick boolean, blob binary"
COUNTED = f"{PACKED}, load string"
"""With what a task counted, in one of its packets: it is observed on the way, and goes no further."""
RESULTS = "output int, bucket int, epoch_time_us bigint, blob binary"
_COUNTED = pa.schema(
    [
        ("bucket", pa.int32()),
        ("input", pa.int32()),
        ("tick", pa.bool_()),
        ("blob", pa.binary()),
        ("load", pa.string()),
    ]
)
_TIME = pa.timestamp("us", tz="UTC")
_ROWS_MAX = 500_000
"""A packer holds so many records of its task at most before it sends them on."""


@dataclass(frozen=True)
class Packer:
    """Turns the records of a task into one packet for each bucket, and its mark row into a tick for every bucket."""

    own_columns: ClassVar[int] = 4
    """Bucket, mark, watermark and epoch time stand at the end of what comes in, and not in packets."""

    number: int
    buckets: int
    schema: pa.Schema
    keys: tuple[int, ...] | None
    """Which columns make the key; None for a broadcast input."""
    timed: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The shape that ``mapInArrow`` wants."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            is_mark = pc.is_valid(batch.column(batch.num_columns - 3))
            if pc.any(is_mark).as_py():
                yield self._ticks(batch.filter(is_mark))
                batch = batch.filter(pc.invert(is_mark))  # noqa: PLW2901
            waiting.append(batch)
            rows += batch.num_rows
            if rows > _ROWS_MAX:
                yield from self._packets(waiting)
                waiting, rows = [], 0
        if rows:
            yield from self._packets(waiting)

    def _ticks(self, marks: pa.RecordBatch) -> pa.RecordBatch:
        watermarks, epoch_times = (column.to_pylist() for column in marks.columns[-2:])
        blobs = [encode([self.timed, *pair]) for pair in zip(watermarks, epoch_times, strict=True)]
        return self._rows([(bucket, blob) for blob in blobs for bucket in range(self.buckets)], tick=True)

    def _packets(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches).combine_chunks()
        batch = table.to_batches()[0]
        records = pa.RecordBatch.from_arrays(batch.columns[: -self.own_columns], schema=self.schema)
        if self.keys is None:
            blob = records.serialize().to_pybytes()
            yield self._rows([(bucket, blob) for bucket in range(self.buckets)], tick=False)
            return
        buckets = batch.column(batch.num_columns - self.own_columns).to_numpy()
        order = np.argsort(buckets, kind="stable")
        records, buckets = records.take(pa.array(order)), buckets[order]
        starts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist()]
        ends = [*starts[1:], len(buckets)]
        pieces = [
            (int(buckets[start]), records.slice(start, end - start).serialize().to_pybytes())
            for start, end in zip(starts, ends, strict=True)
        ]
        yield self._rows(pieces, tick=False, load=self._load(records, buckets))

    def _load(self, records: pa.RecordBatch, buckets: Any) -> str:
        """What these records are by bucket and key."""
        columns = records.columns
        # Source, partition and offset of the first: no other task has it.
        origin = [column[0].as_py() for column in columns[1 - POSITION_COLUMNS : -1]]
        keys = [columns[place] for place in self.keys or ()]
        hashes = columns[-1 - POSITION_COLUMNS].to_numpy(zero_copy_only=False) if keys else None
        return counted(origin, buckets, hashes, lambda at: tuple(column[at].as_py() for column in keys))

    def _rows(self, pieces: Sequence[tuple[int, bytes]], *, tick: bool, load: str | None = None) -> pa.RecordBatch:
        columns = [
            pa.array([bucket for bucket, _ in pieces], pa.int32()),
            pa.array([self.number] * len(pieces), pa.int32()),
            pa.array([tick] * len(pieces), pa.bool_()),
            pa.array([blob for _, blob in pieces], pa.binary()),
            pa.array([load, *[None] * (len(pieces) - 1)], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_COUNTED)


class KeyedProcessor(StatefulProcessor):  # type: ignore[misc]
    """Runs the engine for each bucket. Spark calls it with the packets and ticks of one bucket after the other."""

    def __init__(
        self,
        step: str,
        operator: Operator,
        layouts: Sequence[Layout],
        schemas: Sequence[pa.Schema],
        *,
        buckets: int,
        ordered: bool,
    ) -> None:
        self._buckets = buckets
        self._step = step
        self._ordered = ordered
        self._operator = operator
        self._layouts = layouts
        self._schemas = schemas

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state: pages by name."""
        self._states = BucketStates(handle, self._buckets)
        self._engine = Engine(self._step, self._operator, self._layouts, ordered=self._ordered)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """One bucket for one epoch."""
        ticks: list[Tick] = []
        batches: list[tuple[int, pa.RecordBatch]] = []
        for _, number, is_tick, blob in rows:
            if is_tick:
                ticks.append(Tick(*decode(blob)))
            else:
                batches.append((number, pa.ipc.read_record_batch(pa.py_buffer(blob), self._schemas[number])))
        with carried_by_spark(self._step):
            turn = self._engine.run(self._states.turn_to(key[0]), batches, ticks)
            self._states.settle()
            for number, (schema, emitted) in enumerate(zip(self._operator.outputs, turn.outputs, strict=True)):
                if emitted.rows:
                    blob = batch_of(self._step, emitted, schema, turn.first_number).serialize().to_pybytes()
                    yield Row(output=number, bucket=key[0], epoch_time_us=turn.epoch_time_us, blob=blob)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Unpacker:
    """Turns the results of one output back into records with hidden columns.

    Their position: the step is the source, the bucket the partition, and the offset counts what the bucket has sent.
    """

    step: str
    schema: pa.Schema
    timed: bool
    ordered: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The shape that ``mapInArrow`` wants."""
        packed = pa.schema([*self.schema, *((name, pa.int64()) for name in EMITTED[: 3 if self.ordered else 2])])
        for batch in batches:
            _, buckets, epoch_times, blobs = batch.columns
            for bucket, epoch_time_us, blob in zip(buckets, epoch_times, blobs, strict=True):
                records = pa.ipc.read_record_batch(blob.as_buffer(), packed)
                yield self._with_hidden(records, bucket.as_py(), epoch_time_us.as_py())

    def _with_hidden(self, records: pa.RecordBatch, bucket: int, epoch_time_us: int) -> pa.RecordBatch:
        width, rows = len(self.schema), records.num_rows
        values, (at_us, numbers, *order_us) = records.columns[:width], records.columns[width:]
        hidden = [
            *([at_us.cast(_TIME)] if self.timed else []),
            *(one.cast(_TIME) for one in order_us),
            pa.repeat(pa.scalar(epoch_time_us, _TIME), rows),
            pa.repeat(pa.scalar(self.step, pa.string()), rows),
            pa.repeat(pa.scalar(str(bucket), pa.string()), rows),
            numbers,
        ]
        return pa.RecordBatch.from_arrays([*values, *hidden], schema=self.full_schema())

    def full_schema(self) -> pa.Schema:
        """The output's fields and the hidden ones."""
        time = [pa.field(EVENT_TIME, _TIME)] if self.timed else []
        time += [pa.field(ORDER_TIME, _TIME)] if self.ordered else []
        position = [(SOURCE, pa.string()), (PARTITION, pa.string()), (OFFSET, pa.int64())]
        return pa.schema([*self.schema, *time, pa.field(EPOCH_TIME, _TIME), *(pa.field(*one) for one in position)])
