"""Writing rows into files that nobody sees yet: one file per task, in bounded memory."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.connect.disk import disk_trouble
from lockstep.connect.formats import json_lines, json_lines_table
from lockstep.connect.protocols import StagedFile, StageFormat
from lockstep.connect.remote.paths import AnyPath, RemotePath, on_disk
from lockstep.store.protocols import Holder

ROWS_HELD_MAX = 50_000
"""Rows kept in memory before they are written: a row group of a Parquet file."""
BYTES_HELD_MAX = 32 << 20
ATTEMPTS_MAX = 1000
_READ_BYTES = 8 << 20
_STAGED = re.compile(r"(\d{12})-(.+\.\d+)-(\d+)(?:-\d+)?\.(?:parquet|jsonl|arrow)")


class _Writer(Protocol):
    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _JsonLinesWriter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write_table(self, table: pa.Table) -> None:
        self._file.write(json_lines(table))

    def close(self) -> None:
        """Nothing stands at the end of such a file."""


class FileStager:
    """Writes one task's share of an epoch; the file is made with the first row."""

    def __init__(
        self, folder: AnyPath, stem: str, format: StageFormat, schema: pa.Schema, beside: Sequence[str] = ()
    ) -> None:
        """``beside`` are columns that are written too where the rows have them."""
        self._folder = folder
        self._stem = stem
        self._format = format
        self._schema = schema
        self._beside = beside
        self._path: AnyPath | None = None
        self._file: BinaryIO | None = None
        self._writer: _Writer | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of one batch."""
        if batch.num_rows == 0:
            return
        if self._writer is None and not self._held:
            found = [batch.schema.field(name) for name in self._beside if name in batch.schema.names]
            self._schema = pa.schema([*self._schema, *found])
        self._held.append(batch if batch.schema.equals(self._schema) else _fit(batch, self._schema))
        self._held_rows += batch.num_rows
        if self._held_rows >= ROWS_HELD_MAX or sum(held.nbytes for held in self._held) >= BYTES_HELD_MAX:
            self._flush()

    def finish(self) -> StagedFile | None:
        """Put the file on disk; None if no row came."""
        self._flush()
        if self._file is None or self._writer is None or self._path is None:
            return None
        with disk_trouble(self._path), self._undone_if_it_fails():
            self._writer.close()
            self._file.flush()
            size = self._file.tell()
            if isinstance(self._path, RemotePath):
                self._path.system.write(self._path.key, self._file)
            else:
                os.fsync(self._file.fileno())
            self._file.close()
        return StagedFile(str(self._path), self._rows, size)

    def abandon(self) -> None:
        """Remove what was written."""
        self._held.clear()
        # Closing writes what is buffered, which fails again on a full disk: the file goes in any case.
        for each in (self._writer, self._file):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()
        self._writer = self._file = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, self._schema)
        with disk_trouble(self._folder / self._stem), self._undone_if_it_fails():
            self._opened().write_table(table)
        self._rows += table.num_rows
        self._held.clear()
        self._held_rows = 0

    def _opened(self) -> _Writer:
        if self._writer is None:
            self._path, self._file = _create(self._folder, self._stem, self._format)
            self._writer = open_writer(self._file, self._format, self._schema)
        return self._writer

    @contextlib.contextmanager
    def _undone_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.abandon()
            raise


def open_writer(file: BinaryIO, format: StageFormat, schema: pa.Schema) -> _Writer:
    """A writer of whole tables into an open file."""
    writer: Any
    if format == "parquet":
        writer = pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
    elif format == "arrow":
        writer = pa.ipc.new_file(file, schema)
    else:
        writer = _JsonLinesWriter(file)
    return writer  # type: ignore[no-any-return]


def read_batches(path: AnyPath, format: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a data file, a bounded batch at a time."""
    with on_disk(path) as local:
        yield from _local_batches(local, format, schema)


def _local_batches(path: Path, format: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if format == "parquet":
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_HELD_MAX, use_threads=False):
                yield _fit(batch, schema)
    elif format == "arrow":
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            for index in range(reader.num_record_batches):
                yield _fit(reader.get_batch(index), schema)
    else:
        with path.open("rb") as lines:
            while data := lines.read(_READ_BYTES):
                yield from json_lines_table(data + lines.readline(), schema).to_batches(ROWS_HELD_MAX)


def staged_stem(epoch: int, holder: Holder, task: int) -> str:
    """The name of a staged file without its ending.

    >>> staged_stem(42, Holder("r0", 3), 7)
    '000000000042-r0.3-7'
    """
    return f"{epoch:012}-{holder}-{task}"


def parse_staged(name: str) -> tuple[int, str] | None:
    """Epoch and holder of a staged file's name, None if it is not one.

    >>> parse_staged("000000000042-r0.3-7.parquet")
    (42, 'r0.3')
    """
    match = _STAGED.fullmatch(name)
    return (int(match.group(1)), match.group(2)) if match else None


def _create(folder: AnyPath, stem: str, format: str) -> tuple[AnyPath, BinaryIO]:
    """A new file, never one that is there: if a holder runs an epoch again, its first run may be published.

    A remote one is written here, under a name that nobody else draws, and sent when it is finished.
    """
    if isinstance(folder, RemotePath):
        return folder / f"{stem}-{secrets.randbelow(10**12):012}.{format}", tempfile.TemporaryFile()
    for attempt in range(ATTEMPTS_MAX):
        path = folder / (f"{stem}-{attempt}.{format}" if attempt else f"{stem}.{format}")
        try:
            return path, path.open("xb")
        except FileExistsError:
            continue
    raise FileExistsError(f"{folder / stem} was staged {ATTEMPTS_MAX} times")


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly this schema: Spark may say large_string where the sink said string."""
    return batch if batch.schema.equals(schema) else batch.select(schema.names).cast(schema)
