"""The receiving side: a snapshot from another host, whole and as it was sent, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.errors import RunError
from lockstep.runtime.transfer.client import CHUNK_BYTES, HostClient
from lockstep.runtime.transfer.manifest import Manifest, SnapshotFile, Wanted, check_room
from lockstep.runtime.transfer.serving import PREFIX

TELL_INTERVAL_S = 10.0
"""A transfer that takes longer than this says how far it is, so often."""
TAKING_S_MAX = 900.0
"""How long the other host may take for its own copy."""
_POLL_S = 0.2
_TRIES_PER_FILE = 2
"""Bytes that changed on their way are right the second time; those that changed on a disk are not."""


@dataclass(frozen=True)
class Fetched:
    """How far a transfer is."""

    done_bytes: int
    all_bytes: int

    def __str__(self) -> str:
        """Megabytes, for people.

        >>> str(Fetched(1_500_000, 3_000_000))
        '1.5 of 3.0 MB'
        """
        return f"{self.done_bytes / 1e6:.1f} of {self.all_bytes / 1e6:.1f} MB"


class Pace:
    """Lets no more than so many bytes pass in a second, on average; 0: as many as come."""

    def __init__(
        self,
        bytes_per_s: int = 0,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._now_s = now_s
        self._sleep = sleep
        self._due_s = 0.0

    def took(self, size: int) -> None:
        """So many bytes have come: wait as long as they should have taken."""
        if self._bytes_per_s <= 0:
            return
        now_s = self._now_s()
        self._due_s = max(self._due_s, now_s) + size / self._bytes_per_s
        self._sleep(self._due_s - now_s)


def ask_for(host: HostClient, wanted: Wanted) -> str:
    """Let a host take a snapshot; the name of its offer."""
    offer = uuid.uuid4().hex
    host.ask("PUT", _path(offer), json.dumps(asdict(wanted)).encode())
    return offer


def manifest_of(host: HostClient, offer: str) -> tuple[Manifest, bytes]:
    """What an offer consists of, as soon as it is there; also as it was sent."""
    deadline_s = time.monotonic() + TAKING_S_MAX
    while True:
        status, data = host.ask("GET", _path(offer))
        if status != 202:
            return Manifest.decode(data), data
        if time.monotonic() > deadline_s:
            raise RunError(
                "LS0660",
                f"the host at {host.address} does not get its snapshot ready",
                why=f"it has been at it for {TAKING_S_MAX:g} s.",
                hint="is its disk very slow or full? See `lockstep doctor` there.",
            )
        time.sleep(_POLL_S)


def receive(
    host: HostClient,
    offer: str,
    target: Path,
    check: Callable[[Manifest], None],
    *,
    pace: Pace | None = None,
    tell: Callable[[Fetched], None] | None = None,
) -> Manifest:
    """Fetch an offer and put it at ``target`` as a whole, in place of what is there.

    ``check`` raises if it is not a snapshot to start from. It is asked twice: before anything is fetched, and when all
    is here, as its owner may have been retired meanwhile. What has come stays beside ``target`` if this fails, and the
    same offer is fetched on from there.
    """
    manifest, data = manifest_of(host, offer)
    check(manifest)
    work = _Work(target.with_name(f"{target.name}.receiving"), offer.encode() + b"\n" + data)
    check_room(work.folder, manifest.size - work.size())
    transfer = _Transfer(host, offer, manifest, work, pace or Pace(), tell)
    for number in range(len(manifest.files)):
        transfer.fetch(number)
    check(manifest)
    work.put_in_place(target)
    with suppress(RunError):
        # All of it is here: a host that dies now takes nothing away. Its copy goes when the lease is over.
        host.ask("DELETE", _path(offer), patience_s=0)
    return manifest


class _Work:
    """What has come so far: whole files under their names, and the one that is under way under its number."""

    def __init__(self, folder: Path, note: bytes) -> None:
        self.folder = folder
        self.files = folder / "files"
        noted = folder / "offer"
        if not noted.exists() or noted.read_bytes() != note:
            shutil.rmtree(folder, ignore_errors=True)
            self.files.mkdir(parents=True, mode=0o700)
            noted.write_bytes(note)

    def size(self) -> int:
        return sum(path.lstat().st_size for path in self.folder.rglob("*") if path.is_file())

    def part(self, number: int) -> Path:
        return self.folder / f"{number}.part"

    def put_in_place(self, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        self.files.rename(target)
        shutil.rmtree(self.folder)


class _Transfer:
    """The files of one offer, one after the other."""

    def __init__(
        self,
        host: HostClient,
        offer: str,
        manifest: Manifest,
        work: _Work,
        pace: Pace,
        tell: Callable[[Fetched], None] | None,
    ) -> None:
        self._host = host
        self._offer = offer
        self._manifest = manifest
        self._work = work
        self._pace = pace
        self._tell = tell
        self._done_bytes = 0
        self._told_s = time.monotonic()

    def fetch(self, number: int) -> None:
        """Fetch a file, unless it is here from before; LS0662 if it is not what the manifest says."""
        file = self._manifest.files[number]
        final = self._work.files.joinpath(*file.path.split("/"))
        if final.exists():
            # It was checked before it got this name.
            self._took(file.size)
            return
        if not any(self._is_right(number, file) for _ in range(_TRIES_PER_FILE)):
            raise RunError(
                "LS0662",
                f"{file.path} of a snapshot from {self._host.address} is not what was sent",
                why=f"its SHA-256 differs from the one in the manifest, in {_TRIES_PER_FILE} tries.",
                hint="the disk or the memory of one of the two hosts may be failing: look at their logs (dmesg).",
            )
        final.parent.mkdir(parents=True, exist_ok=True)
        self._work.part(number).rename(final)

    def _is_right(self, number: int, file: SnapshotFile) -> bool:
        part = self._work.part(number)
        before = self._done_bytes
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "r+b") as out:
            digest, have = hashlib.sha256(), 0
            while data := out.read(CHUNK_BYTES):
                digest.update(data)
                have += len(data)
            self._took(have)
            for data in self._host.read(f"{_path(self._offer)}/files/{number}", have, file.size):
                out.write(data)
                digest.update(data)
                self._took(len(data))
                self._pace.took(len(data))
        if digest.hexdigest() == file.sha256:
            return True
        part.unlink()
        self._done_bytes = before
        return False

    def _took(self, size: int) -> None:
        self._done_bytes += size
        if self._tell is not None and time.monotonic() - self._told_s >= TELL_INTERVAL_S:
            self._told_s = time.monotonic()
            self._tell(Fetched(self._done_bytes, self._manifest.size))


def _path(offer: str) -> str:
    return f"{PREFIX}offers/{offer}"
