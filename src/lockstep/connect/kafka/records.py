"""Values of messages as a table: all of them by one call of Arrow, single ones only where that fails.

What becomes of a value depends on nothing but itself, so batches may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from lockstep.connect.formats import BadRecord, CorruptContent, csv_table, json_lines_table
from lockstep.connect.kafka.specs import TextFormat

Values = Sequence[bytes | None]
SetAside = Callable[[int, str], object]
"""Takes the index of a value that is bad, and the reason."""


def values_table(values: Values, schema: pa.Schema, format: TextFormat, set_aside: SetAside) -> pa.Table:
    r"""One row for each value that is well, in order. A value that is null gives a row of nulls.

    >>> bad, schema = [], pa.schema([("n", pa.int64())])
    >>> values_table([b'{"n":1}', b"{", None, b'{\n"n": 2}'], schema, "json", lambda *one: bad.append(one)).to_pylist()
    [{'n': 1}, {'n': None}, {'n': 2}]
    >>> bad[0][0]
    1
    """
    if format == "raw":
        return _raw(values, schema, set_aside)
    if format == "csv":
        return pa.concat_tables([schema.empty_table(), *_csv(values, 0, schema, set_aside)])
    return _json(values, schema, set_aside)


def texts(values: Values, type_: pa.DataType, what: str, set_aside: SetAside) -> pa.Array:
    """Bytes as a column of text or bytes; what is not UTF-8 is null, and set aside."""
    if not pa.types.is_string(type_):
        return pa.array(values, type_)
    try:
        return pa.array([value if value is None else value.decode() for value in values], type_)
    except UnicodeDecodeError:
        return pa.array([_decoded(index, value, what, set_aside) for index, value in enumerate(values)], type_)


def _decoded(index: int, value: bytes | None, what: str, set_aside: SetAside) -> str | None:
    try:
        return value if value is None else value.decode()
    except UnicodeDecodeError as error:
        set_aside(index, f"{what} is not UTF-8: {error}")
        return None


def _raw(values: Values, schema: pa.Schema, set_aside: SetAside) -> pa.Table:
    bad: set[int] = set()

    def note(index: int, reason: str) -> None:
        bad.add(index)
        set_aside(index, reason)

    table = pa.table([texts(values, schema.field(0).type, "its value", note)], schema=schema)
    return table.take([index for index in range(len(values)) if index not in bad]) if bad else table


def _json(values: Values, schema: pa.Schema, set_aside: SetAside) -> pa.Table:
    data = b"\n".join([b"{}" if value is None else value for value in values])
    if data.count(b"\n") != len(values) - 1:
        # A line end inside a value is white space between its parts, as good as any other; inside a text it is wrong,
        # and so is the other.
        data = b"\n".join([b"{}" if value is None else value.replace(b"\n", b"\r") for value in values])
    bad: list[BadRecord] = []
    table = json_lines_table(data, schema, 0, bad.append)
    if table.num_rows + len(bad) != len(values):
        return _json_without_empty(values, schema, set_aside)
    for one in bad:
        set_aside(one.line, one.reason)
    return table


def _json_without_empty(values: Values, schema: pa.Schema, set_aside: SetAside) -> pa.Table:
    """An empty line is no record to the reader of lines, but an empty value is one: a bad one."""
    there = [index for index, value in enumerate(values) if value is None or value.strip()]
    for index in set(range(len(values))) - set(there):
        set_aside(index, "its value is empty")
    if not there:
        return schema.empty_table()
    return _json([values[index] for index in there], schema, lambda at, reason: set_aside(there[at], reason))


def _csv(values: Values, first: int, schema: pa.Schema, set_aside: SetAside) -> list[pa.Table]:
    """All of it by Arrow if that gives a row for each value, else halves of it, down to those that are bad."""
    if not values:
        return []
    if len(values) == 1:
        return _csv_value(values[0], first, schema, set_aside)
    table = _csv_at_once(values, schema)
    if table is not None:
        return [table]
    half = len(values) // 2
    return [*_csv(values[:half], first, schema, set_aside), *_csv(values[half:], first + half, schema, set_aside)]


def _csv_at_once(values: Values, schema: pa.Schema) -> pa.Table | None:
    if any(value is None for value in values):
        return None
    data = b"\n".join([value for value in values if value is not None])
    if data.count(b"\n") != len(values) - 1:
        return None
    try:
        # Without a line end inside a value, rows can only become fewer: as many rows as values is one of each.
        table = csv_table(data, _header(schema), schema)
    except CorruptContent:
        return None
    return table if table.num_rows == len(values) else None


def _csv_value(value: bytes | None, index: int, schema: pa.Schema, set_aside: SetAside) -> list[pa.Table]:
    if value is None:
        return [pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)]
    bad: list[BadRecord] = []
    table = csv_table(value, _header(schema), schema, 1, bad.append)
    if bad or table.num_rows != 1:
        set_aside(index, bad[0].reason if bad else f"its value has {table.num_rows} rows")
        return []
    return [table]


def _header(schema: pa.Schema) -> str:
    return ",".join('"' + name.replace('"', '""') + '"' for name in schema.names)
