"""A source as Spark sees it: a Python Data Source that answers one sealed epoch at a time.

``latestOffset`` blocks until the next epoch is sealed, so several sources in one query answer the same epoch and cannot
drift apart. The offset that Spark keeps holds only the epoch number: the ledger knows the rest. It runs in a Python
process of its own, which seals nothing: whoever seals is the replica's driver, so an orphan of a killed JVM can do no
harm.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.types import StructType

from lockstep.compile.hidden_columns import (
    EPOCH_TIME,
    MARK,
    OFFSET,
    PARTITION,
    PARTITION_NUMBER,
    SOURCE,
    Hidden,
    arrow_hidden,
    mark_of,
)
from lockstep.connect.protocols import POSITION, ROWS_PER_CHUNK_BITS, Place, Slice, SourceSide
from lockstep.connect.registry import source_side
from lockstep.errors import RunError, carried_by_spark
from lockstep.plan.schema import parse_schema
from lockstep.runtime.epoch import drain_flag as draining
from lockstep.runtime.epoch import gate as gates
from lockstep.runtime.spark.boot import end_with_parent
from lockstep.store.derived import open_ledger
from lockstep.store.opening import open_store
from lockstep.store.protocols import Entry, Store
from lockstep.store.types import arrow_schema

FORMAT = "lockstep"
BEFORE_FIRST = -1
_WAIT_S = 0.2
_GATE_POLL_S = 0.05
RECORDS_WITH_PLAN_MAX = 5_000
"""An epoch of at most so many records travels with its plan; a larger one is read by Spark's tasks, in parallel."""
BYTES_WITH_PLAN_MAX = 16_000_000
"""Nor more bytes than this: they are in the memory of two processes at once."""


@dataclass(frozen=True)
class SourceOptions:
    """What travels to Spark's Python processes, as JSON in one option."""

    project: str
    home: str
    address: str
    job: str
    source: str
    spec: dict[str, Any]
    ddl: str
    hidden: dict[str, Any]
    tasks_max: int
    drain_flag: str
    gate: str = ""
    """While this file is there, a query waits before it reads its checkpoint."""
    stage: int = 1
    warm_up_epochs: int = 0
    """More than 0: not the ledger's epochs but this many repetitions of its newest one, to warm up on."""
    ledger: str = ""
    """The file of the replica's own ledger, for a job whose epochs are derived; empty: the ledger is in the store."""
    journals: str = ""
    """Where the topics of the job's own journals are; empty: they are files."""

    def to_json(self) -> str:
        """As it is handed to Spark."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> SourceOptions:
        """As it arrives in a worker."""
        return SourceOptions(**json.loads(text))

    @property
    def place(self) -> Place:
        """Where the source's working side works."""
        return Place(Path(self.project), Path(self.home), self.job, address=self.address, journals=self.journals)


class LockstepSource(DataSource):  # type: ignore[misc]
    """Registered with every session under the name ``lockstep``."""

    @classmethod
    def name(cls) -> str:
        """The format's name in ``readStream.format``."""
        return FORMAT

    def streamReader(self, schema: StructType) -> EpochReader:  # noqa: N802, ARG002
        """One reader per source of the query, as soon as there is a checkpoint to go on from."""
        options, reader = SourceOptions.from_json(self.options["lockstep"]), EpochReader(self.options["lockstep"])
        if options.gate:
            _wait_at(Path(options.gate), options.stage, options.source, reader.open)
        return reader


class EpochPartition(InputPartition):  # type: ignore[misc]
    """What one task reads: some slices, and for the first task the mark row."""

    def __init__(self, payload: str) -> None:
        super().__init__(payload)
        self.payload = payload


