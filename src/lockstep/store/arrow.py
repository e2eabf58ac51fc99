"""Records as Arrow batches: from JSON lines and from Python dicts, all of them checked against the schema.

JSON lines take two ways that agree: Arrow's own reader where it is known to be as strict as we are, and one line after
the other where it is not, or where it refuses: the slow way knows which line, which field, and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from lockstep.errors import StoreError
from lockstep.plan.schema import Schema
from lockstep.store.types import arrow_schema, schema_text
from lockstep.store.values import (
    DATE_PATTERN,
    TIME_PATTERN,
    TIMESTAMP_US_MAX,
    TIMESTAMP_US_MIN,
    ZONE_PATTERN,
    NumberText,
    Unfit,
    record_converter,
)

__all__ = ["arrow_schema", "batch_from_json_lines", "batch_from_pylist", "refused"]

_JSON_SPACE = b" \t\r\n"
_ZONE_AT_END = f"{ZONE_PATTERN}$"
_MICROSECOND_TIME = TIME_PATTERN.replace("{1,9}", "{1,6}")
_NOT_A_NUMBER = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")


def batch_from_json_lines(
    lines: Sequence[bytes | str], schema: Schema | pa.Schema, first_line_number: int = 1
) -> pa.RecordBatch:
    """The records of JSON lines; empty lines are skipped, missing fields are null.

    LS0403 names the first line that does not fit, the field, what came and what was expected.

    >>> from lockstep.plan.schema import parse_schema
    >>> schema = parse_schema("user string, ok boolean")
    >>> batch_from_json_lines([b'{"user": "ann", "ok": true}', b'{"user": "bob"}'], schema).to_pylist()
    [{'user': 'ann', 'ok': True}, {'user': 'bob', 'ok': None}]
    >>> batch_from_json_lines([b'{"user": "ann", "ok": "yes"}'], schema)
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.StoreError: LS0403 line 1: field "ok" should be boolean, but "yes" (string) came
      why:  booleans are true and false, without quotes.
      try:  mend the line; nothing of this call was kept. The schema is: user string, ok boolean.
    """
    arrow = arrow_schema(schema)
    raw = [line.encode(errors="surrogatepass") if isinstance(line, str) else line for line in lines]
    batch = _quickly(raw, arrow)
    return batch if batch is not None else _line_by_line(raw, arrow, first_line_number)


def batch_from_pylist(records: Sequence[Mapping[str, Any]], schema: Schema | pa.Schema) -> pa.RecordBatch:
    """The records given as Python dicts, with the same checks; times may be ``datetime`` objects too.

    >>> from lockstep.plan.schema import parse_schema
    >>> batch_from_pylist([{"n": 1}, {"n": 2.5}], parse_schema("n bigint"))
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.StoreError: LS0403 record 2: field "n" should be bigint, but 2.5 came
      why:  whole numbers have no quotes, no fraction and no exponent.
      try:  mend the record; nothing of this call was kept. The schema is: n bigint.
    """
    arrow = arrow_schema(schema)
    convert = record_converter(arrow)
    rows = []
    for number, record in enumerate(records, 1):
        try:
            rows.append(convert(record))
        except Unfit as unfit:
            raise refused("record", number, unfit, arrow) from None
    return _batch(rows, arrow)


def _line_by_line(lines: Sequence[bytes], schema: pa.Schema, first_line_number: int) -> pa.RecordBatch:
    convert = record_converter(schema)
    rows = []
    for number, line in enumerate(lines, first_line_number):
        if not line.strip(_JSON_SPACE):
            continue
        try:
            record = _parsed(line)
            if not isinstance(record, Mapping):
                raise Unfit("is not an object in braces", "each line holds one record with its fields by name.")
            rows.append(convert(record))
        except Unfit as unfit:
            raise refused("line", number, unfit, schema) from None
    return _batch(rows, schema)


def _parsed(line: bytes) -> Any:
    try:
        return _DECODER.decode(line.decode())
    except Unfit:
        raise
    except UnicodeDecodeError as error:
        raise Unfit("is not UTF-8", f"{error.reason} at byte {error.start}.") from None
    except RecursionError:
        raise Unfit("is nested too deeply") from None
    except ValueError as error:
        raise Unfit("is not JSON", f"{error}.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Unfit("is there twice", "which of the two values is meant cannot be known.").inside(twice)
    return fields


def _no_constant(text: str) -> Any:
    raise Unfit("is not JSON", f"JSON has no {text}.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=NumberText, parse_int=NumberText, parse_constant=_no_constant
)


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row[field.name] for row in rows], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def refused(unit: str, number: int, unfit: Unfit, schema: pa.Schema) -> StoreError:
    """Why a line or a record is not taken, LS0403; they are counted from 1."""
    where = f'field "{".".join(unfit.path)}" ' if unfit.path else ""
    return StoreError(
        "LS0403",
        f"{unit} {number}: {where}{unfit.problem}",
        why=unfit.why,
        hint=f"mend the {unit}; nothing of this call was kept. The schema is: {schema_text(schema)}.",
    )


def _quickly(lines: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    """What Arrow's reader makes of the lines, or None where it refuses or could be more lenient than the slow way."""
    readable = _readable_schema(schema)
    filled = [stripped for line in lines if (stripped := line.strip(_JSON_SPACE))]
    block = b"\n".join(filled)
    if readable is None or not _trusted(block, len(filled)):
        return None
    try:
        block.decode()  # Arrow does not look
        table = _read(block, readable)
        columns = [_finished(table.column(field.name).combine_chunks(), field.type) for field in schema]
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    if table.num_rows != len(filled) or any(column is None for column in columns):
        return None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _trusted(block: bytes, lines: int) -> bool:
    """Whether Arrow's reader, if it takes ``lines`` records from ``block``, takes one from each line.

    It does not care where lines end: an object may span two of them, or two stand on one. With every line in braces,
    each line's end is an object's end too, and equal counts mean one object per line. It also takes NaN and Inf.
    """
    in_braces = block.startswith(b"{") and block.endswith(b"}")
    if not in_braces or not block.count(b"}\n{") == block.count(b"\n") == lines - 1:
        return False
    return not ((b"NaN" in block or b"Inf" in block) and _NOT_A_NUMBER.search(block))


