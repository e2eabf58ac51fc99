"""Copying a running replica's checkpoint: how a replica is seeded.

The peer goes on meanwhile: it adds files (which the copy ignores) and deletes old ones (then the copy starts over from
the newest commit). Order matters: what is named by something is listed after it.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import FINGERPRINT, Standing, check_state, standing

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
    for name in ("metadata", FINGERPRINT):
        if (source / name).exists():
            _copy(source / name, target / name)
    for log in ("offsets", "commits"):
        _copy_log(source / log, target / log, at.batch)
    if (source / "state").is_dir():
        _copy_state(source / "state", target / "state", at.batch + 1)
    return Standing(at.batch, at.epoch, at.epoch)


def _copy_log(source: Path, target: Path, last: int) -> None:
    target.mkdir()
    for path in source.iterdir():
        if path.name.isdigit() and int(path.name) <= last:
            _copy(path, target / path.name)


def _copy_state(source: Path, target: Path, version: int) -> None:
    for folder, _, names in os.walk(source):
        inside = Path(folder)
        copied = target / inside.relative_to(source)
        copied.mkdir(parents=True, exist_ok=True)
        # Zips before the SST files they name: a file that a listed zip names is complete.
        for name in sorted(names, key=lambda name: (not name.endswith(".zip"), name)):
            if _wanted(name, version):
                _copy(inside / name, copied / name)


def _wanted(name: str, version: int) -> bool:
    """Files of later versions and half-written ones stay behind; checksums are not copied, they follow their files."""
    if name.startswith(".") or name.endswith((".tmp", ".crc")):
        return False
    numbered = re.fullmatch(r"(\d+)(?:_[\w-]+)?\.(?:zip|changelog|delta|snapshot)", name)
    return numbered is None or int(numbered.group(1)) <= version


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