class EpochReader(_SimpleStreamReaderWrapper):  # type: ignore[misc]
    """Follows the ledger. Plain data until first used, because Spark pickles it.

    Waking a Python worker for some hundred records takes longer than computing them. Spark lets one kind of reader hand
    its records over together with the plan; this class is of that kind for small epochs, and an ordinary reader for
    large ones.
    """

    simple_reader: None = None

    def __init__(self, options: str) -> None:
        self._text = options
        self._options = SourceOptions.from_json(options)
        self._store: Store | None = None
        self._side: SourceSide | None = None
        self._with_plan: EpochPartition | None = None

    def __getstate__(self) -> str:
        return self._text

    def __setstate__(self, text: str) -> None:
        self.__init__(text)  # type: ignore[misc]

    def open(self) -> None:
        """Load and open what it needs, before the first epoch asks for it."""
        if not self._options.ledger:
            # A spare's ledger is that of the replica it becomes.
            self._ledger()
        self._working_side()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first epoch."""
        end_with_parent()
        return {"epoch": BEFORE_FIRST}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802, ARG002
        """The next epoch, once it is sealed; blocks until then, for ever while draining."""
        end_with_parent()
        parent = os.getppid()
        epoch = start["epoch"] + 1
        if epoch < self._options.warm_up_epochs:
            return {"epoch": epoch}
        while True:
            if self._held(epoch):
                _end_if_orphaned(parent)
                time.sleep(_WAIT_S)
                continue
            if self._options.warm_up_epochs:
                time.sleep(_WAIT_S)
            elif self._ledger().wait(epoch, _WAIT_S) is not None and not self._held(epoch):
                return {"epoch": epoch}
            _end_if_orphaned(parent)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[EpochPartition]:
        """The slices between the two epochs' cuts, packed into at most ``tasks_max`` tasks."""
        if end["epoch"] <= start["epoch"]:
            return []
        assert end["epoch"] == start["epoch"] + 1, "one epoch is one micro-batch"
        source = self._options.source
        with carried_by_spark():
            entry, before = self._entries(end["epoch"])
        side = self._working_side()
        first = before.cut.get(source) if before else None
        slices = side.slices(first if first is not None else side.start(), entry.cut[source])
        with_plan = entry.records <= RECORDS_WITH_PLAN_MAX and self._is_flat
        groups = pack(slices, 1 if with_plan else self._options.tasks_max)
        if not groups and self._hidden.marks:
            groups = [[]]
        partitions = [_partition(entry, group, marks=index == 0) for index, group in enumerate(groups)]
        self._with_plan = partitions[0] if with_plan and partitions else None
        return partitions

    def _entries(self, epoch: int) -> tuple[Entry, Entry | None]:
        """The entry of an epoch and the one before it, at whose cut it begins; a warm-up takes the newest there is."""
        ledger = self._ledger()
        entry = ledger.head() if self._options.warm_up_epochs else ledger.entry(epoch)
        if entry is None:
            raise _forgotten(epoch)
        before = ledger.entry(entry.epoch - 1)
        if before is None and entry.epoch > 0 and not self._options.warm_up_epochs:
            raise _forgotten(entry.epoch - 1)
        return entry, before

    def getCache(self, start: dict[str, int], end: dict[str, int]) -> Iterator[pa.RecordBatch] | None:  # noqa: N802, ARG002
        """The records that travel with the plan: those of the partition that was just planned, if it is small."""
        partition, self._with_plan = self._with_plan, None
        if partition is None:
            return None
        batches, size = [], 0
        for batch in self.read(partition):
            batches.append(batch)
            size += batch.nbytes
            if size > BYTES_WITH_PLAN_MAX:
                return None
        return iter(batches)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for later."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task with their hidden columns, the mark row first."""
        payload = json.loads(partition.payload)
        frame = _Rows(self._options, self._hidden, payload["epoch_time_us"])
        if payload["marks"] is not None and self._hidden.marks:
            yield frame.mark_row(payload["marks"])
        with carried_by_spark():
            side = self._working_side()
            for piece in payload["slices"]:
                yield from frame.with_hidden(Slice(**piece), side.read(Slice(**piece)))

    def stop(self) -> None:
        """Close what was opened."""
        if self._side is not None:
            self._side.close()
        if self._store is not None:
            self._store.close()
        self._side = self._store = None

    @property
    def _hidden(self) -> Hidden:
        given = self._options.hidden
        return Hidden(**{**given, "event_times": tuple(given["event_times"])})

    @cached_property
    def _is_flat(self) -> bool:
        """Whether Spark copies these records rightly on the way: it forgets nulls inside arrays and structs."""
        return all(map(_is_plain, arrow_schema(parse_schema(self._options.ddl)).types))

    def _held(self, epoch: int) -> bool:
        """Whether the replica drains and this epoch is not to be computed any more."""
        flag = Path(self._options.drain_flag)
        last = draining.limit(flag)
        if last is None or epoch <= last:
            return False
        draining.answer(flag, str(self._options.stage))
        return True

    def _ledger(self) -> Store:
        if self._store is None:
            own, place = self._options.ledger, self._options.place
            self._store = open_ledger(Path(own)) if own else open_store(place.store, place.job)
        return self._store

    def _working_side(self) -> SourceSide:
        if self._side is None:
            options = self._options
            self._side = source_side(options.spec, options.place, options.source)
        return self._side