def _read(block: bytes, schema: pa.Schema) -> pa.Table:
    return pa_json.read_json(
        pa.BufferReader(block),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def _readable_schema(schema: pa.Schema) -> pa.Schema | None:
    """The types to ask of Arrow's reader; None if one of them needs the slow way.

    Times are read as text, since Arrow takes forms that we do not; floats as doubles, so that both ways round once, and
    alike. Decimals are left out: Arrow lets 38 nines wrap around to another number (seen in 26.0).
    """
    fields = []
    for field in schema:
        if pa.types.is_timestamp(field.type) or pa.types.is_date32(field.type):
            fields.append(pa.field(field.name, pa.string()))
        elif pa.types.is_float32(field.type):
            fields.append(pa.field(field.name, pa.float64()))
        elif _reads_alike(field.type):
            fields.append(field)
        else:
            return None
    return pa.schema(fields)


def _reads_alike(arrow: pa.DataType) -> bool:
    if pa.types.is_map(arrow):
        return False
    if pa.types.is_list(arrow):
        return _reads_alike(arrow.value_type)
    if pa.types.is_struct(arrow):
        return all(_reads_alike(field.type) for field in arrow)
    plain = (pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_float64)
    return any(applies(arrow) for applies in plain)


def _finished(column: pa.Array, arrow: pa.DataType) -> pa.Array | None:
    """A column as it was read, in its own type; None in case of doubt."""
    if pa.types.is_timestamp(arrow):
        return _timestamps(column, arrow)
    if pa.types.is_date32(arrow):
        return column.cast(arrow) if _all_match(column, DATE_PATTERN) else None
    if pa.types.is_float32(arrow):
        narrow = column.cast(arrow)
        return None if pc.any(pc.is_inf(narrow)).as_py() else narrow
    return column


def _timestamps(column: pa.Array, arrow: pa.DataType) -> pa.Array | None:
    zone = f"{ZONE_PATTERN}?" if arrow.tz else ""
    if not _all_match(column, f"{DATE_PATTERN}[T ]{_MICROSECOND_TIME}{zone}"):
        return None
    if arrow.tz:
        zoned = pc.match_substring_regex(column, _ZONE_AT_END)
        column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    times = column.cast(arrow)
    limits = pc.min_max(times.cast(pa.int64())).as_py()
    inside = limits["min"] is None or (limits["min"] >= TIMESTAMP_US_MIN and limits["max"] <= TIMESTAMP_US_MAX)
    return times if inside else None


def _all_match(column: pa.Array, pattern: str) -> bool:
    matches = pc.match_substring_regex(column, f"^(?:{pattern})$")
    return pc.all(matches).as_py() is not False
