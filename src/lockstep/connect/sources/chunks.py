"""Cutting files into chunks: the pieces that are sealed, hashed, counted and read one by one.

A chunk is what an epoch takes of a file, so that one huge file cannot be swallowed in a single epoch. Text files are
cut at the ends of records, never inside one, so any sequence of cuts gives the same records as the whole file.
Parquet files are cut between row groups.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.connect.text_records import Ends, csv_record_ends, line_ends

CHUNK_BYTES = 8 << 20
"""Large enough that the cost per chunk (an item in the ledger, a parser's start) vanishes, small enough for a task."""
RECORD_BYTES_MAX = 64 << 20
"""A text without a line end for this long is not a file of records."""
WHOLE_HASH_BYTES_MAX = 8 << 20
"""Parquet files up to this size are hashed whole; see :func:`parquet_hash`."""
_BOM = b"\xef\xbb\xbf"
_RECORD_BYTES_GUESS = 512

RecordEnds = Callable[[bytes], Ends]


class ChangedUnderway(Exception):
    """A file was not what the look at the folder had shown: somebody is still writing it."""


@dataclass(frozen=True)
class Chunk:
    """A part of one file as it is sealed. ``start`` and ``end`` are bytes, or row groups of a Parquet file."""

    path: str
    """Relative to the source's folder, with ``/``."""
    size: int
    mtime_ns: int
    start: int
    end: int
    hash: str
    records: int
    first_line: int = 1
    header: str = ""
    """The names line of a CSV file: every chunk carries it, to be read on its own."""
    last: bool = False
    """Whether the file ends here."""
    broken: str = ""
    """Why this part cannot be read at all, found out when it was sealed; empty: it is worth a try."""
    lines: int = 0
    """How many lines of the file it takes; 0 (as chunks of older versions say): as many as records."""

    @property
    def next_line(self) -> int:
        """The line after it."""
        return self.first_line + (self.lines or self.records)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the body of a ledger item."""
        return asdict(self)

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Chunk:
        """What :meth:`to_json` gave."""
        return Chunk(**body)


@dataclass(frozen=True)
class FileLook:
    """What a look into the folder showed of one file."""

    path: str
    size: int
    mtime_ns: int
    changed_us: int = 0
    """When the file appeared or last changed here (its inode's change time): what ingestion time means for a file."""


@dataclass(frozen=True)
class _Begin:
    start: int
    first_line: int
    header: str = ""


def next_chunk(folder: Path, look: FileLook, format: str, after: Chunk | None, records_max: int) -> Chunk:
    """The chunk that follows ``after`` (None: the first one), of at least one and about ``records_max`` records."""
    if format == "parquet":
        return _parquet_chunk(folder, look, after.end if after else 0, records_max)
    record_ends = csv_record_ends if format == "csv" else line_ends
    with (folder / look.path).open("rb") as file:
        if after is not None:
            begin = _Begin(after.end, after.next_line, after.header)
            return _text_chunk(file, look, begin, record_ends, records_max)
        start = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
        if format != "csv":
            return _text_chunk(file, look, _Begin(start, 1), record_ends, records_max)
        try:
            header = _csv_header(file, start)
        except UnicodeDecodeError:
            return _broken(look, _Begin(start, 1), "its header is not UTF-8 text")
        begin = _Begin(start + len(header.encode()), 2, header.rstrip("\r\n"))
        return _text_chunk(file, look, begin, record_ends, records_max)


def chunk_bytes(folder: Path, chunk: Chunk) -> bytes:
    """The bytes of a text chunk."""
    with (folder / chunk.path).open("rb") as file:
        file.seek(chunk.start)
        return file.read(chunk.end - chunk.start)


def content_hash(data: bytes) -> str:
    """How content is recognised: 160 bits of BLAKE2b.

    >>> content_hash(b"")
    '3345524abf6bbe1809449224b5972c41790b6cf2'
    """
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def parquet_hash(path: Path, size: int) -> str:
    """A hash over the whole of a small Parquet file, over the footer of a large one.

    A large file is read by row groups in many tasks, and hashing all of it in each of them would cost more than
    reading it. Its footer holds every column chunk's place, sizes and statistics, and is rewritten by whoever writes
    the file.
    """
    with path.open("rb") as file:
        if size <= WHOLE_HASH_BYTES_MAX:
            return content_hash(file.read())
        file.seek(-8, os.SEEK_END)
        footer_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(-min(footer_bytes, size), os.SEEK_END)
        return content_hash(file.read() + str(size).encode())


def _text_chunk(file: BinaryIO, look: FileLook, begin: _Begin, record_ends: RecordEnds, records_max: int) -> Chunk:
    start = begin.start
    # A small epoch does not read 8 MB to take a few lines of it.
    wanted = min(CHUNK_BYTES, max(1 << 16, records_max * _RECORD_BYTES_GUESS))
    while True:
        data = _read(file, start, min(wanted, look.size - start))
        at_end = start + len(data) >= look.size
        ends = record_ends(data)
        if at_end and data and (not len(ends) or ends[-1] != len(data)):
            ends = np.append(ends, len(data))
        if len(ends) or at_end:
            break
        if wanted >= RECORD_BYTES_MAX:
            return _unreadable_line(file, look, begin, has_line_end=b"\n" in data)
        wanted *= 2
    records = min(len(ends), max(1, records_max))
    length = int(ends[records - 1]) if records else 0
    return Chunk(
        look.path,
        look.size,
        look.mtime_ns,
        start,
        start + length,
        content_hash(data[:length]),
        records,
        begin.first_line,
        begin.header,
        last=start + length >= look.size,
        lines=data.count(b"\n", 0, length) + (length > 0 and data[length - 1 : length] != b"\n"),
    )


def _unreadable_line(file: BinaryIO, look: FileLook, begin: _Begin, *, has_line_end: bool) -> Chunk:
    """A record that is too long to be one: only its first line is given up, what follows is read as ever."""
    limit = f"{RECORD_BYTES_MAX >> 20} MB"
    unclosed = f"a quote is opened here and not closed within {limit}"
    end = begin.start
    while end < look.size:
        data = _read(file, end, min(CHUNK_BYTES, look.size - end))
        if (newline := data.find(b"\n")) >= 0:
            end += newline + 1
            break
        end += len(data)
    chunk = _broken(look, begin, unclosed if has_line_end else f"a record of more than {limit} begins here")
    return replace(chunk, end=end, last=end >= look.size, lines=1)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    data = file.read(length)
    if len(data) < length:
        raise ChangedUnderway
    return data


def _csv_header(file: BinaryIO, start: int) -> str:
    file.seek(start)
    data = file.read(1 << 20)
    ends = csv_record_ends(data)
    return data[: int(ends[0])].decode() if len(ends) else data.decode()


def _broken(look: FileLook, begin: _Begin, reason: str) -> Chunk:
    """The rest of a file that nobody can read."""
    return Chunk(
        look.path,
        look.size,
        look.mtime_ns,
        begin.start,
        look.size,
        "",
        0,
        begin.first_line,
        begin.header,
        last=True,
        broken=reason,
    )


def _parquet_chunk(folder: Path, look: FileLook, start: int, records_max: int) -> Chunk:
    path = folder / look.path
    try:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
            rows = [group.num_rows for group in groups]
            sizes = [group.total_byte_size for group in groups]
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        return _broken(look, _Begin(start, 1), f"it is not a Parquet file: {error}")
    end = min(start + 1, len(rows))
    # Parquet is compressed: what a chunk becomes in memory is bounded by the uncompressed sizes in the footer.
    while (
        end < len(rows)
        and sum(rows[start : end + 1]) <= records_max
        and sum(sizes[start : end + 1]) <= RECORD_BYTES_MAX
    ):
        end += 1
    return Chunk(
        look.path,
        look.size,
        look.mtime_ns,
        start,
        end,
        parquet_hash(path, look.size),
        sum(rows[start:end]),
        first_line=1 + sum(rows[:start]),
        last=end >= len(rows),
    )
