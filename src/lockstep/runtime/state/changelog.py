"""What one version of a state store changed, as Spark's RocksDB provider writes it: puts and removals, compressed.

8.changelog   blocks of LZ4 (lz4-java's framing), and in them, after a line "v2" where a store has several
              tables: for each change its kind, the key's length and bytes, the value's; -1 at the end
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

_MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBiii")
_RAW, _LZ4 = 0x10, 0x20
_INT = struct.Struct(">i")
_PUT, _DELETE, _MERGE = 1, 2, 3
Change = tuple[bytes, bytes | None]
"""A key, and its value from now on; None if it has none any more."""


def changes(path: Path) -> Iterator[Change]:
    """All changes of a file, in order. ValueError if it is not one of those that are known."""
    data = _unpacked(path.read_bytes())
    if data[:4] == b"\x00\x02v2":
        yield from _with_kinds(data, 4)
    else:
        yield from _plain(data)


def _plain(data: bytes) -> Iterator[Change]:
    at = 0
    while (size := _INT.unpack_from(data, at)[0]) >= 0:
        key = data[at + 4 : at + 4 + size]
        at += 4 + size
        (size,) = _INT.unpack_from(data, at)
        yield key, data[at + 4 : at + 4 + size] if size >= 0 else None
        at += 4 + max(0, size)


def _with_kinds(data: bytes, at: int) -> Iterator[Change]:
    raise NotImplementedError


def _unpacked(data: bytes) -> bytes:
    """The content of lz4-java's frames: a magic word, how it is packed, two sizes, a checksum."""
    codec, at, parts = pa.Codec("lz4_raw"), 0, []
    while at < len(data):
        magic, token, packed, plain, _ = _HEADER.unpack_from(data, at)
        if magic != _MAGIC:
            raise ValueError("it is not packed as Spark packs changes")
        at += _HEADER.size
        body = data[at : at + packed]
        at += packed
        if plain:
            method = token & 0xF0
            parts.append(body if method == _RAW else codec.decompress(body, plain).to_pybytes())
    return b"".join(parts)
