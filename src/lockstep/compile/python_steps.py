"""Steps that run a user's Python function: Arrow batches in, Arrow batches out, in Spark's Python workers.

Hidden columns pass by the function: a record's output carries the hidden columns of its input, and mark rows go through
untouched.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.compile.hidden import EVENT_TIME, MARK, OFFSET, PARTITION, SOURCE
from lockstep.compile.records import Record
from lockstep.errors import FunctionError, carried_by_spark

DeadLetters = Callable[[str, str, dict[str, Any]], None]
"""Keeps a record that a function could not take: (key, step, facts). Called in a worker; the same key is kept once."""

Kind = Literal["map", "flat_map", "map_batches"]
_RECORD_SHOWN_MAX = 400


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
            yield self._whole(batch)
        else:
            yield from self._halves(batch)

    def _halves(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Find the records that a function of batches cannot take: halve the batch until they stand alone."""
        try:
            yield self._whole(batch)
            return
        except FunctionError as error:
            if batch.num_rows == 1:
                visible = batch.select([name for name in batch.schema.names if not name.startswith("__")])
                self._failed(error, visible.to_pylist()[0], batch, 0)
                return
        middle = batch.num_rows // 2
        yield from self._halves(batch.slice(0, middle))
        yield from self._halves(batch.slice(middle))

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
        rows = [self._as_row(outcome) for outcome in outcomes]
        for row in rows:
            self._check_types(row)
        return rows

    def _as_row(self, outcome: Any) -> dict[str, Any]:
        names = self.schema.names
        if isinstance(outcome, Record):
            row = outcome.asdict()
        elif isinstance(outcome, Mapping):
            row = dict(outcome)
        elif is_dataclass(outcome) and not isinstance(outcome, type):
            row = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        elif isinstance(outcome, tuple) and len(outcome) == len(names):
            return dict(zip(names, outcome, strict=True))
        else:
            raise FunctionError(
                "LS0302",
                f'step "{self.step}" returned {_shown(outcome)}',
                why=f"a record of this step is a dict (or tuple, or dataclass) with: {', '.join(names)}.",
                hint="to drop records use .filter(...) or .flat_map(...) with an empty list.",
            )
        if extra := [name for name in row if name not in names]:
            raise FunctionError(
                "LS0302",
                f'step "{self.step}" returned fields that its schema does not have: {", ".join(map(str, extra))}',
                why=f"the schema has: {', '.join(names)}.",
                hint="add them to schema=..., or leave them out of what the function returns.",
            )
        return row

    def _check_types(self, row: dict[str, Any]) -> None:
        try:
            pa.RecordBatch.from_pylist([row], self.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise FunctionError(
                "LS0303",
                f'step "{self.step}" returned a value that does not fit its schema',
                why=f"{error}; returned: {_shown(row)}.",
                hint="mend the function or its schema=....",
            ) from None

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        visible = batch.select([name for name in batch.schema.names if not name.startswith("__")])
        try:
            made = self.function(visible)
        except Exception as error:
            raise self._explained(error, f"a batch of {batch.num_rows} records") from None
        if isinstance(made, pa.Table):
            made = made.combine_chunks().to_batches()[0] if made.num_rows else _empty(made.schema)
        if not isinstance(made, pa.RecordBatch):
            raise FunctionError(
                "LS0302",
                f'step "{self.step}" returned {_shown(made)}',
                why="the function of map_batches takes a pyarrow RecordBatch and returns one (or a Table).",
            )
        try:
            made = made.select(self.schema.names).cast(self.schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise FunctionError(
                "LS0303",
                f'step "{self.step}" returned a batch that does not fit its schema',
                why=str(error),
                hint=f"return the columns {', '.join(self.schema.names)}.",
            ) from None
        if made.num_rows == batch.num_rows:
            return self._assemble(made, batch, list(range(batch.num_rows)))
        if EVENT_TIME in self.hidden.names:
            raise FunctionError(
                "LS0304",
                f'step "{self.step}" returned {made.num_rows} rows for {batch.num_rows} records after event_time',
                why="each record has an event time by then, and a new row would have none.",
                hint="put .event_time(...) after this step, or use .flat_map(...).",
            )
        return self._assemble(made, batch, [0] * made.num_rows)

    def _assemble(self, made: pa.RecordBatch, batch: pa.RecordBatch, origins: list[int]) -> pa.RecordBatch:
        taken = pa.array(origins, pa.int64())
        hidden = [pc.take(batch.column(name), taken) for name in self.hidden.names]
        return pa.RecordBatch.from_arrays([*made.columns, *hidden], schema=self._full_schema())

    def _marks_only(self, marks: pa.RecordBatch) -> pa.RecordBatch:
        nulls = [pa.nulls(marks.num_rows, field.type) for field in self.schema]
        hidden = [marks.column(name) for name in self.hidden.names]
        return pa.RecordBatch.from_arrays([*nulls, *hidden], schema=self._full_schema())

    def _full_schema(self) -> pa.Schema:
        return pa.schema([*self.schema, *self.hidden])

    def _failed(self, error: Exception, values: dict[str, Any], batch: pa.RecordBatch, index: int) -> None:
        explained = self._explained(error, _shown(values))
        if self.on_error == "fail" or self.dead_letters is None:
            raise explained from None
        place = [str(batch.column(name)[index].as_py()) for name in (SOURCE, PARTITION, OFFSET)]
        text = json.dumps(values, default=str, sort_keys=True)
        key = "/".join([self.step, *place, hashlib.sha256(text.encode()).hexdigest()[:12]])
        facts = {"source": place[0], "partition": place[1], "offset": int(place[2]), "record": text}
        self.dead_letters(key, self.step, {**facts, "error": f"{explained.fact}: {explained.why}"})

    def _explained(self, error: Exception, record: str) -> FunctionError:
        if isinstance(error, FunctionError):
            return FunctionError(error.code, error.fact, why=f"{error.why} record: {record}", hint=error.hint)
        return FunctionError(
            "LS0301",
            f'the function of step "{self.step}" raised {type(error).__name__}: {error}',
            why=f"at {_users_line(error)}; record: {record}",
            hint='mend the function, or skip such records to the dead-letter journal with on_error="skip".',
        )


def _without_marks(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    if MARK not in batch.schema.names:
        return batch, None
    is_mark = pc.is_valid(batch.column(MARK))
    if not pc.any(is_mark).as_py():
        return batch, None
    return batch.filter(pc.invert(is_mark)), batch.filter(is_mark)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _users_line(error: Exception) -> str:
    """Where in the user's own code it happened: the deepest frame outside Lockstep and the libraries."""
    own = str(Path(__file__).parents[1])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(own) and "site-packages" not in frame.filename:
            return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line or ''}".rstrip(": ")
    return "a library called by the function"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _RECORD_SHOWN_MAX else text[:_RECORD_SHOWN_MAX] + " ..."
