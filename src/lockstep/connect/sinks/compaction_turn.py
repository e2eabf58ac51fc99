"""Who may compact a sink: one at a time, because each removes what the other may be about to name.

On this host's disk it is a file lock, which goes with its process. Other systems have no such thing: there it is a file
that is created once and removed at the end. One that was left by a crash is broken when it is so old that whoever made
it has given up; whoever holds it looks whether it still does before it publishes or removes anything.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from lockstep.clock import Clock, wall_us
from lockstep.connect.disk import put_if_absent
from lockstep.connect.remote.paths import AnyPath, RemotePath

HELD_S_MAX = 1800.0
"""A turn that takes longer is given up; what it has merged stays merged."""
BROKEN_US_MIN = 7_200_000_000
"""A lock is broken when it is that old: four times as old as a turn may become, for clocks that differ."""
LOCK = "compaction.lock"


class TurnLost(Exception):
    """Another one may be compacting by now."""


class Turn(Protocol):
    """The right to compact."""

    def check(self) -> None:
        """TurnLost if it is ours no more. To be called right before anything that others would see."""


@contextmanager
def turn(control: AnyPath, clock: Clock = wall_us) -> Iterator[Turn | None]:
    """The right to compact the sink with this control folder, None if another one has it."""
    if isinstance(control, RemotePath):
        with _remote_turn(control / LOCK, clock) as mine:
            yield mine
    else:
        with _local_turn(control / LOCK) as mine:
            yield mine


class _Locked:
    def check(self) -> None:
        """The lock is ours for as long as this process lives."""


@contextmanager
def _local_turn(path: Path) -> Iterator[Turn | None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _Locked() if _lock(handle) else None
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Held:
    def __init__(self, path: RemotePath, said: bytes) -> None:
        self._path, self._said = path, said
        self._until_s = time.monotonic() + HELD_S_MAX

    def check(self) -> None:
        """Ours if the file still says so, and if nobody can have broken it yet."""
        if time.monotonic() > self._until_s or _said(self._path) != self._said:
            raise TurnLost(f"{self._path} is held by another one")

    def leave(self) -> None:
        """Let others in."""
        if _said(self._path) == self._said:
            self._path.unlink()


@contextmanager
def _remote_turn(path: RemotePath, clock: Clock) -> Iterator[Turn | None]:
    found = _said(path)
    if found is not None and clock() - _since_us(found) > BROKEN_US_MIN:
        # Two may do so at once, and one remove the other's: then that one finds it when it checks.
        path.unlink()
    token = secrets.token_hex(8)
    said = json.dumps({"by": f"{socket.gethostname()}-{os.getpid()}-{token}", "since_us": clock()}).encode()
    if not put_if_absent(path, path.with_name(f"{LOCK}.{token}.tmp"), said):
        yield None
        return
    held = _Held(path, said)
    try:
        yield held
    finally:
        held.leave()


def _said(path: RemotePath) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _since_us(said: bytes) -> int:
    return int(json.loads(said)["since_us"])
