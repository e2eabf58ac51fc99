"""Arrow values as SQLite keeps them, and back: times, dates, decimals and NaN as text, nested ones as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import isnan
from typing import Any

import pyarrow as pa

from lockstep.connect.formats import json_values, nested_from_json
from lockstep.store.values import converter

_NAN = "NaN"


def column_type(type_: pa.DataType) -> str:
    """The type of a column in ``CREATE TABLE``.

    >>> column_type(pa.int32()), column_type(pa.decimal128(10, 2)), column_type(pa.list_(pa.int64()))
    ('INTEGER', 'TEXT', 'TEXT')
    """
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return "INTEGER"
    if pa.types.is_floating(type_):
        return "REAL"
    return "BLOB" if pa.types.is_binary(type_) else "TEXT"


def to_sqlite(column: pa.Array) -> list[Any]:
    """A column's values as SQLite takes them.

    >>> to_sqlite(pa.array([1_500_000], pa.timestamp("us", "UTC"))), to_sqlite(pa.array([[1, 2], None]))
    (['1970-01-01T00:00:01.500000Z'], ['[1,2]', None])
    """
    if pa.types.is_binary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    values = json_values(column)
    if pa.types.is_floating(column.type):
        # SQLite would keep null instead, and a key that is NaN would be one that is null.
        return [_NAN if value is not None and isnan(value) else value for value in values]
    if not pa.types.is_nested(column.type):
        return values
    return [None if value is None else json.dumps(value, separators=(",", ":")) for value in values]


def from_sqlite(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """What :func:`to_sqlite` gave, as Arrow again.

    >>> from_sqlite(["[1,2]", None], pa.list_(pa.int64())).to_pylist()
    [[1, 2], None]
    """
    convert = _back(type_)
    return pa.array([None if value is None else convert(value) for value in values], type_)


def _back(type_: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_boolean(type_):
        return bool
    if pa.types.is_decimal(type_):
        return Decimal
    if pa.types.is_floating(type_):
        return float
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return converter(type_)
    if pa.types.is_nested(type_):
        return lambda text: nested_from_json(text, type_)
    return lambda value: value
