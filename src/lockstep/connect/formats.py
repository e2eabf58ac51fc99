"""Bytes to Arrow and back: JSON lines, CSV and Parquet as sources read them and sinks write them.

The fast way is always Arrow's own parser over a whole chunk. Python looks at single lines only where that fails: to say
which line is wrong, or to read what Arrow's parser does not know (maps, binary).
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from lockstep.connect.text_records import Ends, Trouble, csv_rows, line_ends
from lockstep.store.values import NumberText, Unfit, converter, record_converter

_HAS_ZONE = r"(Z|[+-]\d{2}(:?\d{2})?)$"
_TIME_OF_DAY = r"\d{1,2}:\d{2}"
_BY_LINE_BYTES = 1 << 14
_ARROW_FAILED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError)


class CorruptContent(Exception):
    """Content that is not what the schema says: always so for the same bytes."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason = reason
        self.line = line
        super().__init__(reason, line)


@dataclass(frozen=True)
class BadRecord:
    """A record that does not parse, or does not fit the schema: always so for the same bytes, whatever is beside it."""

    line: int
    data: bytes
    """As it stands in the file, without its line end."""
    reason: str


SetAside = Callable[[BadRecord], None]
"""Takes a record that is bad; what follows it is read."""


def refuse(bad: BadRecord) -> None:
    """For content in which nothing may be bad."""
    raise CorruptContent(bad.reason, bad.line)


def json_lines_table(data: bytes, schema: pa.Schema, first_line: int = 1, set_aside: SetAside = refuse) -> pa.Table:
    r"""The records in JSON lines. A field that is missing is null, one that is not in the schema is ignored.

    >>> json_lines_table(b'{"user": "ann", "more": 1}\n{}\n', pa.schema([("user", pa.string())])).to_pylist()
    [{'user': 'ann'}, {'user': None}]
    >>> bad, numbers = [], pa.schema([("n", pa.int64())])
    >>> json_lines_table(b'{"n": 1}\n{"n": "two"}\n{"n": 3}\n', numbers, 1, bad.append).to_pylist()
    [{'n': 1}, {'n': 3}]
    >>> bad  # doctest: +ELLIPSIS
    [BadRecord(line=2, data=b'{"n": "two"}', reason='field "n" should be bigint, but "two" ... no exponent')]
    """
    lines = _JsonLines(schema, _asked_of_arrow(schema), set_aside)
    return pa.concat_tables([schema.empty_table(), *lines.tables(data, first_line)])


def csv_table(
    data: bytes, header: str, schema: pa.Schema, first_line: int = 2, set_aside: SetAside = refuse
) -> pa.Table:
    r"""The records in CSV rows, their columns found by name in ``header``. An empty field is null, ``""`` is text.

    >>> csv_table(b"1,ann\n2,bob\n", "id,user", pa.schema([("user", pa.string()), ("id", pa.int64())])).to_pylist()
    [{'user': 'ann', 'id': 1}, {'user': 'bob', 'id': 2}]
    """
    names = next(csv.reader(io.StringIO(header, newline="")), [])
    missing = [name for name in schema.names if names.count(name) != 1]
    if missing:
        raise CorruptContent(
            f"its header has no column (or two) called {', '.join(missing)}; it has: {', '.join(names)}", 1
        )
    text = _CsvText(schema, names, set_aside)
    return pa.concat_tables([schema.empty_table(), *text.tables(data, first_line)])


