"""Arrow values as Postgres keeps them, and back: each in the type it has there, nested ones as jsonb."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lockstep.connect.formats import json_values
from lockstep.store.values import NumberText, converter

_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.date32(): "date",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
}
_DECODER = json.JSONDecoder(parse_float=NumberText, parse_int=NumberText)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def column_type(type_: pa.DataType) -> str:
    """The type of a column, spelled as Postgres itself spells it.

    >>> column_type(pa.decimal128(10, 2)), column_type(pa.timestamp("us", "UTC")), column_type(pa.list_(pa.int64()))
    ('numeric(10,2)', 'timestamp with time zone', 'jsonb')
    """
    if type_ in _TYPES:
        return _TYPES[type_]
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return f"timestamp with{'' if type_.tz is not None else 'out'} time zone"
    return "jsonb" if pa.types.is_nested(type_) else "text"


def to_postgres(column: pa.Array) -> list[Any]:
    """A column's values as the client takes them; what Python has no exact form for is text that Postgres reads.

    >>> to_postgres(pa.array([1_500_000], pa.timestamp("us", "UTC"))), to_postgres(pa.array([[1.0, math.nan], None]))
    (['1970-01-01T00:00:01.500000Z'], ['[1.0,"NaN"]', None])
    """
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    values = json_values(column)
    return [None if each is None else _json(each) for each in values] if pa.types.is_nested(column.type) else values


def selected(name: str, type_: pa.DataType) -> str:
    """The expression that reads a column; what :func:`from_postgres` takes as text is asked for as text."""
    return f"{name}::text" if _as_text(type_) else name


def from_postgres(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """What was selected, as Arrow again.

    >>> from_postgres(["2024-02-29 12:00:00+00", None], pa.timestamp("us", "UTC"))[0].as_py().isoformat()
    '2024-02-29T12:00:00+00:00'
    >>> from_postgres(['{"x": ["NaN"]}'], pa.struct([("x", pa.list_(pa.float64()))])).to_pylist()
    [{'x': [nan]}]
    """
    convert = _back(type_)
    return pa.array([None if value is None else convert(value) for value in values], type_)


def _as_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_nested(type_))


def _back(type_: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_nested(type_):
        convert = converter(type_)
        return lambda text: convert(_with_floats(_DECODER.decode(text), type_))
    return converter(type_) if _as_text(type_) else lambda value: value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_without_floats(value), separators=(",", ":"), allow_nan=False)


def _without_floats(value: Any) -> Any:
    """JSON has no NaN and no infinities: text instead."""
    if isinstance(value, dict):
        return {name: _without_floats(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_floats(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _with_floats(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_floating(type_):
        return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
    if pa.types.is_map(type_):
        return {name: _with_floats(each, type_.item_type) for name, each in value.items()}
    if pa.types.is_struct(type_):
        return {field.name: _with_floats(value.get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_with_floats(each, type_.value_type) for each in value]
    return value
