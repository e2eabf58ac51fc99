"""State as bytes: msgpack with a few types of our own. Equal values give equal bytes, and nothing is ever executed.

The first byte of everything is the format's version. Dicts keep the order in which they were filled, which is itself
deterministic.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack

from lockstep.errors import FunctionError

VERSION = 1
_PREFIX = bytes([VERSION])

_TUPLE, _BIG_INT, _DECIMAL, _DATE, _UTC_TIME, _LOCAL_TIME, _PAIRS = 1, 2, 3, 4, 5, 6, 7
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_LONG = struct.Struct(">q")
_PLAIN: tuple[type[Any], ...] = (bool, int, float, str, bytes, list, dict)
_BUFFER_BYTES = 64 * 1024
_packers: list[msgpack.Packer] = []
"""Packers to use again: making one allocates its buffer, which costs ten times what packing a key does. A tuple inside
a value needs a second one while the first is at work, so they are taken off the list."""


def encode(value: Any) -> bytes:
    """The bytes of plain data: None, bool, int, float, str, bytes, Decimal, date, datetime, list, tuple, dict.

    >>> decode(encode({"seen": (1, None), "at": datetime(2026, 3, 1, tzinfo=UTC)}))
    {'seen': (1, None), 'at': datetime.datetime(2026, 3, 1, 0, 0, tzinfo=datetime.timezone.utc)}
    """
    return _PREFIX + pack(value)


def decode(data: bytes) -> Any:
    """The value that :func:`encode` was given."""
    if data[:1] != _PREFIX:
        raise AssertionError(f"state of format {data[0] if data else 'none'}, this version reads {VERSION}")
    return unpack(data[1:])


def pack(value: Any) -> bytes:
    """As :func:`encode`, without the version: for parts of something that has one."""
    packer = _packers.pop() if _packers else _new_packer()
    try:
        return packer.pack(value)  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        return packer.pack(_prepared(value))  # type: ignore[no-any-return]
    finally:
        _packers.append(packer)


def unpack(data: bytes) -> Any:
    """The value that :func:`pack` was given."""
    return msgpack.unpackb(data, ext_hook=_ext, strict_map_key=False, unicode_errors="surrogatepass")


def utc_time(at_us: int) -> datetime:
    """An instant as an aware datetime.

    >>> utc_time(1_000_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH_UTC + timedelta(microseconds=at_us)


def time_us(at: datetime) -> int:
    """Microseconds since 1970 of an aware datetime; one without a zone is taken as UTC.

    >>> time_us(utc_time(1_234_567))
    1234567
    """
    return (at - (_EPOCH_UTC if at.tzinfo is not None else _EPOCH_LOCAL)) // _MICROSECOND


def _new_packer() -> msgpack.Packer:
    return msgpack.Packer(default=_default, strict_types=True, buf_size=_BUFFER_BYTES, unicode_errors="surrogatepass")


def _default(value: Any) -> Any:
    """Called by msgpack for what it does not know itself."""
    kind = type(value)
    if kind is tuple:
        return msgpack.ExtType(_TUPLE, pack(list(value)))
    if kind is datetime:
        code = _LOCAL_TIME if value.tzinfo is None else _UTC_TIME
        return msgpack.ExtType(code, _LONG.pack(time_us(value)))
    if kind is date:
        return msgpack.ExtType(_DATE, _LONG.pack(value.toordinal()))
    if kind is Decimal:
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if kind is int:
        return msgpack.ExtType(_BIG_INT, str(value).encode())
    return _unusual(value)


def _unusual(value: Any) -> Any:
    """Subclasses of what can be kept (named tuples, numpy's floats, string enums) are kept as their plain kind."""
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, pack(list(value)))
    if isinstance(value, date):
        return _default(_plain_time(value))
    if isinstance(value, Decimal):
        return _default(Decimal(value))
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise FunctionError(
        "LS0311",
        f"a {type(value).__name__} cannot be kept in state",
        why=f"state is plain data; this is {value!r:.200}.",
        hint="keep None, bool, int, float, str, bytes, Decimal, date, datetime, and lists, tuples and dicts of them.",
    )


def _plain_time(value: date) -> date:
    if isinstance(value, datetime):
        return datetime(*value.timetuple()[:6], value.microsecond, tzinfo=value.tzinfo, fold=value.fold)
    return date(value.year, value.month, value.day)


def _prepared(value: Any) -> Any:
    """For whole numbers beyond 64 bits, and keys of dicts that msgpack would refuse, at any depth."""
    if type(value) is int and not _INT_MIN <= value <= _INT_MAX:
        return msgpack.ExtType(_BIG_INT, str(value).encode())
    if isinstance(value, list):
        return [_prepared(item) for item in value]
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, pack([_prepared(item) for item in value]))
    if isinstance(value, dict):
        return {_prepared(key): _prepared(item) for key, item in value.items()}
    return value


def _ext(code: int, data: bytes) -> Any:
    if code == _TUPLE:
        return tuple(unpack(data))
    if code == _UTC_TIME:
        return _EPOCH_UTC + timedelta(microseconds=_LONG.unpack(data)[0])
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _DATE:
        return date.fromordinal(_LONG.unpack(data)[0])
    if code == _BIG_INT:
        return int(data)
    if code == _LOCAL_TIME:
        return _EPOCH_LOCAL + timedelta(microseconds=_LONG.unpack(data)[0])
    raise AssertionError(f"unknown type {code} in state")
