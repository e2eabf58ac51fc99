"""Whether executors see what they have to see: a question in every shared place, answered there by each of them.

An executor that has another disk than the driver keeps state where nobody finds it again, and the job seems well until
its next restart. So the driver leaves a file in every place, each executor reads it and leaves one of its own beside
it, and the driver reads that. Light on purpose: this is loaded on executors.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.connect.disk import disk_trouble, entries, make_folders, remove_files
from lockstep.connect.remote.paths import AnyPath, RemotePath, location
from lockstep.errors import ConnectError, RunError

_PREFIX = ".lockstep-probe-"
_QUESTION = "question"
NAMES_MAX = 20
"""Names of an input folder that executors are asked about: files may come and go meanwhile, but not all of them."""
ANSWER_S_MAX = 10.0
"""How long an answer may be on its way: network file systems show a new file late."""
LEFT_S = 600.0
"""Asking takes seconds: what is older, nobody asks any more."""
_POLL_S = 0.05
_BOOT = Path("/proc/sys/kernel/random/boot_id")
SHARE_HINT = (
    "put the project's folder on a file system that the driver and all executors mount at the same path (NFS or the "
    'like); or keep checkpoints at an address (checkpoints = "hdfs://HOST:PORT/FOLDER" in lockstep.toml), and sources '
    "and sinks where all of them reach them; or use local masters, with as many replicas as you want copies, on "
    "several hosts if need be."
)


@dataclass(frozen=True)
class Place:
    """A folder that executors use: ``what`` is there. In one that they only read, nothing is written."""

    what: str
    folder: str
    read_only: bool = False


@dataclass(frozen=True)
class Asked:
    """What executors are asked; travels to them."""

    token: str
    written: tuple[Place, ...]
    read: tuple[tuple[Place, tuple[str, ...]], ...]
    """Folders, with some names that the driver sees in them."""

    def answered(self, executor: str) -> Answer:
        """What this executor sees. Called there."""
        from lockstep.runtime.spark.environment import environment_hash

        unseen = [(place.folder, why) for place in self.written if (why := self._why_unseen(place, executor))]
        unseen += [(place.folder, why) for place, names in self.read if (why := _why_not_read(place, names))]
        return Answer(executor, socket.gethostname(), machine(), str(Path.cwd()), environment_hash(), tuple(unseen))

    def _why_unseen(self, place: Place, executor: str) -> str:
        folder = self.folder(place)
        try:
            if (folder / _QUESTION).read_bytes() != self.token.encode():
                return "another file is there"
            (folder / executor).write_bytes(self.token.encode())
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        except ConnectError as error:
            return f"{error.code} {error.fact} ({error.why})"
        return ""

    def folder(self, place: Place) -> AnyPath:
        """Where question and answers of a place are."""
        return location(place.folder) / f"{_PREFIX}{self.token}"


@dataclass(frozen=True)
class Answer:
    """What one executor says."""

    executor: str
    host: str
    machine: str
    where: str
    """Its working folder, which no other executor of this host has."""
    environment: str
    unseen: tuple[tuple[str, str], ...]
    """The folders that it does not see, each with the reason."""


def machine() -> str:
    """Which kernel this is: its hosts may have several names, its processes several views of the disk."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def ask(places: Sequence[Place]) -> Asked:
    """Leave a question in every place; :func:`forget` takes them away."""
    written = tuple(place for place in places if not place.read_only)
    read = tuple((place, _some_names(place)) for place in places if place.read_only)
    asked = Asked(secrets.token_hex(8), written, read)
    for place in written:
        _sweep(location(place.folder))
        folder = asked.folder(place)
        with disk_trouble(folder):
            make_folders(folder)
            (folder / _QUESTION).write_bytes(asked.token.encode())
    return asked


def _sweep(folder: AnyPath) -> None:
    """Remove what a driver left that was killed meanwhile; other replicas may be asking at this moment.

    Remote systems are left alone: how old a file is there, is by another clock.
    """
    if isinstance(folder, RemotePath):
        return
    for left in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_S:
                shutil.rmtree(left)


def forget(asked: Asked) -> None:
    """Take questions and answers away."""
    for place in asked.written:
        folder = asked.folder(place)
        if isinstance(folder, RemotePath):
            with suppress(ConnectError, OSError):
                remove_files([*entries(folder), folder])
        else:
            shutil.rmtree(folder, ignore_errors=True)


def unshared(asked: Asked, answers: Sequence[Answer]) -> RunError | None:
    """The refusal if one of the executors does not share a place with the driver; None if all do."""
    kinds = {place.folder: place.what for place in (*asked.written, *(place for place, _ in asked.read))}
    for answer in answers:
        if answer.unseen:
            folder, why = answer.unseen[0]
            return _refused(answer, folder, f"{kinds[folder]}: there, {why}.")
        for place in asked.written:
            if not _arrives(asked.folder(place) / answer.executor, asked.token):
                why = "what the executor wrote there does not come to the driver"
                return _refused(answer, place.folder, f"{kinds[place.folder]}: {why}.")
    return None


def _refused(answer: Answer, folder: str, why: str) -> RunError:
    return RunError(
        "LS0690",
        f"executor {answer.executor} on host {answer.host} does not share {folder} with the driver",
        why=f"it is for {why} State that is kept on that host alone is lost with the executor.",
        hint=SHARE_HINT,
    )


def _arrives(path: AnyPath, token: str) -> bool:
    deadline_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < deadline_s:
        with suppress(OSError):
            if path.read_bytes() == token.encode():
                return True
        time.sleep(_POLL_S)
    return False


def _some_names(place: Place) -> tuple[str, ...]:
    with suppress(OSError), os.scandir(place.folder) as entries:
        return tuple(entry.name for entry, _ in zip(entries, range(NAMES_MAX), strict=False))
    return ()


def _why_not_read(place: Place, names: Sequence[str]) -> str:
    if not names or any((Path(place.folder) / name).exists() for name in names):
        return ""
    return f"it has no {names[0]}" if Path(place.folder).is_dir() else "there is no such folder"
