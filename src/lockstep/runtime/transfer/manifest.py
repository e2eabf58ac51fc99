"""What a snapshot on its way to another host consists of: its files with size and hash, where it stands, whose it is.

Whoever reads a manifest does not trust it: names stay inside the folder, and numbers within limits, before any of it is
acted on.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import Plan
from lockstep.store.protocols import Holder

FORMAT_VERSION = 1
FILES_MAX = 200_000
"""A stage has a few hundred files, and about ten for each partition of each store."""
BYTES_MAX = 2 * 2**40
"""A snapshot of more than that takes hours: it is a mistake, or not ours."""
MANIFEST_BYTES_MAX = 64 * 2**20
"""What 200,000 files of 300 bytes each take."""
ROOM_SPARE_BYTES = 64 * 2**20
"""What has to be free beyond a snapshot, for those who write beside it."""
_STAGE = re.compile(r"checkpoint(-\d{1,4})?")
_OFFER = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_HASH = re.compile(r"[0-9a-f]{64}")
_PATH_LENGTH_MAX = 1000


@dataclass(frozen=True)
class SnapshotFile:
    """One file of a snapshot; ``path`` begins with its stage's folder."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class StageStanding:
    """Where the checkpoint of one stage stands."""

    folder: str
    batch: int
    epoch: int


@dataclass(frozen=True)
class Wanted:
    """Whose snapshot is asked for."""

    job: str
    replica: str
    incarnation: int

    def __post_init__(self) -> None:
        for name in (self.job, self.replica):
            _require(_NAME.fullmatch(name) is not None, f'"{name}" is no name of a job or a replica')
        _require(_is_count(self.incarnation), f"{self.incarnation} is no incarnation")

    @property
    def holder(self) -> Holder:
        """The replica and its start."""
        return Holder(self.replica, self.incarnation)


@dataclass(frozen=True)
class Manifest:
    """A whole snapshot."""

    wanted: Wanted
    environment: str
    plan: Plan
    version: str
    stages: tuple[StageStanding, ...]
    files: tuple[SnapshotFile, ...]

    def __post_init__(self) -> None:
        folders = [stage.folder for stage in self.stages]
        _require(bool(folders) and len(set(folders)) == len(folders), "it has no stage, or one twice")
        for stage in self.stages:
            _require(_STAGE.fullmatch(stage.folder) is not None, f'"{stage.folder}" is no folder of a stage')
            _require(_is_count(stage.batch) and _is_count(stage.epoch), f"{stage.folder} stands nowhere")
        _require(len(self.files) <= FILES_MAX, f"it has {len(self.files):,} files, more than {FILES_MAX:,}")
        for file in self.files:
            _check_file(file, folders)
        _require(self.size <= BYTES_MAX, f"it has {self.size:,} bytes, more than {BYTES_MAX:,}")
        _check_distinct([file.path for file in self.files])

    @property
    def size(self) -> int:
        """All bytes of it."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        """As it is sent."""
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}).encode()

    @staticmethod
    def decode(data: bytes) -> Manifest:
        """Read what a host sent; LS0663 for what no snapshot can be."""
        try:
            raw = json.loads(data)
            _require(isinstance(raw, dict) and raw.pop("format", None) == FORMAT_VERSION, "it has another format")
            return Manifest(
                wanted=Wanted(**raw["wanted"]),
                environment=str(raw["environment"]),
                plan=_mapping(raw["plan"]),
                version=str(raw["version"]),
                stages=tuple(StageStanding(**stage) for stage in raw["stages"]),
                files=tuple(SnapshotFile(**file) for file in raw["files"]),
            )
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise refused(f"it does not parse: {type(error).__name__}: {error}") from None


def list_files(folder: Path) -> tuple[SnapshotFile, ...]:
    """Every file below a folder, with its hash, in order; anything but plain files and folders is refused."""
    found = []
    for path in sorted(folder.rglob("*")):
        _require(not path.is_symlink() and (path.is_file() or path.is_dir()), f"{path} is no plain file")
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                found.append(SnapshotFile(path.relative_to(folder).as_posix(), file.tell(), digest))
    return tuple(found)


def check_room(folder: Path, needed_bytes: int) -> None:
    """Refuse to begin what the disk cannot hold."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + ROOM_SPARE_BYTES:
        raise RunError(
            "LS0664",
            f"there is no room for a snapshot in {folder}",
            why=f"it takes {needed_bytes:,} bytes, {free:,} are free, and {ROOM_SPARE_BYTES:,} of them stay so.",
            hint="make room on this disk; the replica is tried again after a pause.",
        )


def is_offer(text: str) -> bool:
    """Whether a text may be the name of an offer.

    >>> is_offer("0" * 32), is_offer("../etc")
    (True, False)
    """
    return _OFFER.fullmatch(text) is not None


def refused(reason: str) -> RunError:
    """The error for a manifest (or a question for one) that must not be acted on."""
    return RunError(
        "LS0663",
        "what a host sent is no snapshot",
        why=f"{reason}.",
        hint="are both hosts on the same release? `lockstep --version` tells; else see who answers at that address.",
    )


def _check_file(file: SnapshotFile, folders: Sequence[str]) -> None:
    _require(isinstance(file.path, str) and isinstance(file.sha256, str), "a file has no name or no hash")
    # As it is written, not as it is understood: "a//b" and "a/./b" would be other names of "a/b".
    parts = file.path.split("/")
    odd = any(part in ("", ".", "..") for part in parts) or not file.path.isprintable() or "\\" in file.path
    _require(not odd and len(file.path) <= _PATH_LENGTH_MAX, f"{file.path!r} is no name of a file in it")
    _require(len(parts) > 1 and parts[0] in folders, f'"{file.path}" belongs to no stage')
    _require(_is_count(file.size), f'"{file.path}" has no size')
    _require(_HASH.fullmatch(file.sha256) is not None, f'"{file.path}" has no hash')


def _check_distinct(paths: Sequence[str]) -> None:
    there = set(paths)
    _require(len(there) == len(paths), "it has a file twice")
    above = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
    _require(not there & above, "a file has the name of a folder")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _mapping(value: object) -> dict[str, Any]:
    _require(isinstance(value, Mapping), "its plan is none")
    assert isinstance(value, dict)
    return value


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise refused(reason)
