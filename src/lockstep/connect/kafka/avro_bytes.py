"""One value in Avro, read byte by byte: what is not exactly as the schema says is refused, with the place.

It takes nothing on trust: a branch or a symbol counted from the end, a byte that is neither true nor false, and a
number of more than 64 bits are all errors here, where libraries read something.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from lockstep.connect.kafka.avro_schema import AvroType
from lockstep.store.values import Unfit, inside

Read = Callable[["Cursor"], Any]

_VARINT_BYTES_MAX = 10
_INT_MAX = 1 << 31
_LONG_MAX = 1 << 63


class Cursor:
    """A place in the bytes of one value."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next bytes, which have to be there."""
        left = len(self.data) - self.at
        if not 0 <= count <= left:
            raise Unfit(f"should have {count} bytes, and {left} are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        """A whole number of up to 64 bits."""
        data, at = self.data, self.at
        unsigned = shift = 0
        for byte in data[at : at + _VARINT_BYTES_MAX]:
            at += 1
            unsigned |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                if unsigned >= 2 * _LONG_MAX:
                    raise Unfit("has a number of more than 64 bits")
                return (unsigned >> 1) ^ -(unsigned & 1)
            shift += 7
        raise Unfit("has a number that does not end" + (", and no bytes are left" if at == len(data) else ""))


def strict_reader(record: AvroType) -> Callable[[bytes], Any]:
    r"""A function from the bytes of one value to plain data; :class:`Unfit` if they are wrong.

    >>> from lockstep.connect.kafka.avro_schema import avro_record
    >>> text = '{"type": "record", "name": "r", "fields": [{"name": "ok", "type": "boolean"}]}'
    >>> strict_reader(avro_record(text))(b"\x01")
    {'ok': True}
    """
    read = _reader(record)

    def whole(data: bytes) -> Any:
        cursor = Cursor(data)
        value = read(cursor)
        if cursor.at != len(data):
            raise Unfit(f"the record ends after {cursor.at} bytes, and {len(data) - cursor.at} more follow")
        return value

    return whole


def _reader(of: AvroType) -> Read:
    read = _READERS[of.kind](of)
    if not of.union:
        return read

    def branch(cursor: Cursor) -> Any:
        index = cursor.number()
        if not 0 <= index < len(of.union):
            raise Unfit(f"has branch {index} of a union of {len(of.union)}")
        return None if of.union[index] else read(cursor)

    return branch


def _boolean(_: AvroType) -> Read:
    def read(cursor: Cursor) -> bool:
        byte = cursor.take(1)[0]
        if byte > 1:
            raise Unfit(f"should be true (1) or false (0), and is {byte}")
        return byte == 1

    return read


def _int(_: AvroType) -> Read:
    def read(cursor: Cursor) -> int:
        number = cursor.number()
        if not -_INT_MAX <= number < _INT_MAX:
            raise Unfit(f"should be an int of 32 bits, and is {number}")
        return number

    return read


def _floating(of: AvroType) -> Read:
    form = struct.Struct("<f" if of.kind == "float" else "<d")

    def read(cursor: Cursor) -> float:
        return float(form.unpack(cursor.take(form.size))[0])

    return read


def _text(cursor: Cursor) -> str:
    data = cursor.take(cursor.number())
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unfit(f"is not UTF-8: {error.reason} at byte {error.start} of the text") from None


def _enum(of: AvroType) -> Read:
    def read(cursor: Cursor) -> str:
        index = cursor.number()
        if not 0 <= index < len(of.symbols):
            raise Unfit(f"has symbol {index} of an enum of {len(of.symbols)}")
        return of.symbols[index]

    return read


def _block(cursor: Cursor) -> int:
    """How many elements follow; a count below zero has the size of the block behind it."""
    count = cursor.number()
    if count < 0:
        cursor.number()
    # Every element has a byte at least: a schema in which one had none is refused.
    left = len(cursor.data) - cursor.at
    if abs(count) > left:
        raise Unfit(f"should have {abs(count)} elements, and {left} bytes are left")
    return abs(count)


def _array(of: AvroType) -> Read:
    read_item = _reader(of.fields[0][1])

    def read(cursor: Cursor) -> list[Any]:
        found: list[Any] = []
        while count := _block(cursor):
            found += [inside(str(len(found) + index), read_item, cursor) for index in range(count)]
        return found

    return read


def _map(of: AvroType) -> Read:
    read_value = _reader(of.fields[0][1])

    def read(cursor: Cursor) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while count := _block(cursor):
            for _ in range(count):
                key = _text(cursor)
                if key in found:
                    raise Unfit(f'has the key "{key}" twice')
                found[key] = inside(key, read_value, cursor)
        return found

    return read


def _record(of: AvroType) -> Read:
    readers = [(name, _reader(each)) for name, each in of.fields]

    def read(cursor: Cursor) -> dict[str, Any]:
        return {name: inside(name, each, cursor) for name, each in readers}

    return read


_READERS: dict[str, Callable[[AvroType], Read]] = {
    "boolean": _boolean,
    "int": _int,
    "long": lambda _: Cursor.number,
    "float": _floating,
    "double": _floating,
    "string": lambda _: _text,
    "bytes": lambda _: lambda cursor: cursor.take(cursor.number()),
    "fixed": lambda of: lambda cursor: cursor.take(of.size),
    "enum": _enum,
    "array": _array,
    "map": _map,
    "record": _record,
}
