"""An epoch's output: one Spark action, then per sink its rows and their digest.

Small epochs come through the driver as Arrow; large ones are written by the executors, and only the list of files comes
back. An epoch that turns out to be large on its way through the driver is stopped and run again by the executors
(``docs/decisions/0019``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from lockstep.compile.digests import add_sums, digest_text, hash_sums
from lockstep.compile.job import BRANCH, Compiled, SinkPart, rows_column
from lockstep.connect.protocols import ORDER, Output, Place, StagedFile, Stager
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks.merging import in_order
from lockstep.errors import carried_by_spark
from lockstep.runtime.spark.batches import collected, collected_up_to
from lockstep.store.protocols import Holder

_STAGED_SCHEMA = "sink int, path string, rows bigint, bytes bigint, memory bigint, hash_1 bigint, hash_2 bigint"
_STAGED_ARROW = pa.schema(
    [
        ("sink", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("memory", pa.int64()),
        ("hash_1", pa.int64()),
        ("hash_2", pa.int64()),
    ]
)


BYTES_THROUGH_DRIVER_MAX = 64 << 20
"""Spark holds a task's rows two or three times on their way (as Arrow, serialised, collected), in a heap of 1 GB."""
ROW_BYTES_UNSEEN = 16 << 10
"""How wide a row is taken to be before there was one: the first epochs may bring 4,096 of them."""


@dataclass(frozen=True)
class SinkOutput:
    """One sink's share of an epoch."""

    part: SinkPart
    output: Output
    digest: str
    rows: int
    bytes: int
    """What its rows take in memory."""

    @property
    def sink(self) -> str:
        """The sink's name."""
        return self.part.step.id


def through_driver(frame: DataFrame, compiled: Compiled, rows_max: int) -> list[SinkOutput] | None:
    """Run the epoch and bring its rows here; None if there are more than ``rows_max``: then run it by executors."""
    table = collected_up_to(frame, compiled.arrow_schema, rows_max)
    if table is None:
        return None
    branches = {part.branch: part for part in compiled.sinks}
    taken = {branch: _taken(table, part, alone=len(branches) == 1) for branch, part in branches.items()}
    return [
        SinkOutput(part, Output(part.schema, table=rows), digest, rows.num_rows, rows.nbytes)
        for part in compiled.sinks
        for rows, digest in [taken[part.branch]]
    ]


def _taken(table: pa.Table, part: SinkPart, *, alone: bool) -> tuple[pa.Table, str]:
    """The rows of a branch, in order if they have one, and their digest, for all its sinks."""
    mine = table if alone else table.filter(pc.equal(table.column(BRANCH), part.branch))
    rows = _rows(mine, part.branch, _with_order(part))
    return in_order(rows) if part.ordered else rows, digest_text(rows.num_rows, hash_sums(mine))


def _with_order(part: SinkPart) -> pa.Schema:
    """The columns of a branch's rows as they come out of the union."""
    return part.schema.append(pa.field(ORDER, pa.string())) if part.ordered else part.schema


def _rows(tagged: pa.Table | pa.RecordBatch, branch: int, schema: pa.Schema) -> pa.Table:
    column = tagged.column(rows_column(branch))
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    batches = [pa.RecordBatch.from_arrays(chunk.flatten(), names=schema.names) for chunk in chunks]
    if not batches:
        return schema.empty_table()
    return pa.Table.from_batches(batches).cast(schema)


def through_executors(
    frame: DataFrame, compiled: Compiled, place: Place, holder: Holder, epoch: int
) -> list[SinkOutput]:
    """Run the epoch and have the executors stage its rows."""
    task = StagingTask(
        sinks=json.dumps(
            [[{"kind": part.step.spec.kind, **part.step.spec.to_json()}, part.step.id] for part in compiled.sinks]
        ),
        branches=tuple(part.branch for part in compiled.sinks),
        schemas=tuple(part.schema for part in compiled.sinks),
        rows_schemas=tuple(_with_order(part) for part in compiled.sinks),
        place=place,
        holder=holder,
        epoch=epoch,
    )
    staged = collected(_sorted(frame, compiled).mapInArrow(task, _STAGED_SCHEMA), _STAGED_ARROW).to_pylist()
    return [
        _gathered([row for row in staged if row["sink"] == number], part) for number, part in enumerate(compiled.sinks)
    ]


