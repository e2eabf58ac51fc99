"""The files of a Delta sink: what Delta can hold, and writing rows into files that no commit names yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.connect.disk import remove_files
from lockstep.connect.protocols import StagedFile
from lockstep.connect.remote.paths import AnyPath
from lockstep.connect.sinks.staging import FileStager, parse_staged, read_batches
from lockstep.errors import ConnectError

EPOCH_COLUMN = "lockstep_epoch"
DATA = "data"
"""The folder of what tasks wrote. Flat, also with partitions: their values are in Delta's log, not in names."""
PARTITIONS_MAX = 500
"""Partitions that one task's share of an epoch may have: each has a file open, and its rows in memory."""
LIST_SCHEMA = pa.schema([("file", pa.string())])
"""What a task hands to the publisher: a staged list of its files, each as JSON."""

_NAME_MARKS = " ,;{}()\n\t="
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_PARTITION_TYPES = (*_INTEGERS, pa.bool_(), pa.date32(), pa.string())
_FLAT_TYPES = (*_PARTITION_TYPES, pa.float32(), pa.float64(), pa.binary())


@dataclass(frozen=True)
class DataFile:
    """A Parquet file in the table's folder, and what a commit says about it."""

    name: str
    rows: int
    bytes: int
    partition: dict[str, str | None]
    stats: str


class DeltaStager:
    """Writes one task's share of an epoch: a file for each partition, and the list of them."""

    def __init__(
        self,
        folder: Path,
        stem: str,
        epoch: int,
        schema: pa.Schema,
        partition_by: Sequence[str],
        lists: Callable[[], FileStager],
    ) -> None:
        self._folder, self._stem, self._epoch = folder, stem, epoch
        self._schema = with_epoch(schema)
        self._partition_by = list(partition_by)
        self._written = pa.schema([field for field in self._schema if field.name not in partition_by])
        self._lists = lists
        self._parts: dict[tuple[str | None, ...], FileStager] = {}
        self._made: list[Path] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of one batch."""
        if batch.num_rows == 0:
            return
        names = [name for name in self._schema.names if name != EPOCH_COLUMN]
        epochs = pa.array([self._epoch], pa.int64()).take(pa.array([0] * batch.num_rows, pa.int32()))
        whole = pa.table([*batch.select(names).columns, epochs], names=[*names, EPOCH_COLUMN]).cast(self._schema)
        for values, rows in self._split(whole):
            for part in rows.select(self._written.names).combine_chunks().to_batches():
                self._part(values).write(part)

    def files(self) -> list[DataFile]:
        """Put the files on disk."""
        found = []
        for values, part in self._parts.items():
            staged = part.finish()
            assert staged is not None, "a part is made for its first row"
            path = Path(staged.path)
            self._made.append(path)
            partition = dict(zip(self._partition_by, values, strict=True))
            found.append(DataFile(path.name, staged.rows, staged.bytes, partition, _stats(path)))
        return found

    def finish(self) -> StagedFile | None:
        """Put the files on disk, and their list; None if no row came."""
        files = self.files()
        if not files:
            return None
        listed = self._lists()
        listed.write(pa.record_batch([pa.array([json.dumps(asdict(file)) for file in files])], schema=LIST_SCHEMA))
        staged = listed.finish()
        assert staged is not None, "the list has rows"
        return StagedFile(staged.path, sum(file.rows for file in files), sum(file.bytes for file in files))

    def abandon(self) -> None:
        """Remove what was written."""
        for part in self._parts.values():
            part.abandon()
        remove_files(self._made)

    def _split(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        if not self._partition_by:
            yield (), rows
            return
        numbered = rows.select(self._partition_by).append_column("", pa.array(range(rows.num_rows)))
        groups = numbered.group_by(self._partition_by).aggregate([("", "list")])
        for row in groups.to_pylist():
            yield tuple(partition_text(name, row[name]) for name in self._partition_by), rows.take(row["_list"])

    def _part(self, values: tuple[str | None, ...]) -> FileStager:
        if values not in self._parts:
            if len(self._parts) == PARTITIONS_MAX:
                raise ConnectError(
                    "LS0542",
                    f"an epoch has more than {PARTITIONS_MAX} partitions for one task",
                    why="each of them is a file of its own.",
                    hint="partition by something coarser: a day, a country.",
                )
            # Under one stem: whoever comes second gets a number.
            self._parts[values] = FileStager(self._folder, self._stem, "parquet", self._written)
        return self._parts[values]


def listed_files(path: AnyPath) -> list[DataFile]:
    """The files that a task's list names."""
    rows = [text for batch in read_batches(path, "arrow", LIST_SCHEMA) for text in batch.column(0).to_pylist()]
    files = [DataFile(**json.loads(text)) for text in rows]
    strange = [file.name for file in files if parse_staged(file.name) is None]
    if strange:
        raise ConnectError("LS0510", f"{path} names {strange[0]}", why="a task of this sink never writes such a file.")
    return files


