"""What a savepoint is on a disk: a folder that can be copied anywhere, whole or recognised as not whole.

    savepoint.json     what it is of, where it stands, and every other file with its hash; written last
    checkpoint[-N]/    the state of each stage after its epoch, as Spark keeps it
    journals/NAME.arrow  records on their way inside the job: between stages, and round a loop
    items.jsonl        what its sources have read, where positions alone do not say it (files, by name)

Nothing in the folder is trusted: its files are listed and hashed afresh, and compared with what savepoint.json says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import RunError, ServiceError
from lockstep.runtime.state.checkpoint import Plan
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.transfer.manifest import SnapshotFile, StageStanding, list_files
from lockstep.store.journal import Fence
from lockstep.store.protocols import Entry, Item

FORMAT_VERSION = 1
MANIFEST = "savepoint.json"
ITEMS = "items.jsonl"
JOURNALS_FOLDER = "journals"


@dataclass(frozen=True)
class KeptJournal:
    """The part of a journal inside the job that is still to be read."""

    name: str
    first: int
    fences: tuple[Fence, ...]

    @property
    def file(self) -> str:
        """Where its records are, below the savepoint's folder."""
        return f"{JOURNALS_FOLDER}/{self.name}.arrow"


@dataclass(frozen=True)
class Savepoint:
    """A named snapshot of a job that is kept."""

    id: str
    """Random: two savepoints of one name are not the same."""
    job: str
    name: str
    taken_us: int
    replica: str
    """Whose state it is, with its incarnation."""
    plan: Plan
    version: str
    environment: str
    facts: Mapping[str, str]
    """Facts of the job that its state depends on: into how many buckets its keys are divided."""
    stages: tuple[StageStanding, ...]
    entries: tuple[Entry, ...]
    """The ledger from the epoch of the stage furthest behind to that of the foremost."""
    observed: Mapping[str, Mapping[str, int | None]]
    """Epoch -> the highest event times that its records had."""
    journals: tuple[KeptJournal, ...]
    state_digests: Mapping[str, str]
    """Of the state after its epoch, where replicas had compared theirs at that very epoch."""
    files: tuple[SnapshotFile, ...]

    @property
    def epoch(self) -> int:
        """The newest epoch that all stages have computed: whoever starts from it goes on after this one."""
        return min(stage.epoch for stage in self.stages)

    @property
    def head(self) -> Entry:
        """The newest sealed epoch that some stage has computed."""
        return self.entries[-1]

    @property
    def size(self) -> int:
        """All bytes of it."""
        return sum(file.size for file in self.files)

    def write(self, folder: Path) -> None:
        """Note what the folder holds, as its last file."""
        text = json.dumps({"format": FORMAT_VERSION, **asdict(self)}, default=dict, sort_keys=True)
        (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_savepoint(folder: Path) -> Savepoint:
    """What a folder says it is; LS0722 if it is none, or of another format. Its files are not looked at."""
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = raw.pop("format")
        if version != FORMAT_VERSION:
            raise _no_savepoint(folder, f"it has format {version}, this release reads {FORMAT_VERSION}")
        return _parsed(raw)
    except FileNotFoundError:
        raise _no_savepoint(folder, f"there is no {MANIFEST} in it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _no_savepoint(folder, f"{MANIFEST} does not parse: {type(error).__name__}: {error}") from None


def verified(folder: Path) -> Savepoint:
    """The savepoint in a folder whose files are all there, as they were written, and no others."""
    found = read_savepoint(folder)
    try:
        there = {file.path: file for file in list_files(folder) if file.path != MANIFEST}
    except (OSError, RunError) as error:
        raise _no_savepoint(folder, str(error)) from None
    said = {file.path: file for file in found.files}
    wrong = sorted(path for path in there.keys() | said.keys() if there.get(path) != said.get(path))
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ServiceError(
            "LS0723",
            f"the savepoint in {folder} is not as it was taken",
            why=f"{wrong[0]} {_fault(wrong[0], said, there)}{more}.",
            hint="copy it again from where it was taken, or use another one: damaged state is never started from.",
        )
    folders = [path.name for path in checkpoint_folders(Path(), len(found.stages))]
    if [stage.folder for stage in found.stages] != folders:
        raise _no_savepoint(folder, "its stages are not those of a job")
    return found


def write_items(folder: Path, items: Iterator[Item]) -> None:
    """Keep what sources have read, one line each."""
    with (folder / ITEMS).open("w", encoding="utf-8") as file:
        for item in items:
            file.write(json.dumps([item.source, item.position, dict(item.body)], sort_keys=True) + "\n")


def read_items(folder: Path) -> list[Item]:
    """What :func:`write_items` kept."""
    with (folder / ITEMS).open(encoding="utf-8") as file:
        return [Item(*json.loads(line)) for line in file]


def _parsed(raw: dict[str, Any]) -> Savepoint:
    journals = [KeptJournal(**{**one, "fences": tuple(map(tuple, one["fences"]))}) for one in raw["journals"]]
    known = {
        **raw,
        "stages": tuple(StageStanding(**stage) for stage in raw["stages"]),
        "entries": tuple(Entry(**entry) for entry in raw["entries"]),
        "journals": tuple(journals),
        "files": tuple(SnapshotFile(**file) for file in raw["files"]),
    }
    found = Savepoint(**known)
    epochs = [entry.epoch for entry in found.entries]
    if not found.stages or epochs != list(range(found.epoch, max(one.epoch for one in found.stages) + 1)):
        raise ValueError(f"its entries are of the epochs {epochs}")
    if any(len(Path(one.name).parts) != 1 or one.name in (".", "..") for one in found.journals):
        raise ValueError("a journal of it has a name that is none")
    return found


def _fault(path: str, said: Mapping[str, SnapshotFile], there: Mapping[str, SnapshotFile]) -> str:
    if path not in there:
        return "is missing"
    return "has other content than its hash says" if path in said else "does not belong to it"


def _no_savepoint(folder: Path, why: str) -> ServiceError:
    return ServiceError(
        "LS0722",
        f"{folder} is no savepoint",
        why=f"{why}.",
        hint="`lockstep savepoints` lists those that are here; one from elsewhere is copied as a whole folder.",
    )
