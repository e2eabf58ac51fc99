"""However a file is cut into chunks, the records are those of the whole file."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.connect import text_records
from lockstep.connect.formats import csv_table, json_lines_table
from lockstep.connect.sources import chunks
from lockstep.connect.sources.chunks import Chunk, FileLook, chunk_bytes, content_hash, next_chunk

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
CSV_TEXT = st.text(st.sampled_from('ab",\n é'), max_size=8)
JSON_SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("l", pa.list_(pa.float64()))])
CSV_SCHEMA = pa.schema([("s", pa.string()), ("t", pa.string())])
JSON_RECORDS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "s": TEXT,
            "d": st.dates().map(str),
            "l": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
            "unknown": st.integers(),
        },
    ),
    max_size=20,
)


def _cut(data: bytes, format: str, sizes: list[int], block_bytes: int) -> tuple[list[Chunk], list[bytes]]:
    """All chunks of a file, each of the next size, found by reading blocks of ``block_bytes``."""
    with tempfile.TemporaryDirectory() as name, mock.patch.object(chunks, "CHUNK_BYTES", block_bytes):
        folder = Path(name)
        (folder / "f").write_bytes(data)
        look = FileLook("f", len(data), 0)
        found: list[Chunk] = []
        while not found or not found[-1].last:
            found.append(next_chunk(folder, look, format, found[-1] if found else None, sizes[len(found) % len(sizes)]))
        return found, [chunk_bytes(folder, chunk) for chunk in found]


@settings(max_examples=60, deadline=None)
@given(JSON_RECORDS, st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 300), st.booleans())
def test_json_lines(records: list[dict[str, Any]], sizes: list[int], block_bytes: int, ended: bool) -> None:
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    data = ("\n".join(lines) + "\n" * ended).encode()
    found, parts = _cut(data, "jsonl", sizes, block_bytes)
    assert b"".join(parts) == data
    assert [chunk.hash for chunk in found] == [content_hash(part) for part in parts]
    assert all(chunk.records <= max(sizes) for chunk in found)
    rows = [
        row
        for chunk, part in zip(found, parts, strict=True)
        for row in json_lines_table(part, JSON_SCHEMA, chunk.first_line).to_pylist()
    ]
    expected = [{name: record.get(name) for name in JSON_SCHEMA.names} for record in records]
    assert [{**row, "d": row["d"] and str(row["d"])} for row in rows] == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(CSV_TEXT, CSV_TEXT), max_size=12),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 100),
    st.sampled_from(["\n", "\r\n"]),
)
def test_csv_is_never_cut_inside_quotes(
    rows: list[tuple[str, str]], sizes: list[int], block_bytes: int, line_end: str
) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([("s", "t"), *rows])
    data = file.getvalue().encode()
    found, parts = _cut(data, "csv", sizes, block_bytes)
    assert all(chunk.records <= max(sizes) for chunk in found)
    read = [
        (row["s"], row["t"])
        for chunk, part in zip(found, parts, strict=True)
        for row in csv_table(part, chunk.header, CSV_SCHEMA).to_pylist()
    ]
    assert read == rows


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('aa"",\n\n\r'), max_size=60), st.integers(1, 40))
def test_the_rows_of_a_text_do_not_depend_on_the_windows_it_is_looked_at_through(text: str, window_bytes: int) -> None:
    with mock.patch.object(text_records, "_WINDOW_BYTES", window_bytes):
        rows = text_records.csv_rows(text.encode())
    found = [(start, end, False) for start, end in zip(rows.starts.tolist(), rows.ends.tolist(), strict=True)]
    found += [(one.start, one.end, True) for one in rows.troubles]
    assert sorted(found) == _rows_by_character(text)


def _rows_by_character(text: str) -> list[tuple[int, int, bool]]:
    """Begin and end of each row, and of each first line of a row whose quotes cannot be meant."""
    rows, at = [], 0
    while at < len(text):
        end = _row_end(text, at)
        rows.append((at, end if end is not None else text.find("\n", at) + 1 or len(text), end is None))
        at = rows[-1][1]
    return rows


def _row_end(text: str, at: int) -> int | None:
    opened, begins = None, True
    while at < len(text):
        here, after = text[at], text[at + 1 : at + 2]
        if opened is not None and here == after == '"':
            at += 1
        elif opened is not None and here == '"':
            if "\n" in text[opened:at] and after not in ("", ",", "\n", "\r"):
                return None
            opened = None
        elif opened is None and here == '"' and begins:
            opened = at
        elif opened is None and here == "\n":
            return at + 1
        begins = opened is None and here == ","
        at += 1
    return at if opened is None else None


def test_many_quotes_that_are_never_closed_cost_no_more_than_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is looked at a few times, however many of them are bad: the rest of the text never is again."""
    looked: list[int] = []
    by_vectors, row = text_records._ends_by_vectors, text_records._row

    def window(data: bytes) -> Any:
        looked.append(len(data))
        return by_vectors(data)

    def walked(data: bytes, at: int) -> tuple[int, str]:
        looked.append(6)
        return row(data, at)

    monkeypatch.setattr(text_records, "_ends_by_vectors", window)
    monkeypatch.setattr(text_records, "_row", walked)
    data = b'1,"ab\n2,cd\n' * 20_000
    bad: list[Any] = []
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    table = csv_table(data, "n,s", schema, set_aside=bad.append)
    assert (table.num_rows, [one.line for one in bad]) == (20_000, list(range(2, 40_002, 2)))
    assert sum(looked) <= 3 * len(data)


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from('a",\n'), max_size=60), st.integers(1, 40))
def test_quotes_in_odd_places_end_records_where_the_reader_ends_them(text: str, block_bytes: int) -> None:
    """Python's csv module follows the same rule as Arrow: a quote opens only at the beginning of a field."""
    data = text.encode()
    ends = text_records.csv_record_ends(data).tolist()
    assert ends == text_records._ends_by_field(data).tolist()
    consumed: list[int] = []
    source = io.StringIO(text, newline="")
    lines = iter(source.readline, "")
    at = 0

    def counted() -> Any:
        nonlocal at
        for line in lines:
            at += len(line)
            yield line

    for _ in csv.reader(counted()):
        consumed.append(at)
    unfinished = consumed and (not text.endswith("\n") or consumed[-1] not in ends)
    assert ends == (consumed[:-1] if unfinished else consumed)


def test_a_file_that_shrinks_while_it_is_cut_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"{}\n")
    with pytest.raises(chunks.ChangedUnderway):
        next_chunk(tmp_path, FileLook("f", 100, 0), "jsonl", None, 10)
