"""A replica's Spark checkpoint, read from outside: which epoch it stands at, and whether it is sound.

Spark's batch ids are not epoch numbers; the epoch is read from the offset log of the batch.
"""

from __future__ import annotations

import bisect
import itertools
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from lockstep.config import PARTITIONS
from lockstep.connect.disk import entries, replace_file
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import RunError
from lockstep.runtime.state.state_metadata import state_operators, state_partitions
from lockstep.runtime.state.store_files import fault_of_version

FINGERPRINT = "lockstep.json"
"""Beside Spark's own files: which plan wrote this checkpoint."""
FORMAT_VERSION = 1
Plan = dict[str, object]
_DAMAGED_KEPT = 2


@dataclass(frozen=True)
class Standing:
    """Where a checkpoint stands: its newest committed batch and epoch, and the newest that was only begun."""

    batch: int
    epoch: int
    begun_epoch: int


@dataclass(frozen=True)
class Found:
    """A checkpoint as it was found: where it stands (None: nothing committed yet), and who wrote it."""

    at: Standing | None
    plan: Plan | None = None
    version: str = ""
    damage: str = ""
    """Why its files cannot be used, "" if they can."""


def batch_epoch(checkpoint: AnyPath, batch: int) -> int:
    """The epoch that a batch computes, from its entry in the offset log."""
    lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    offsets = {json.loads(line)["epoch"] for line in lines[2:] if line.strip() not in ("", "-")}
    if len(offsets) != 1:
        raise RunError(
            "LS0604",
            f"batch {batch} of a checkpoint does not name one epoch: {sorted(offsets)}",
            why="every source of a query answers the same epoch, so the offset log is damaged.",
        )
    return int(offsets.pop())


def batch_of(checkpoint: AnyPath, epoch: int) -> int | None:
    """The newest batch that computes ``epoch``, None if Spark does not keep it any more."""
    batches = _batches(checkpoint / "offsets")
    # Epochs grow with batches. Few are read: at an address each is a request.
    after = bisect.bisect_right(batches, epoch, key=lambda batch: batch_epoch(checkpoint, batch))
    newest = batches[after - 1] if after else None
    return newest if newest is not None and batch_epoch(checkpoint, newest) == epoch else None


def standing(checkpoint: AnyPath) -> Standing | None:
    """Where the checkpoint stands, None if nothing was committed yet. Raises LS0604 if it is damaged."""
    try:
        return _standing(checkpoint)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise damaged(checkpoint, f"{type(error).__name__}: {error}") from None


def _standing(checkpoint: AnyPath) -> Standing | None:
    begun = _batches(checkpoint / "offsets")
    committed = _batches(checkpoint / "commits")
    if not begun:
        if committed:
            raise damaged(checkpoint, "there are commits but no offsets")
        return None
    begun_epoch = batch_epoch(checkpoint, begun[-1])
    if not committed:
        if begun[-1] > 0:
            raise damaged(checkpoint, f"batch {begun[-1]} was begun but no batch was committed")
        return Standing(-1, begun_epoch - 1, begun_epoch)
    if committed[-1] not in begun or begun[-1] > committed[-1] + 1:
        raise damaged(checkpoint, f"commits end at batch {committed[-1]}, offsets at {begun[-1]}")
    return Standing(committed[-1], batch_epoch(checkpoint, committed[-1]), begun_epoch)


def partitions_of(checkpoint: AnyPath) -> int | None:
    """In how many partitions a checkpoint keeps its state, by its newest committed batch; None if it has no state."""
    at = standing(checkpoint)
    if at is None or at.batch < 0 or not state_operators(checkpoint, at.batch):
        return None
    note = (checkpoint / "offsets" / str(at.batch)).read_text(encoding="utf-8").splitlines()[1]
    return int(json.loads(note)["conf"][PARTITIONS])


def check_state(checkpoint: AnyPath, batch: int) -> None:
    """Check that every store can be rebuilt for ``batch``: a base and every change after it, all as they were written.

    It reads exactly the files that Spark reads next.
    """
    try:
        for partition in state_partitions(checkpoint, batch):
            if (fault := fault_of_version(partition.folder, batch + 1)) is not None:
                raise damaged(checkpoint, f"{partition}: {fault}")
    except (OSError, ValueError, KeyError) as error:
        raise damaged(checkpoint, f"{type(error).__name__}: {error}") from None


def take_back(checkpoint: AnyPath, batch: int) -> None:
    """Let Spark compute its newest committed batch again: without its commit it counts as begun only.

    Not the one that laid state out anew: what is before it is in another number of partitions.
    """
    before = checkpoint / "offsets" / str(batch - 1)
    if before.exists() and batch_epoch(checkpoint, batch) == batch_epoch(checkpoint, batch - 1):
        return
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def read_fingerprint(checkpoint: AnyPath) -> tuple[Plan, str] | None:
    """The plan and the version of the code that wrote this checkpoint, None for one without a note."""
    path = checkpoint / FINGERPRINT
    if not path.exists():
        return None
    note = json.loads(path.read_text(encoding="utf-8"))
    if note.get("format") != FORMAT_VERSION:
        raise RunError(
            "LS0608",
            f"a checkpoint has format {note.get('format')}, this release reads {FORMAT_VERSION}",
            hint="run it with the release that wrote it, or start the job under another name.",
        )
    plan = note["plan"]
    assert isinstance(plan, dict)
    return plan, str(note["version"])


def written_by(checkpoint: Path) -> int | None:
    """The incarnation of its replica that writes this checkpoint, None for one without a note of it."""
    path = checkpoint / FINGERPRINT
    incarnation = json.loads(path.read_text(encoding="utf-8")).get("incarnation") if path.exists() else None
    return int(incarnation) if incarnation is not None else None


def write_fingerprint(checkpoint: AnyPath, plan: Plan, version: str, incarnation: int | None = None) -> None:
    """Note which plan, version of the code and incarnation write this checkpoint, before Spark does."""
    note = {"format": FORMAT_VERSION, "plan": plan, "version": version, "incarnation": incarnation}
    replace_file(checkpoint / FINGERPRINT, json.dumps(note).encode())


def set_aside(checkpoint: Path, incarnation: int) -> Path:
    """Move a checkpoint away, to be looked at; the newest few are kept."""
    name = f"{checkpoint.name}.set-aside-{incarnation}"
    # One start may take several seeds.
    numbered = (checkpoint.with_name(name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    target = next(path for path in numbered if not path.exists())
    checkpoint.rename(target)
    older = sorted(checkpoint.parent.glob(f"{checkpoint.name}.set-aside-*"), key=lambda path: path.stat().st_mtime)
    for path in older[:-_DAMAGED_KEPT]:
        shutil.rmtree(path)
    return target


def damaged(checkpoint: AnyPath, what: str) -> RunError:
    """The error for a checkpoint that must not be used."""
    return RunError(
        "LS0604",
        f"the checkpoint {checkpoint.parent.name}/{checkpoint.name} is damaged: {what}",
        why="a damaged checkpoint is never patched: the state in it could be silently wrong.",
        hint="Lockstep sets it aside and seeds the replica from a healthy peer, if there is one.",
    )


def _batches(folder: AnyPath) -> list[int]:
    return sorted(int(path.name) for path in entries(folder) if re.fullmatch(r"\d+", path.name))