def with_epoch(schema: pa.Schema) -> pa.Schema:
    """The columns of the table: those of the sink, and the epoch."""
    return schema.append(pa.field(EPOCH_COLUMN, pa.int64()))


def partition_text(name: str, value: Any) -> str | None:
    """A partition's value as Delta's log has it.

    >>> partition_text("ok", True), partition_text("n", 7), partition_text("n", None)
    ('true', '7', None)
    """
    if value == "":
        raise ConnectError(
            "LS0515",
            f'an empty text does not fit the partition column "{name}"',
            why="in Delta an empty text is null there, so what is read would differ from what was written.",
            hint="give it a value before the sink: .with_columns(country=F.when(...)), or filter such rows out.",
        )
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_columns(place: str, schema: pa.Schema, key: Sequence[str], partition_by: Sequence[str]) -> None:
    """LS0542 if Delta cannot hold these columns, with these roles."""
    lowered = [name.lower() for name in schema.names]
    twice = [name for name in schema.names if lowered.count(name.lower()) > 1]
    marked = [name for name in schema.names if any(mark in name for mark in _NAME_MARKS)]
    unknown = [field for field in schema if not _is_held(field.type)]
    wrong_parts = [name for name in partition_by if schema.field(name).type not in _PARTITION_TYPES]
    wrong_keys = [name for name in key if not _is_flat(schema.field(name).type)]
    reasons = [
        *[f"its names ignore case, so {name} is not told apart" for name in twice[:1]],
        *[f'the name "{name}" has one of the characters that Delta refuses: {_NAME_MARKS!r}' for name in marked],
        *[f"{field.name} is {field.type}, for which Delta has no type" for field in unknown],
        *[
            f"{name} is {schema.field(name).type}: partitions are texts, integers, booleans or dates"
            for name in wrong_parts
        ],
        *[f"{name} is {schema.field(name).type}, which cannot be compared as a key" for name in wrong_keys],
        *[
            "all columns are partitions, so that nothing is left for the files"
            for _ in "1"
            if set(partition_by) >= set(schema.names)
        ],
    ]
    if reasons:
        hint = "change the columns before the sink: .rename(...), .select(...), .with_columns(...)."
        raise ConnectError("LS0542", f"{place} cannot have these columns", why="; ".join(reasons) + ".", hint=hint)


def _is_flat(type_: pa.DataType) -> bool:
    is_time = pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC")
    return is_time or pa.types.is_decimal128(type_) or type_ in _FLAT_TYPES


def _is_held(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(_is_held(field.type) for field in type_)
    if pa.types.is_map(type_):
        return _is_held(type_.key_type) and _is_held(type_.item_type)
    return _is_held(type_.value_type) if pa.types.is_list(type_) else _is_flat(type_)


def _stats(path: Path) -> str:
    """What lets a reader skip the file: its rows, and the bounds of integers and dates (others a footer may round)."""
    meta = pq.read_metadata(path)
    types = {field.name: field.type for field in meta.schema.to_arrow_schema()}
    bounds: dict[str, list[Any]] = {}
    for group in range(meta.num_row_groups):
        for index in range(meta.num_columns):
            column = meta.row_group(group).column(index)
            if types.get(column.path_in_schema) in (*_INTEGERS, pa.date32()):
                found = column.statistics
                known = found is not None and found.has_min_max
                bounds.setdefault(column.path_in_schema, []).append((found.min, found.max) if known else None)
    whole = {name: each for name, each in bounds.items() if None not in each}
    stats = {
        "numRecords": meta.num_rows,
        "minValues": {name: _plain(min(low for low, _ in each)) for name, each in whole.items()},
        "maxValues": {name: _plain(max(high for _, high in each)) for name, each in whole.items()},
    }
    return json.dumps(stats)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else value.isoformat()
