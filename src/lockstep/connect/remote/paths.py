"""Paths on other systems than this host's disk, with the few methods of ``pathlib.Path`` that are needed there.

What files sinks and checkpoints do is written once, for both. What such a system has to offer is a
:class:`FileSystem`; whatever it says comes as an error of ours, as ``FileNotFoundError``, or as another ``OSError``.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Protocol, cast
from urllib.parse import unquote, urlsplit

from lockstep.errors import ConnectError

S3_SCHEMES = ("s3a", "s3")
HDFS_SCHEMES = ("hdfs", "webhdfs")
SCHEMES = (*HDFS_SCHEMES, *S3_SCHEMES)
_ADDRESS = re.compile(rf"(?:{'|'.join(SCHEMES)}):", re.IGNORECASE)
_FILE = re.compile(r"file:", re.IGNORECASE)


class FileSystem(Protocol):
    """What is asked of a system. Keys are texts like ``out/alerts/data/1.parquet``; folders come with their files."""

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder, files and folders; nothing if it is not there."""

    def is_there(self, key: str) -> bool:
        """Whether there is such a file."""

    def read(self, key: str, into: BinaryIO) -> None:
        """Copy a file's content; FileNotFoundError if there is none."""

    def write(self, key: str, content: BinaryIO) -> None:
        """Make a file of ``content``, from its beginning; durable when this returns. An old one is replaced."""

    def put_if_absent(self, key: str, temporary: str, data: bytes) -> bool:
        """Make a file in one atomic act; False if there is one. ``temporary`` is a name that may be used meanwhile."""

    def remove(self, key: str) -> None:
        """Remove a file, which may be gone."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of each file directly in a folder; nothing if it is not there."""

    def files(self, folder: str) -> list[str]:
        """Every file below a folder, by its name from there on; nothing if it is not there."""

    def replace(self, key: str, temporary: str, data: bytes) -> None:
        """Make a small file in one atomic act, or replace it: a reader finds the old content or the new one."""

    def copy(self, key: str, target: str) -> None:
        """Copy a file; FileNotFoundError if there is none."""

    def move_folder(self, folder: str, target: str) -> bool:
        """Rename a folder in one act; False, and nothing is done, if the system has no such act."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder, which may be gone, with all that is in it."""


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder on such a system.

    >>> path = RemotePath("s3a://shop", "out/alerts")
    >>> str(path / "data"), path.parent.name, path.with_name("sums").key
    ('s3a://shop/out/alerts/data', 'out', 'out/sums')
    """

    address: str
    """Of the system, as users write it: scheme and host, or bucket."""
    key: str

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.address, f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"{self.address}/{self.key}"

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The folder that it is in."""
        return RemotePath(self.address, self.key.rpartition("/")[0])

    @property
    def system(self) -> FileSystem:
        """The system that it is on; made when it is first needed, once in a process."""
        return _system(self.address, os.getpid())

    def with_name(self, name: str) -> RemotePath:
        """Another one in the same folder."""
        return self.parent / name

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self.system.is_there(self.key)

    def iterdir(self) -> Iterator[RemotePath]:
        """What is in this folder; nothing if it is not there."""
        return iter([self / name for name in self.system.names(self.key)])

    def read_bytes(self) -> bytes:
        """The content of a small file."""
        content = io.BytesIO()
        self.system.read(self.key, content)
        return content.getvalue()

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content of a small file of text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> int:
        """Make a small file, or replace it."""
        self.system.write(self.key, io.BytesIO(data))
        return len(data)

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: ARG002 - as pathlib has it; no system says so
        """Remove the file."""
        self.system.remove(self.key)


AnyPath = Path | RemotePath


def is_remote(text: str) -> bool:
    """Whether a text is an address on one of these systems.

    >>> is_remote("s3a://shop/out"), is_remote("hdfs:///out"), is_remote("out/alerts"), is_remote("file:///out")
    (True, True, False, False)
    """
    return _ADDRESS.match(text) is not None


def location(text: str, project: Path = Path()) -> AnyPath:
    """The path that a user named: an address, or a path relative to ``project``.

    >>> location("out/alerts", Path("/shop")).as_posix(), location("file:///mnt/out").as_posix()
    ('/shop/out/alerts', '/mnt/out')
    >>> str(location("s3://shop//out/alerts/"))
    's3://shop/out/alerts'
    """
    if _FILE.match(text):
        return Path(unquote(urlsplit(text).path))
    if not is_remote(text):
        return project / text
    parts = urlsplit(text)
    # No decoding: Hadoop takes such a path as it is written.
    key = "/".join(part for part in text.partition("://")[2].split("/")[1:] if part)
    return RemotePath(f"{parts.scheme}://{parts.netloc}", key)


@contextmanager
def on_disk(path: AnyPath) -> Iterator[Path]:
    """A file where Arrow reads it in pieces: itself, or a copy for as long as it is needed."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="lockstep-", suffix=f"-{path.name}") as copy:
        path.system.read(path.key, cast("BinaryIO", copy.file))
        copy.flush()
        yield Path(copy.name)


def check_creates_once(folder: RemotePath) -> None:
    """LS0553 unless the system refuses to create a file that is there: put one, put another one in its place."""
    probe = folder / f".probe-{secrets.token_hex(8)}"
    try:
        first = _put(probe, b"first")
        second = _put(probe, b"second")
        kept = probe.read_bytes()
    finally:
        probe.unlink()
    if not first or second or kept != b"first":
        raise cannot_create_once(folder, "a file that was there was replaced by a second one of the same name")


def _put(path: RemotePath, data: bytes) -> bool:
    return path.system.put_if_absent(path.key, f"{path.key}.{data.decode()}.tmp", data)


def cannot_create_once(place: object, why: str) -> ConnectError:
    """The refusal of a system on which two replicas could publish the same epoch."""
    return ConnectError(
        "LS0553",
        f"{place} cannot hold a sink",
        why=f"{why}: two replicas could both publish an epoch, and nobody would notice.",
        hint="use a store that keeps the condition If-None-Match (S3 itself does), HDFS, or a folder.",
    )


def away(place: object, what: object) -> ConnectError:
    """The system does not answer."""
    return ConnectError(
        "LS0551",
        f"{place} does not answer",
        why=f"{what}. The replica starts again and goes on where it was; nothing is lost.",
        hint="start it, or correct the address.",
    )


def refused(place: object, what: object, hint: str) -> ConnectError:
    """The system answers that this user may not."""
    return ConnectError("LS0554", f"{place} cannot be used", why=f"{what}.", hint=hint)


@cache
def _system(address: str, process: int) -> FileSystem:  # noqa: ARG001 - connections do not survive a fork
    scheme, _, host = address.partition("://")
    if scheme in HDFS_SCHEMES:
        from lockstep.connect.remote.hdfs import Hdfs

        return Hdfs(address)
    from lockstep.connect.remote.s3 import S3

    return S3(host)