class _Rows:
    """Adds the hidden columns to a source's records."""

    def __init__(self, options: SourceOptions, hidden: Hidden, epoch_time_us: int) -> None:
        self._source = options.source
        self._hidden = hidden
        self._epoch_time_us = epoch_time_us
        self._schema = pa.schema([*arrow_schema(parse_schema(options.ddl)), *arrow_hidden(hidden.columns)])
        self._own = len(self._schema) - len(hidden.columns)

    def mark_row(self, marks: dict[str, int | None]) -> pa.RecordBatch:
        values: dict[str, Any] = dict.fromkeys(self._schema.names)
        values[MARK] = True
        values.update({mark_of(step): marks.get(step) for step in self._hidden.event_times})
        if self._hidden.epoch_time:
            values[EPOCH_TIME] = self._epoch_time_us
        columns = [_constant(values[field.name], field.type, 1) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def with_hidden(self, piece: Slice, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        offset = piece.start << ROWS_PER_CHUNK_BITS if piece.detail else piece.start
        for batch in batches:
            rows = batch.num_rows
            told = batch.schema.names[-1] == POSITION
            positions = batch.columns[-1] if told else range(offset, offset + rows)
            hidden = [self._hidden_column(field, piece, positions, rows) for field in list(self._schema)[self._own :]]
            yield pa.RecordBatch.from_arrays([*batch.columns[: self._own], *hidden], schema=self._schema)
            offset += rows

    def _hidden_column(self, field: pa.Field, piece: Slice, positions: pa.Array | range, rows: int) -> pa.Array:
        if field.name == EPOCH_TIME:
            return _constant(self._epoch_time_us, field.type, rows)
        if field.name == SOURCE:
            return _constant(self._source, field.type, rows)
        if field.name == PARTITION:
            return _constant(piece.partition, field.type, rows)
        if field.name == PARTITION_NUMBER:
            return _constant(int(piece.partition), field.type, rows)
        if field.name == OFFSET:
            return pa.array(positions, field.type)
        return pa.nulls(rows, field.type)


def _forgotten(epoch: int) -> RunError:
    """Nobody guesses where an epoch begins."""
    return RunError(
        "LS0605",
        f"epoch {epoch} is not in the ledger any more",
        why="this replica stood still for so long that what it needs was forgotten.",
        hint="it is seeded from a peer at its next start.",
    )


def pack(slices: Sequence[Slice], tasks_max: int) -> list[list[Slice]]:
    """Slices in order, in at most ``tasks_max`` groups of about equally many records.

    >>> [len(group) for group in pack([Slice("0", i, i + 1, 10) for i in range(5)], 2)]
    [3, 2]
    """
    total = sum(piece.records for piece in slices)
    share = max(1, -(-total // max(1, tasks_max)))
    groups: list[list[Slice]] = []
    filled = 0
    for piece in slices:
        if not groups or (filled >= share * len(groups) and len(groups) < tasks_max):
            groups.append([])
        groups[-1].append(piece)
        filled += piece.records
    return groups


def _partition(entry: Entry, slices: list[Slice], *, marks: bool) -> EpochPartition:
    payload = {
        "epoch_time_us": entry.epoch_time_us,
        "marks": dict(entry.marks) if marks else None,
        "slices": [asdict(piece) for piece in slices],
    }
    return EpochPartition(json.dumps(payload))


def _is_plain(kind: pa.DataType) -> bool:
    plain = (pa.types.is_primitive, pa.types.is_string, pa.types.is_binary, pa.types.is_decimal)
    return any(is_kind(kind) for is_kind in plain)


def _constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(value, kind), rows)


def _wait_at(gate: Path, stage: int, source: str, meanwhile: Callable[[], None]) -> None:
    if not gate.exists():
        return
    end_with_parent()
    parent = os.getppid()
    meanwhile()
    while gates.come(gate, stage, source):
        _end_if_orphaned(parent)
        time.sleep(_GATE_POLL_S)


def _end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(0)
