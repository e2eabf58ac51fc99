"""Writing so that it stays, appears at once or not at all, and never leaves its folder: to disk, or to HDFS and S3."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import overload

from lockstep.connect.remote.paths import AnyPath, RemotePath
from lockstep.errors import ConnectError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@overload
def inside(folder: Path, name: str) -> Path: ...


@overload
def inside(folder: RemotePath, name: str) -> RemotePath: ...


def inside(folder: AnyPath, name: str) -> AnyPath:
    """The file ``name`` in ``folder``; a name that leads out of it is refused.

    >>> inside(Path("/data"), "a/b.jsonl").as_posix()
    '/data/a/b.jsonl'
    >>> inside(Path("/data"), "../etc/passwd")
    Traceback (most recent call last):
    lockstep.errors.tree.ConnectError: LS0510 "../etc/passwd" leads out of /data
      why:  a name in a list of files must stay inside the folder that the list belongs to.
    """
    parts = PurePosixPath(name).parts
    if not parts or "\0" in name or name.startswith("/") or ".." in parts:
        raise ConnectError(
            "LS0510",
            f'"{name}" leads out of {folder}',
            why="a name in a list of files must stay inside the folder that the list belongs to.",
        )
    for part in parts:
        folder = folder / part
    return folder


@contextlib.contextmanager
def disk_trouble(path: AnyPath) -> Iterator[None]:
    """Turn what the operating system says about ``path`` into an error a person can act on."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise ConnectError(
                "LS0508",
                f"no space left to write {path}",
                why="the disk (or a quota on it) is full. Nothing of this epoch became visible.",
                hint="make room; the epoch is published by the next attempt.",
            ) from error
        raise ConnectError(
            "LS0509",
            f"cannot use {path}: {error.strerror or error}",
            hint="check that the folder exists, is a folder, and that this user may read and write it.",
        ) from error


def make_folders(*folders: AnyPath) -> None:
    """Create folders with their parents, durably. Remote ones come with their first file."""
    for folder in folders:
        if isinstance(folder, RemotePath):
            continue
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing:
            sync_folder(each.parent)


def sync_folder(folder: AnyPath) -> None:
    """Make the names in ``folder`` durable: a file's own fsync does not cover its name. Remote ones are."""
    if isinstance(folder, RemotePath):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and its content to disk (its name: see :func:`sync_folder`); an old one gives way to it."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def put_if_absent(final: AnyPath, temporary: AnyPath, data: bytes) -> bool:
    """Create ``final`` with ``data`` as one atomic act; False if it was there already.

    ``link`` and not ``rename``: a rename would replace what another replica has published. On return the name is
    durable in either case, also when the other one has not synced it yet: its reader may act on it.
    """
    if isinstance(final, RemotePath) or isinstance(temporary, RemotePath):
        assert isinstance(final, RemotePath) and isinstance(temporary, RemotePath)
        return final.system.put_if_absent(final.key, temporary.key, data)
    try:
        write_durably(temporary, data)
        created = _link(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(final.parent)
    return created


def _link(temporary: Path, final: Path) -> bool:
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    return True


def remove_files(paths: Sequence[AnyPath]) -> int:
    """Remove files that may be gone already; returns how many were there (remote systems do not say: all)."""
    removed = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            removed += 1
    return removed


@overload
def entries(folder: Path) -> list[Path]: ...


@overload
def entries(folder: AnyPath) -> list[AnyPath]: ...


def entries(folder: AnyPath) -> list[AnyPath] | list[Path]:
    """What is in a folder; nothing if it is not there."""
    try:
        return [*folder.iterdir()]
    except FileNotFoundError:
        return []


def replace_file(path: AnyPath, data: bytes, aside: str = ".new") -> None:
    """Make a small file with its folder, or replace it: whoever reads it finds the old content or the new one.

    Until then it has ``aside`` at the end of its name; where several may write it, each has another one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace_file(Path(folder, "new", "note"), b"first")
    ...     replace_file(Path(folder, "new", "note"), b"second")
    ...     Path(folder, "new", "note").read_text()
    'second'
    """
    if isinstance(path, RemotePath):
        path.system.replace(path.key, f"{path.key}{aside}", data)
        return
    temporary = path.with_name(f"{path.name}{aside}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_bytes(data)
    temporary.replace(path)


def copy_file(source: AnyPath, target: AnyPath) -> None:
    """Copy a file inside one system; folders that are missing are made."""
    if isinstance(source, RemotePath):
        assert isinstance(target, RemotePath) and source.address == target.address
        source.system.copy(source.key, target.key)
        return
    assert isinstance(target, Path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def file_sizes(folder: AnyPath) -> dict[str, int]:
    """The bytes of each file directly in a folder, by name; nothing if it is not there."""
    if isinstance(folder, RemotePath):
        return folder.system.sizes(folder.key)
    sizes: dict[str, int] = {}
    for path in entries(folder):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                sizes[path.name] = path.stat().st_size
    return sizes


def files_below(folder: AnyPath) -> list[str]:
    """Every file below a folder, by its name from there on; nothing if it is not there."""
    if isinstance(folder, RemotePath):
        return folder.system.files(folder.key)
    return [
        (Path(inside) / name).relative_to(folder).as_posix() for inside, _, names in os.walk(folder) for name in names
    ]


def move_folder(folder: AnyPath, target: AnyPath) -> bool:
    """Rename a folder in one act, whatever is in it; False, and nothing is done, where there is no such act."""
    if isinstance(folder, RemotePath):
        assert isinstance(target, RemotePath)
        return folder.system.move_folder(folder.key, target.key)
    assert isinstance(target, Path)
    folder.rename(target)
    return True


def remove_folder(folder: AnyPath) -> None:
    """Remove a folder, which may be gone, with all that is in it."""
    if isinstance(folder, RemotePath):
        folder.system.remove_folder(folder.key)
    else:
        shutil.rmtree(folder, ignore_errors=True)