def _sorted(frame: DataFrame, compiled: Compiled) -> DataFrame:
    """Each task's rows in order, for the branches that have one: Spark sorts what does not fit its memory on disk."""
    branches = sorted({part.branch for part in compiled.sinks if part.ordered})
    if not branches:
        return frame
    order = [sf.col(f"{rows_column(branch)}.{ORDER}") for branch in branches]
    return frame.sortWithinPartitions(sf.coalesce(*order))


def _gathered(staged: list[dict[str, Any]], part: SinkPart) -> SinkOutput:
    sums = (0, 0)
    for row in staged:
        sums = add_sums(sums, (row["hash_1"], row["hash_2"]))
    files = tuple(StagedFile(row["path"], row["rows"], row["bytes"]) for row in staged if row["path"])
    rows = sum(file.rows for file in files)
    output = Output(part.schema, files=files) if files else Output(part.schema, table=part.schema.empty_table())
    return SinkOutput(part, output, digest_text(rows, sums), rows, sum(row["memory"] for row in staged))


@dataclass
class _Taken:
    """What a task has seen of a branch."""

    sums: tuple[int, int] = (0, 0)
    bytes: int = 0


@dataclass(frozen=True)
class StagingTask:
    """What one executor task does with its rows: write them to staged files, answer with their names and hash sums."""

    sinks: str
    branches: tuple[int, ...]
    schemas: tuple[pa.Schema, ...]
    rows_schemas: tuple[pa.Schema, ...]
    """The columns as they come, with what orders the rows where something does."""
    place: Place
    holder: Holder
    epoch: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The shape that ``mapInArrow`` wants."""
        with carried_by_spark():
            answers = self._staged(batches)
        yield pa.RecordBatch.from_pylist(answers, _STAGED_ARROW)

    def _staged(self, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
        stagers: dict[int, Stager] = {}
        branches: dict[int, _Taken] = {}
        try:
            for batch in batches:
                for branch in pc.unique(batch.column(BRANCH)).to_pylist():
                    self._take(batch, branch, stagers, branches.setdefault(branch, _Taken()))
        except BaseException:
            for stager in stagers.values():
                stager.abandon()
            raise
        return [_answer(number, stager.finish(), branches[self.branches[number]]) for number, stager in stagers.items()]

    def _take(self, batch: pa.RecordBatch, branch: int, stagers: dict[int, Stager], taken: _Taken) -> None:
        """Give the rows of a branch to all its sinks; stagers are by sink, what was taken is by branch."""
        mine = batch.filter(pc.equal(batch.column(BRANCH), branch))
        taken.sums = add_sums(taken.sums, hash_sums(mine))
        taken.bytes += mine.nbytes
        numbers = [number for number, one in enumerate(self.branches) if one == branch]
        rows = _rows(mine, branch, self.rows_schemas[numbers[0]]).to_batches()
        for number in numbers:
            if number not in stagers:
                stagers[number] = self._stager(number)
            for each in rows:
                stagers[number].write(each)

    def _stager(self, number: int) -> Stager:
        spec, step = json.loads(self.sinks)[number]
        side = sink_side(spec, step, self.place)
        context = TaskContext.get()
        task = context.taskAttemptId() if context is not None else 0
        side.open(self.schemas[number])
        return side.stager(self.epoch, self.holder, task)


def _answer(number: int, file: StagedFile | None, taken: _Taken) -> dict[str, Any]:
    signed = [value - (1 << 64) if value >= 1 << 63 else value for value in taken.sums]
    path, rows, size = (file.path, file.rows, file.bytes) if file else ("", 0, 0)
    named = {"sink": number, "path": path, "rows": rows, "bytes": size, "memory": taken.bytes}
    return {**named, "hash_1": signed[0], "hash_2": signed[1]}


class DriverRoom:
    """How many rows may come through the driver: as set, and no more than fit into its memory as they have been."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._row_bytes = ROW_BYTES_UNSEEN
        self._seen = False

    def rows_max(self) -> int:
        """The limit for the next epoch."""
        return min(self._rows_max, max(1, BYTES_THROUGH_DRIVER_MAX // self._row_bytes))

    def learn(self, outputs: Iterable[SinkOutput]) -> None:
        """Note how wide rows are; the widest epoch counts."""
        known = list(outputs)
        rows = sum(output.rows for output in known)
        if not rows:
            return
        width = max(1, sum(output.bytes for output in known) // rows)
        self._row_bytes = max(self._row_bytes, width) if self._seen else width
        self._seen = True