def parquet_table(path: Path, row_groups: Sequence[int], schema: pa.Schema) -> pa.Table:
    """The records of some row groups, columns by name, types changed only where nothing is lost."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            missing = [name for name in schema.names if name not in file.schema_arrow.names]
            if missing:
                raise CorruptContent(
                    f"it has no column {', '.join(missing)}; it has: {', '.join(file.schema_arrow.names)}"
                )
            table = file.read_row_groups(list(row_groups), columns=schema.names, use_threads=False)
        return table.select(schema.names).cast(schema)
    except (*_ARROW_FAILED, OSError, ValueError, IndexError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise CorruptContent(str(error)) from error


def json_lines(table: pa.Table) -> bytes:
    """A table as JSON lines: times as ISO 8601 in UTC with microseconds, decimals as text, binary as base64.

    >>> json_lines(pa.table({"user": ["ann"], "at": pa.array([0], pa.timestamp("us", "UTC"))}))
    b'{"user":"ann","at":"1970-01-01T00:00:00.000000Z"}\\n'
    """
    columns = [json_values(column) for column in table.columns]
    names = table.column_names
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    lines = [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    return ("\n".join(lines) + "\n").encode() if lines else b""


def json_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column's values as plain JSON data."""
    if pa.types.is_timestamp(column.type):
        return timestamp_texts(column)
    values = column.to_pylist()
    return values if _is_plain(column.type) else [plain_value(value, column.type) for value in values]


def nested_from_json(text: str, type_: pa.DataType) -> Any:
    """A nested value from its JSON, in the form Arrow takes.

    >>> nested_from_json('{"x":1}', pa.map_(pa.string(), pa.int64()))
    [('x', 1)]
    """
    return converter(type_)(_DECODER.decode(text))


def timestamp_texts(column: pa.ChunkedArray | pa.Array) -> list[str | None]:
    """ISO 8601 with microseconds, with a Z if the instants are in UTC.

    >>> timestamp_texts(pa.array([1_500_000], pa.timestamp("us", "UTC")))
    ['1970-01-01T00:00:01.500000Z']
    """
    # Without the zone (the instants are UTC's) Arrow needs no zone database to write them.
    texts = pc.strftime(column.cast(pa.int64()).cast(pa.timestamp(column.type.unit)).cast(pa.timestamp("us")), _ISO)
    suffix = "Z" if column.type.tz is not None else ""
    return [text if text is None else text + suffix for text in texts.to_pylist()]


_ISO = "%Y-%m-%dT%H:%M:%S"


