"""The checksums that Hadoop's local file system keeps beside every file that Spark writes: ``.NAME.crc``.

They cost nothing more: Spark writes them anyway, and checks them itself wherever it finds them. HDFS and S3 keep their
own, and check them whenever somebody reads. Four bytes "crc\\0",
how many bytes of the file each sum is about, then a CRC-32 for each such piece.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from lockstep.connect.remote.paths import AnyPath, RemotePath

_HEAD = struct.Struct(">4sI")
_MAGIC = b"crc\0"
_READ_PIECES = 2048
"""So many pieces are read at once: a megabyte."""


def sums_of(path: Path) -> Path:
    """Where the checksums of a file are.

    >>> sums_of(Path("state/0/0/7.changelog")).as_posix()
    'state/0/0/.7.changelog.crc'
    """
    return path.with_name(f".{path.name}.crc")


def fault_of(path: AnyPath) -> str | None:
    """What is wrong with a file according to its checksums; None if nothing is, or if it has none."""
    if isinstance(path, RemotePath):
        return None
    try:
        sums = sums_of(path).read_bytes()
    except FileNotFoundError:
        return None
    if len(sums) < _HEAD.size or len(sums) % 4 or not sums.startswith(_MAGIC):
        return "has checksums that are damaged themselves"
    piece = _HEAD.unpack_from(sums)[1]
    expected = [number for (number,) in struct.iter_unpack(">I", sums[_HEAD.size :])]
    found = _sums(path, piece)
    if len(found) != len(expected):
        return "is not as long as it was written"
    if found != expected:
        return f"differs from what was written, first in the bytes after {_first_difference(found, expected) * piece}"
    return None


def write_sums(path: Path, piece: int = 512) -> None:
    """Write checksums for a file that Spark did not write.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "file")
    ...     size = path.write_bytes(b"x" * 1000)
    ...     write_sums(path)
    ...     before = fault_of(path)
    ...     size = path.write_bytes(b"x" * 999 + b"y")
    ...     before, fault_of(path)
    (None, 'differs from what was written, first in the bytes after 512')
    """
    sums = _sums(path, piece)
    sums_of(path).write_bytes(_HEAD.pack(_MAGIC, piece) + struct.pack(f">{len(sums)}I", *sums))


def _sums(path: Path, piece: int) -> list[int]:
    sums: list[int] = []
    with path.open("rb") as file:
        while data := memoryview(file.read(piece * _READ_PIECES)):
            sums += [zlib.crc32(data[start : start + piece]) for start in range(0, len(data), piece)]
    return sums


def _first_difference(left: list[int], right: list[int]) -> int:
    return next(number for number, (one, other) in enumerate(zip(left, right, strict=True)) if one != other)
