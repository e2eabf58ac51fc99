"""Copying a running replica's checkpoint: how a replica is seeded.

The peer goes on meanwhile: it adds files (which the copy ignores) and deletes old ones (then the copy starts over from
the newest commit). Order matters: what is named by something is listed after it.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import uuid
import zipfile
from pathlib import Path

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import FINGERPRINT, Standing, check_state, damaged, standing
from lockstep.runtime.state.checksums import fault_of, sums_of
from lockstep.runtime.state.state_metadata import state_partitions
from lockstep.runtime.state.store_files import base_of, is_needed, named_by

ATTEMPTS_MAX = 10
"""A copy takes well under a second and Spark deletes about once in ten: ten misses in a row mean something else."""


def copy_checkpoint(source: Path, target: Path) -> Standing:
    """Copy ``source`` up to its newest committed batch to ``target`` (made anew); returns where it stands."""
    reason = "nothing was committed yet"
    for _ in range(ATTEMPTS_MAX):
        shutil.rmtree(target, ignore_errors=True)
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
    shutil.rmtree(target, ignore_errors=True)
    raise RunError(
        "LS0606",
        f"no snapshot could be taken of {source.parent.name}",
        why=f"tried {ATTEMPTS_MAX} times; the last time {reason}.",
        hint="the replica is tried again after a pause; see `lockstep status`.",
    )


def _copy_once(source: Path, target: Path) -> Standing | None:
    at = standing(source)
    if at is None or at.batch < 0:
        return None
    target.mkdir(parents=True)
    # A query of its own: of two with one id in one application, Spark ends the first when the second starts.
    (target / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}), encoding="utf-8")
    if (source / FINGERPRINT).exists():
        _copy_checked(source / FINGERPRINT, target / FINGERPRINT)
    for log in ("offsets", "commits"):
        _copy_log(source / log, target / log, at.batch)
    if (source / "state").is_dir():
        _copy_notes(source / "state", target / "state", at.batch)
        for partition in state_partitions(source, at.batch):
            copied = target / partition.folder.relative_to(source)
            if (fault := _copy_store(partition.folder, copied, at.batch + 1)) is not None:
                raise damaged(source, f"{partition}: {fault}")
    return Standing(at.batch, at.epoch, at.epoch)


def _copy_log(source: Path, target: Path, last: int) -> None:
    target.mkdir()
    for path in source.iterdir():
        if path.name.isdigit() and int(path.name) <= last:
            _copy_checked(path, target / path.name)


def _copy_notes(source: Path, target: Path, last: int) -> None:
    """What Spark notes about operators and stores: small files, in folders that begin with an underscore."""
    for folder, _, names in os.walk(source):
        inside = Path(folder).relative_to(source)
        if not any(part.startswith("_") for part in inside.parts):
            continue
        (target / inside).mkdir(parents=True, exist_ok=True)
        for name in names:
            half_written, later = name.startswith(".") or name.endswith(".tmp"), name.isdigit() and int(name) > last
            if not half_written and not later:
                _copy_checked(source / inside / name, target / inside / name)


def _copy_store(source: Path, target: Path, version: int) -> str | None:
    """The files from which ``version`` and the one before can be rebuilt: the newest batch may have to run again.

    They are checked afterwards, all at once, but for bases, which come first and are read here: a sorted file that no
    base names may be half-written. Returns what is wrong with a base, if something is.
    """
    target.mkdir(parents=True, exist_ok=True)
    names = [path.name for path in source.iterdir()]
    base = base_of(names, version - 1)
    needed = [name for name in names if is_needed(name, base, version)]
    for name in sorted(needed, key=lambda name: not name.endswith(".zip")):
        _copy(source / name, target / name)
        if name.endswith(".zip"):
            if (fault := fault_of(target / name)) is not None:
                return f"{name} {fault}"
            _copy_named(target / name, source, target)
    return None


def _copy_named(base: Path, source: Path, target: Path) -> None:
    for path, _ in named_by(base):
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            _copy(source / path.relative_to(target), path)


def _copy_checked(source: Path, target: Path) -> None:
    _copy(source, target)
    if (fault := fault_of(target)) is not None:
        raise damaged(source.parents[1], f"{source.name} {fault}")


def _copy(source: Path, target: Path) -> None:
    """Copy a file and its checksums; without checksums, compare the copy with what it was copied from."""
    shutil.copyfile(source, target)
    try:
        shutil.copyfile(sums_of(source), sums_of(target))
    except FileNotFoundError:
        if not filecmp.cmp(source, target, shallow=False):
            raise damaged(source.parents[1], f"{source.name} is not the same after copying") from None