def plain_value(value: Any, type_: pa.DataType) -> Any:
    """One value, nested or not, as plain JSON data.

    >>> plain_value([("a", b"hi")], pa.map_(pa.string(), pa.binary()))
    {'a': 'aGk='}
    """
    if value is None or _is_plain(type_):
        return value
    if pa.types.is_timestamp(type_):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + "Z" if type_.tz is not None else text
    if pa.types.is_map(type_):
        return {str(plain_value(name, type_.key_type)): plain_value(each, type_.item_type) for name, each in value}
    if pa.types.is_struct(type_):
        return {field.name: plain_value(value[field.name], field.type) for field in type_}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [plain_value(each, type_.value_type) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _is_plain(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
    )


@dataclass(frozen=True)
class _JsonLines:
    """All of it by Arrow, or halves of it, down to a few lines that are looked at one by one.

    So one odd line does not make a whole chunk slow, and what becomes of a line does not depend on its neighbours.
    """

    schema: pa.Schema
    asked: pa.Schema | None
    set_aside: SetAside

    def tables(self, data: bytes, first_line: int) -> Iterator[pa.Table]:
        table = _json_table_by_arrow(data, self.schema, self.asked) if self.asked is not None else None
        half = data.find(b"\n", len(data) // 2) + 1 if self.asked is not None and len(data) > _BY_LINE_BYTES else 0
        if table is not None:
            yield table
        elif 0 < half < len(data):
            yield from self.tables(data[:half], first_line)
            yield from self.tables(data[half:], first_line + data.count(b"\n", 0, half))
        else:
            yield from self._tables_by_line(data, first_line)

    def _tables_by_line(self, data: bytes, first_line: int) -> Iterator[pa.Table]:
        convert = record_converter(self.schema)
        for number, line in enumerate(data.split(b"\n"), first_line):
            if not line.strip():
                continue
            try:
                record = _decoded(line)
                row = convert({name: record[name] for name in self.schema.names if name in record})
            except Unfit as unfit:
                table = _json_table_by_arrow(line, self.schema, self.asked) if self.asked is not None else None
                if table is None:
                    self.set_aside(BadRecord(number, line.removesuffix(b"\r"), told(unfit)))
                else:
                    yield table
            else:
                yield pa.Table.from_pylist([row], self.schema)


@dataclass(frozen=True)
class _CsvText:
    """All of it by Arrow, or halves of it, down to the rows that are bad.

    Arrow takes a quote that is never closed for text up to the end, and with it all rows that follow. So it is given
    only rows whose quotes can be meant.
    """

    schema: pa.Schema
    names: list[str]
    set_aside: SetAside

    def tables(self, data: bytes, first_line: int) -> list[pa.Table]:
        rows = csv_rows(data)
        bad = [(one.start, data[one.start : one.end], one.why) for one in rows.troubles]
        lengths = rows.ends - rows.starts
        tables = list(self._halves(_without(data, rows.troubles), np.cumsum(lengths), rows.starts, bad))
        lines = line_ends(data) if bad else np.empty(0)
        for start, record, why in sorted(bad):
            line = first_line + int(np.searchsorted(lines, start, side="right"))
            self.set_aside(BadRecord(line, record.removesuffix(b"\n").removesuffix(b"\r"), why))
        return tables

    def _halves(self, data: bytes, ends: Ends, starts: Ends, bad: list[tuple[int, bytes, str]]) -> Iterator[pa.Table]:
        """``ends`` are the ends of the rows in ``data``, ``starts`` where they stand in the whole text."""
        if not data.strip():
            return
        try:
            yield self._table(data)
        except _ARROW_FAILED as error:
            if len(ends) == 1:
                bad.append((int(starts[0]), data, _csv_reason(str(error), self.names)))
                return
            half = len(ends) // 2
            middle = int(ends[half - 1])
            yield from self._halves(data[:middle], ends[:half], starts[:half], bad)
            yield from self._halves(data[middle:], ends[half:] - middle, starts[half:], bad)

    def _table(self, data: bytes) -> pa.Table:
        try:
            return _csv_table_by_arrow(data, self.names, self.schema, self.schema)
        except _ARROW_FAILED as error:
            try:
                return _csv_table_with_times_as_text(data, self.names, self.schema)
            except _ARROW_FAILED:
                raise error from None


def _without(data: bytes, troubles: Sequence[Trouble]) -> bytes:
    if not troubles:
        return data
    begins = [0, *(one.end for one in troubles)]
    ends = [*(one.start for one in troubles), len(data)]
    return b"".join(data[begin:end] for begin, end in zip(begins, ends, strict=True))


def _csv_reason(error: str, names: list[str]) -> str:
    """What Arrow says about one row, without its counting of rows and columns."""
    if column := re.match(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", error, re.DOTALL):
        return f'field "{names[int(column.group(1))]}": {column.group(2)}'
    return re.sub(r"^CSV parse error: (?:Row #\d+: )?(Expected \d+ columns, got \d+).*", r"\1", error, flags=re.DOTALL)


def _asked_of_arrow(schema: pa.Schema) -> pa.Schema | None:
    """The types to ask of Arrow's JSON reader, None if it cannot read the schema.

    It takes dates as numbers only, and does not check a decimal's precision: both are read wider and cast afterwards,
    as are floats, so that they are rounded once.
    """
    fields = []
    for field in schema:
        if pa.types.is_date(field.type):
            fields.append((field.name, pa.string()))
        elif pa.types.is_decimal(field.type):
            fields.append((field.name, pa.decimal256(76, field.type.scale)))
        elif pa.types.is_float32(field.type):
            fields.append((field.name, pa.float64()))
        elif _json_reader_knows(field.type):
            fields.append((field.name, field.type))
        else:
            return None
    return pa.schema(fields)


def _json_reader_knows(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return all(_json_reader_knows(field.type) for field in type_)
    if pa.types.is_list(type_):
        return _json_reader_knows(type_.value_type)
    return bool(pa.types.is_timestamp(type_) or (_is_plain(type_) and not pa.types.is_float32(type_)))


def _json_table_by_arrow(data: bytes, schema: pa.Schema, asked: pa.Schema) -> pa.Table | None:
    """What Arrow makes of it, None if it does not take all of it or is not to be trusted with it."""
    if not data or data.isspace():
        return schema.empty_table()
    try:
        _check_text(data)  # Arrow does not look
        table = pa.json.read_json(
            pa.BufferReader(data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
        )
        fitting = table.select(schema.names).cast(schema)
    except (*_ARROW_FAILED, UnicodeDecodeError):
        return None
    # Arrow also takes two objects on a line and one on two lines. Where every line begins and ends with a brace, as
    # many objects as lines means one object on each.
    if table.num_rows != _count_objects(data) or _overflowed(table, fitting):
        return None
    return fitting


def _check_text(data: bytes) -> None:
    if not data.isascii():
        data.decode()


def _count_objects(data: bytes) -> int:
    """How many lines hold an object in braces; -1 if one holds something else."""
    if data.startswith(b"{") and data.endswith((b"}\n", b"}")):
        view = np.frombuffer(data, np.uint8)
        breaks = np.flatnonzero(view[:-1] == ord("\n"))
        if (view[breaks - 1] == ord("}")).all() and (view[breaks + 1] == ord("{")).all():
            return len(breaks) + 1
    lines = [line for each in data.split(b"\n") if (line := each.strip())]
    return len(lines) if all(line[:1] + line[-1:] == b"{}" for line in lines) else -1


def _overflowed(read: pa.Table, fitting: pa.Table) -> bool:
    """Whether a number became infinite by the change to a narrower float."""
    narrowed = [field.name for field in fitting.schema if pa.types.is_float32(field.type)]
    return any(pc.sum(pc.is_inf(read[name])).as_py() != pc.sum(pc.is_inf(fitting[name])).as_py() for name in narrowed)


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        record = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise Unfit(f"this is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Unfit("a record is an object in braces")
    return record


_DECODER = json.JSONDecoder(parse_float=NumberText, parse_int=NumberText)


def told(unfit: Unfit) -> str:
    """What does not fit, and where, in one line."""
    where = f'field "{".".join(unfit.path)}" ' if unfit.path else ""
    return f"{where}{unfit.problem}" + (f": {unfit.why.rstrip('.')}" if unfit.why else "")


def _csv_table_by_arrow(data: bytes, names: list[str], asked: pa.Schema, schema: pa.Schema) -> pa.Table:
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=asked,
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return table.cast(asked)


def _csv_table_with_times_as_text(data: bytes, names: list[str], schema: pa.Schema) -> pa.Table:
    """Read timestamps as text first: Arrow's CSV reader insists on a zone, where JSON's takes none as UTC."""
    asked = pa.schema([(f.name, pa.string() if pa.types.is_timestamp(f.type) else f.type) for f in schema])
    table = _csv_table_by_arrow(data, names, asked, schema)
    for index, field in enumerate(schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field, _times(table.column(index), field.type))
    return table


def _times(texts: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Timestamps from texts with or without a zone; without one they are UTC."""
    zoned = pc.and_(pc.match_substring_regex(texts, _TIME_OF_DAY), pc.match_substring_regex(texts, _HAS_ZONE))
    with_zone = pc.if_else(zoned, texts, None).cast(pa.timestamp(type_.unit, "UTC")).cast(pa.int64())
    without = pc.if_else(zoned, None, texts).cast(pa.timestamp(type_.unit)).cast(pa.int64())
    return pc.coalesce(with_zone, without).cast(type_)
