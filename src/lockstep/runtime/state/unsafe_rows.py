"""Rows as Spark keeps them in its state stores (UnsafeRow), read without a JVM.

A row is a bit for each field that is null, in words of eight bytes; then eight bytes for each field: the value itself,
or for what has no fixed size where it begins in the row and how long it is; then those values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

_WORD = 8
_LONG = struct.Struct("<q")
_PLACE = struct.Struct("<II")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL = datetime(1970, 1, 1)
_DAY_ZERO = date(1970, 1, 1)
_LONG_DIGITS = 18
"""A decimal of so many digits at most is kept as a long."""
_FIXED: dict[str, tuple[int, Callable[[bytes], Any]]] = {
    "byte": (1, lambda data: struct.unpack_from("<b", data)[0]),
    "boolean": (1, lambda data: data[0] != 0),
    "short": (2, lambda data: struct.unpack_from("<h", data)[0]),
    "integer": (4, lambda data: struct.unpack_from("<i", data)[0]),
    "date": (4, lambda data: _DAY_ZERO + timedelta(days=struct.unpack_from("<i", data)[0])),
    "float": (4, lambda data: struct.unpack_from("<f", data)[0]),
    "long": (8, lambda data: _LONG.unpack_from(data)[0]),
    "double": (8, lambda data: struct.unpack_from("<d", data)[0]),
    "timestamp": (8, lambda data: _EPOCH + timedelta(microseconds=_LONG.unpack_from(data)[0])),
    "timestamp_ntz": (8, lambda data: _EPOCH_LOCAL + timedelta(microseconds=_LONG.unpack_from(data)[0])),
}
"""Types of a fixed size, by Spark's names: how many bytes, and their value."""


_WRITTEN: dict[Any, Callable[[Any], bytes]] = {
    "byte": lambda value: struct.pack("<b", value),
    "boolean": lambda value: bytes([bool(value)]),
    "short": lambda value: struct.pack("<h", value),
    "integer": lambda value: struct.pack("<i", value),
    "date": lambda value: struct.pack("<i", (value - _DAY_ZERO).days),
    "long": _LONG.pack,
    "timestamp": lambda value: _LONG.pack((value - _EPOCH) // timedelta(microseconds=1)),
}


class Unreadable(ValueError):
    """A type that is not read here."""


@dataclass(frozen=True)
class Field:
    """A column of a row: its name and its type, as Spark's JSON says it."""

    name: str
    type: Any


def fields_of(schema: dict[str, Any]) -> tuple[Field, ...]:
    """The columns of a struct in Spark's JSON.

    >>> fields_of({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]})
    (Field(name='n', type='long'),)
    """
    return tuple(Field(str(field["name"]), field["type"]) for field in schema["fields"])


def read_row(data: bytes, fields: Sequence[Field]) -> tuple[Any, ...]:
    """The values of a row. Raises :class:`Unreadable` for a type that is not read here.

    >>> read_row(bytes(8) + (5).to_bytes(8, "little"), [Field("n", "long")])
    (5,)
    """
    begin = (len(fields) + 63) // 64 * _WORD
    return tuple(
        None if _is_null(data, number) else _value(data, begin + number * _WORD, field.type)
        for number, field in enumerate(fields)
    )


def write_row(values: Sequence[Any], fields: Sequence[Field]) -> bytes:
    """A row of plain values, as Spark would write it: to look for it as a key.

    >>> fields = [Field("user", "string"), Field("n", "long")]
    >>> read_row(write_row(["ann", None], fields), fields)
    ('ann', None)
    """
    nulls, words, behind = 0, [], b""
    begin = (len(fields) + 63) // 64 * _WORD
    for number, (value, field) in enumerate(zip(values, fields, strict=True)):
        if value is None:
            nulls |= 1 << number
            words.append(bytes(_WORD))
        elif isinstance(field.type, str) and field.type in _WRITTEN:
            words.append(_WRITTEN[field.type](value).ljust(_WORD, b"\0"))
        elif field.type in ("string", "binary"):
            data = value.encode() if isinstance(value, str) else bytes(value)
            words.append(_PLACE.pack(len(data), begin + len(fields) * _WORD + len(behind)))
            behind += data.ljust(-(-len(data) // _WORD) * _WORD, b"\0")
        else:
            raise Unreadable(str(field.type))
    return nulls.to_bytes(begin, "little") + b"".join(words) + behind


def _is_null(data: bytes, number: int) -> bool:
    return bool(data[number // 8] >> (number % 8) & 1)


def _value(data: bytes, at: int, kind: Any) -> Any:
    """The value of a field whose eight bytes begin at ``at``."""
    if isinstance(kind, str) and kind in _FIXED:
        return _FIXED[kind][1](data[at : at + _WORD])
    decimal = _decimal(kind)
    if decimal is not None and decimal[0] <= _LONG_DIGITS:
        return Decimal(_LONG.unpack_from(data, at)[0]).scaleb(-decimal[1])
    size, place = _PLACE.unpack_from(data, at)
    return _sized(data[place : place + size], kind)


def _sized(data: bytes, kind: Any) -> Any:
    """A value that is kept behind the fields."""
    decimal = _decimal(kind)
    if decimal is not None:
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-decimal[1])
    if isinstance(kind, str):
        if kind == "string" or kind.startswith("string "):
            return data.decode("utf-8", "replace")
        if kind == "binary":
            return data
        raise Unreadable(kind)
    if kind["type"] == "struct":
        fields = fields_of(kind)
        return dict(zip([field.name for field in fields], read_row(data, fields), strict=True))
    if kind["type"] == "array":
        return _array(data, kind["elementType"])
    if kind["type"] == "map":
        (keys_size,) = _LONG.unpack_from(data)
        keys = _array(data[_WORD : _WORD + keys_size], kind["keyType"])
        return dict(zip(keys, _array(data[_WORD + keys_size :], kind["valueType"]), strict=True))
    raise Unreadable(str(kind["type"]))


def _array(data: bytes, kind: Any) -> list[Any]:
    """How many, a bit for each that is null, then the elements: of their own size, or eight bytes that say where."""
    (count,) = _LONG.unpack_from(data)
    begin = _WORD + (count + 63) // 64 * _WORD
    size = _FIXED[kind][0] if isinstance(kind, str) and kind in _FIXED else _WORD
    found = []
    for number in range(count):
        at = begin + number * size
        null = data[_WORD + number // 8] >> (number % 8) & 1
        fixed = isinstance(kind, str) and kind in _FIXED
        found.append(None if null else _FIXED[kind][1](data[at : at + size]) if fixed else _value(data, at, kind))
    return found


def _decimal(kind: Any) -> tuple[int, int] | None:
    """Digits and digits after the point of a decimal's type."""
    if not isinstance(kind, str) or not kind.startswith("decimal("):
        return None
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)
