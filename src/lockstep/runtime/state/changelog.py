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
_RAW = 0x10
_INT = struct.Struct(">i")
_END, _PUT, _DELETE = 0x00, 0x01, 0x10
_HEAD = b"\x00\x02v2"
Change = tuple[bytes, bytes | None]
"""A key, and its value from now on; None if it has none any more."""


def changes(path: Path) -> Iterator[Change]:
    """All changes of a file, in order. ValueError if it is not one of those that are known."""
    data = _unpacked(path.read_bytes())
    if data.startswith(_HEAD):
        yield from _with_kinds(data, len(_HEAD))
    else:
        yield from _plain(data)


def _plain(data: bytes) -> Iterator[Change]:
    at = 0
    while _INT.unpack_from(data, at)[0] >= 0:
        key, value, at = _pair(data, at)
        assert key is not None, "only values may be missing"
        yield key, value


def _with_kinds(data: bytes, at: int) -> Iterator[Change]:
    while (kind := data[at]) != _END:
        if kind not in (_PUT, _DELETE):
            raise ValueError(f"a change of kind {kind} is not known")
        key, value, at = _pair(data, at + 1)
        assert key is not None, "only values may be missing"
        yield key, value if kind == _PUT else None


def _pair(data: bytes, at: int) -> tuple[bytes | None, bytes | None, int]:
    """Two texts, each behind its length, of which -1 means none; and where the next begins."""
    found: list[bytes | None] = []
    for _ in range(2):
        (size,) = _INT.unpack_from(data, at)
        found.append(data[at + 4 : at + 4 + size] if size >= 0 else None)
        at += 4 + max(0, size)
    return found[0], found[1], at


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
            parts.append(body if token & 0xF0 == _RAW else codec.decompress(body, plain).to_pybytes())
    return b"".join(parts)
