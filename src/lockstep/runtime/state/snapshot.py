"""Copying a running replica's checkpoint: how a replica is seeded.

The peer goes on meanwhile: it adds files (which the copy ignores) and deletes old ones (then the copy starts over from
the newest commit). Order matters: what is named by something is listed after it.
"""

from __future__ import annotations

import filecmp
import json
import uuid
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from lockstep.connect.disk import copy_file, files_below, remove_folder, replace_file
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import FINGERPRINT, Standing, check_state, damaged, standing
from lockstep.runtime.state.checksums import fault_of, sums_of
from lockstep.runtime.state.state_metadata import state_partitions
from lockstep.runtime.state.store_files import base_of, is_needed, named_by

T = TypeVar("T")
ATTEMPTS_MAX = 10
"""A copy takes well under a second and Spark deletes about once in ten: ten misses in a row mean something else."""


COPIES_AT_ONCE = 8
LOG_ENTRIES_COPIED = 10
"""Of the logs' newest entries. Spark reads the last two, and keeps a hundred; at an address each one is a request."""


def copy_checkpoint(source: AnyPath, target: AnyPath) -> Standing:
    """Copy ``source`` up to its newest committed batch to ``target`` (made anew); returns where it stands."""
    reason = "nothing was committed yet"
    for _ in range(ATTEMPTS_MAX):
        remove_folder(target)
        try:
            copied = _copy_once(source, target)
            if copied is not None:
                check_state(target, copied.batch)
                return copied
        except FileNotFoundError as error:
            reason = f"{error.filename} vanished while it was copied"
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            reason = f"{type(error).__name__}: {error}"
        except RunError as error:
            # Its owner writes on while it is read: what looks damaged now may be whole in a moment.
            reason = error.fact
    remove_folder(target)
    raise RunError(
        "LS0606",
        f"no snapshot could be taken of {source.parent.name}",
        why=f"tried {ATTEMPTS_MAX} times; the last time {reason}.",
        hint="the replica is tried again after a pause; see `lockstep status`.",
    )


def _copy_once(source: AnyPath, target: AnyPath) -> Standing | None:
    at = standing(source)
    if at is None or at.batch < 0:
        return None
    # A query of its own: of two with one id in one application, Spark ends the first when the second starts.
    replace_file(target / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    if (source / FINGERPRINT).exists():
        _copy_checked(source / FINGERPRINT, target / FINGERPRINT)
    for log in ("offsets", "commits"):
        _copy_log(source / log, target / log, at.batch)
    _copy_notes(source / "state", target / "state", at.batch)
    for partition in state_partitions(source, at.batch):
        copied = target / partition.inside
        if (fault := _copy_store(partition.folder, copied, at.batch + 1)) is not None:
            raise damaged(source, f"{partition}: {fault}")
    return Standing(at.batch, at.epoch, at.epoch)


def _copy_log(source: AnyPath, target: AnyPath, last: int) -> None:
    names = [path.name for path in source.iterdir() if path.name.isdigit()]
    _each(
        lambda name: _copy_checked(source / name, target / name),
        [name for name in names if last - LOG_ENTRIES_COPIED < int(name) <= last],
    )


def _copy_notes(source: AnyPath, target: AnyPath, last: int) -> None:
    """What Spark notes about operators and stores: small files, in folders that begin with an underscore."""

    def is_note(path: str) -> bool:
        *folders, name = path.split("/")
        half_written, later = name.startswith(".") or name.endswith(".tmp"), name.isdigit() and int(name) > last
        return any(part.startswith("_") for part in folders) and not half_written and not later

    _each(lambda path: _copy_checked(source / path, target / path), [*filter(is_note, files_below(source))])


def _copy_store(source: AnyPath, target: AnyPath, version: int) -> str | None:
    """The files from which ``version`` and the one before can be rebuilt: the newest batch may have to run again.

    They are checked afterwards, all at once, but for bases, which come first and are read here: a sorted file that no
    base names may be half-written. Returns what is wrong with a base, if something is.
    """
    names = [path.name for path in source.iterdir()]
    base = base_of(names, version - 1)
    needed = [name for name in names if is_needed(name, base, version)]
    for name in (name for name in needed if name.endswith(".zip")):
        _copy(source / name, target / name)
        if (fault := fault_of(target / name)) is not None:
            return f"{name} {fault}"
        _copy_named(target / name, source)
    changes = [name for name in needed if not name.endswith(".zip")]
    _each(lambda name: _copy(source / name, target / name), changes)
    return None


def _copy_named(base: AnyPath, source: AnyPath) -> None:
    missing = [path for path, _ in named_by(base) if not path.exists()]
    _each(lambda path: _copy(source / path.parent.name / path.name, path), missing)


def _each(act: Callable[[T], None], those: Sequence[T]) -> None:
    """Several at a time: at an address it is the answers that take time."""
    with ThreadPoolExecutor(COPIES_AT_ONCE) as threads:
        for _ in threads.map(act, those):
            pass


def _copy_checked(source: AnyPath, target: AnyPath) -> None:
    _copy(source, target)
    if (fault := fault_of(target)) is not None:
        raise damaged(source.parent.parent, f"{source.name} {fault}")


def _copy(source: AnyPath, target: AnyPath) -> None:
    """Copy a file and its checksums; without checksums, compare the copy with what it was copied from."""
    copy_file(source, target)
    if not isinstance(source, Path) or not isinstance(target, Path):
        return  # HDFS and S3 check what they copy by sums of their own
    try:
        copy_file(sums_of(source), sums_of(target))
    except FileNotFoundError:
        if not filecmp.cmp(source, target, shallow=False):
            raise damaged(source.parents[1], f"{source.name} is not the same after copying") from None
