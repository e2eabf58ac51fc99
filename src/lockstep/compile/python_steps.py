"""Steps that run a user's Python function: Arrow batches in, Arrow batches out, in Spark's Python workers.

Hidden columns pass by the function: a record's output carries the hidden columns of its input, and mark rows go through
untouched.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.compile.hidden_columns import EVENT_TIME, MARK, OFFSET, PART, PART_BITS, PARTITION, SOURCE
from lockstep.errors import FunctionError, carried_by_spark
from lockstep.keyed.functions import Returned, explained, shown
from lockstep.keyed.records import Record

DeadLetters = Callable[[str, str, dict[str, Any]], None]
"""Keeps a record that a function could not take: (key, step, facts). Called in a worker; the same key is kept once."""

Kind = Literal["map", "flat_map", "map_batches"]
BATCH_RECORDS_MAX = 10_000
"""As Spark cuts batches by default."""
_PART_MASK = (1 << PART_BITS) - 1
_PARTS_MASK = (1 << 63) - 1


@dataclass(frozen=True)
class PythonStep:
    """All that a worker needs to run one Python step. Pickled by PySpark and sent to the workers."""

    step: str
    kind: Kind
    function: Callable[..., Any]
    schema: pa.Schema
    hidden: pa.Schema
    on_error: Literal["fail", "skip"]
    dead_letters: DeadLetters | None
    origins_wanted: bool = False
    """Whether a later step asks which record each row was made from: for the order, or to name one that it skips."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the function over a task's batches (the shape ``mapInArrow`` wants)."""
        with carried_by_spark():
            for batch in batches:
                records, marks = _without_marks(batch)
                if marks is not None:
                    yield self._marks_only(marks)
                if records.num_rows:
                    yield from self._run(records)

    def _run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.kind != "map_batches":
            yield self._one_by_one(batch)
        elif self.on_error == "fail" or self.dead_letters is None:
            yield self._beside(self._made(batch), batch)
        else:
            yield from self._halves(batch)

    def _halves(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Find the records that a function of batches cannot take: halve the batch until they stand alone."""
        try:
            made = self._made(batch)
        except FunctionError as error:
            if batch.num_rows == 1:
                visible = batch.select([name for name in batch.schema.names if not name.startswith("__")])
                self._failed(error, visible.to_pylist()[0], batch, 0)
                return
            middle = batch.num_rows // 2
            yield from self._halves(batch.slice(0, middle))
            yield from self._halves(batch.slice(middle))
        else:
            yield self._beside(made, batch)

    def _one_by_one(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        visible = batch.select([name for name in batch.schema.names if not name.startswith("__")])
        results: list[dict[str, Any]] = []
        origins: list[int] = []
        for index, values in enumerate(visible.to_pylist()):
            try:
                made = self._call(values)
            except Exception as error:
                self._failed(error, values, batch, index)
                continue
            results += made
            origins += [index] * len(made)
        return self._assemble(pa.RecordBatch.from_pylist(results, self.schema), batch, origins)

    def _call(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        result = self.function(Record(values))
        outcomes = [result] if self.kind == "map" else list(result)
        rows = [self._returned.row(outcome) for outcome in outcomes]
        for row in rows:
            self._returned.check_values(tuple(map(row.get, self.schema.names)))
        return rows

    @cached_property
    def _returned(self) -> Returned:
        return Returned(self.step, self.schema)

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the function of map_batches makes of a batch, with the columns of the schema."""
        visible = batch.select([name for name in batch.schema.names if not name.startswith("__")])
        try:
            made = self.function(visible)
        except Exception as error:
            raise explained(self.step, error, f"a batch of {batch.num_rows} records") from None
        if isinstance(made, pa.Table):
            made = made.combine_chunks().to_batches()[0] if made.num_rows else _empty(made.schema)
        if not isinstance(made, pa.RecordBatch):
            raise FunctionError(
                "LS0302",
                f'step "{self.step}" returned {shown(made)}',
                why="the function of map_batches takes a pyarrow RecordBatch and returns one (or a Table).",
            )
        try:
            return made.select(self.schema.names).cast(self.schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise FunctionError(
                "LS0303",
                f'step "{self.step}" returned a batch that does not fit its schema',
                why=str(error),
                hint=f"return the columns {', '.join(self.schema.names)}.",
            ) from None

    def _beside(self, made: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What map_batches made, with the hidden columns of the records: nobody can tell which row is of which record
        unless there is one for each.
        """
        if made.num_rows == batch.num_rows:
            return self._assemble(made, batch, list(range(batch.num_rows)))
        fact = f'step "{self.step}" returned {made.num_rows} rows for {batch.num_rows} records'
        if EVENT_TIME in self.hidden.names:
            raise FunctionError(
                "LS0304",
                f"{fact} after event_time",
                why="each record has an event time by then, and a new row would have none.",
                hint="put .event_time(...) after this step, or use .flat_map(...).",
            )
        if self.origins_wanted:
            raise FunctionError(
                "LS0305",
                f"{fact}, and a later step has to know which record each came from",
                why="rows are ordered by the records they were made from, and batches differ between replicas.",
                hint=".flat_map(...), or one row for each record and .filter(...) or .explode(...) after it.",
            )
        return self._assemble(made, batch, [0] * made.num_rows)

    def _assemble(self, made: pa.RecordBatch, batch: pa.RecordBatch, origins: list[int]) -> pa.RecordBatch:
        taken = pa.array(origins, pa.int64())
        hidden = [
            self._parts(batch, origins) if name == PART else pc.take(batch.column(name), taken)
            for name in self.hidden.names
        ]
        return pa.RecordBatch.from_arrays([*made.columns, *hidden], schema=self._full_schema())

    def _parts(self, batch: pa.RecordBatch, origins: list[int]) -> pa.Array:
        """Which of the records made from one each is; below a second flat_map the first one's number comes first.

        Where the numbers get too large they repeat: what is of one position and part is ordered by content.
        """
        if self.kind != "flat_map":
            return pc.take(batch.column(PART), pa.array(origins, pa.int64()))
        before = batch.column(PART).to_pylist() if PART in batch.schema.names else [None] * batch.num_rows
        counted: Counter[int] = Counter()
        parts = []
        for origin in origins:
            parts.append(((before[origin] or 0) << PART_BITS | counted[origin] & _PART_MASK) & _PARTS_MASK)
            counted[origin] += 1
        return pa.array(parts, pa.int64())

    def _marks_only(self, marks: pa.RecordBatch) -> pa.RecordBatch:
        nulls = [pa.nulls(marks.num_rows, field.type) for field in self.schema]
        hidden = [
            marks.column(field.name) if field.name in marks.schema.names else pa.nulls(marks.num_rows, field.type)
            for field in self.hidden
        ]
        return pa.RecordBatch.from_arrays([*nulls, *hidden], schema=self._full_schema())

    def _full_schema(self) -> pa.Schema:
        return pa.schema([*self.schema, *self.hidden])

    def _failed(self, error: Exception, values: dict[str, Any], batch: pa.RecordBatch, index: int) -> None:
        told = explained(self.step, error, shown(values))
        if self.on_error == "fail" or self.dead_letters is None:
            raise told from None
        # What an aggregation made has no position: then the row itself tells one letter from another.
        known = OFFSET in batch.schema.names
        columns = [batch.column(name) for name in (SOURCE, PARTITION, OFFSET)] if known else []
        place = [str(column[index].as_py()) for column in columns] or ["", "", "0"]
        text = json.dumps(values, default=str, sort_keys=True)
        key = "/".join([self.step, *place, hashlib.sha256(text.encode()).hexdigest()[:12]])
        facts = {"source": place[0], "partition": place[1], "offset": int(place[2]), "record": text}
        self.dead_letters(key, self.step, {**facts, "error": f"{told.fact}: {told.why}"})


@dataclass(frozen=True)
class PythonSteps:
    """Python steps one after the other in one worker: what one makes need not travel through Spark to the next."""

    steps: tuple[PythonStep, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the functions over a task's batches (the shape ``mapInArrow`` wants)."""
        for number, step in enumerate(self.steps):
            batches = step(batches if number == 0 else _cut(batches))
        return iter(batches)


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """No more records at a time than Spark would hand on, however many a flat_map has made."""
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_RECORDS_MAX):
            yield batch.slice(start, BATCH_RECORDS_MAX)


def _without_marks(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    if MARK not in batch.schema.names:
        return batch, None
    is_mark = pc.is_valid(batch.column(MARK))
    if not pc.any(is_mark).as_py():
        return batch, None
    return batch.filter(pc.invert(is_mark)), batch.filter(is_mark)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)
