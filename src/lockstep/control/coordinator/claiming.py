"""The right to supervise a job: a lock among processes of this host, a lease among hosts, and a term of one's own.

The lease is renewed by a thread while a run is prepared; from then on the supervisor does it itself.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from lockstep.agent.leftovers import end_blocker
from lockstep.control.coordinator.taking_over import LEASE_S, take_over
from lockstep.errors import RunError, StoreError
from lockstep.runtime.desired_run import LEASE
from lockstep.runtime.steps import run
from lockstep.store.home import job_folder
from lockstep.store.opening import lock_file
from lockstep.store.protocols import Store

_LOCK = "supervisor.lock"
_LEASE_LOOK_S = 1.0
"""How often whoever waits for the lease asks whether to go on waiting; a lease that becomes free is noticed at once."""


class Claim:
    """Held until it is given back."""

    def __init__(self, store: Store, identity: str, term: int, lock: IO[str] | None) -> None:
        self.store, self.identity, self.term = store, identity, term
        self._lock = lock

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Keep the lease while something takes long."""
        ended = threading.Event()
        thread = threading.Thread(target=self._renew, args=[ended], name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(LEASE_S / 4):
            try:
                self.store.acquire(LEASE, self.identity, LEASE_S)
            except StoreError:
                continue  # whoever prepares the run meets the same trouble

    def give_back(self) -> None:
        """The run was refused."""
        self.store.release(LEASE, self.identity)
        self.close()

    def close(self) -> None:
        """Unlock the job on this host; the lease was released by the supervisor, or is another one's."""
        if self._lock is not None:
            self._lock.close()


def claim_here(store: Store, address: str, home: Path, job: str, *, replace: bool) -> Claim:
    """The claim on a job whose store is a file of this host. LS0610 if somebody has it, unless it is to be replaced."""
    identity = str(os.getpid())
    replaced = _supervisor_pid(home, job) if replace else None
    lock = _locked(home, store, job, replace=replace)
    try:
        blocker = partial(end_blocker, lock_file(address, job), job_folder(home, job), replaced)
        return Claim(store, identity, run(take_over(store, identity, blocker)), lock)
    except BaseException:
        lock.close()
        raise


def claim_anywhere(store: Store, job: str, *, replace: bool) -> Claim:
    """The claim on a job whose store several hosts share: its lease, which a killed supervisor has for some seconds."""
    identity = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
    if replace and (holder := store.holder(LEASE)) is not None:
        store.release(LEASE, holder)
    if not _acquired(store, identity, lambda waited_s: waited_s < LEASE_S):
        raise runs_already(store, f'job "{job}" is already running, perhaps on another host')
    return Claim(store, identity, run(take_over(store, identity, lambda: None, is_shared=True)), None)


def claim_when_free(store: Store, identity: str, is_wanted: Callable[[], bool]) -> Claim | None:
    """Wait until nobody holds the job, however long; None once it is not wanted any more."""
    if not _acquired(store, identity, lambda _: is_wanted()):
        return None
    return Claim(store, identity, run(take_over(store, identity, lambda: None, is_shared=True)), None)


def _acquired(store: Store, identity: str, go_on: Callable[[float], bool]) -> bool:
    """Asked before each try: whoever takes the lease of a job that is not wanted is in the way of those who end it."""
    begun_s = time.monotonic()
    while go_on(time.monotonic() - begun_s):
        if store.acquire(LEASE, identity, LEASE_S):
            return True
        store.wait_until_free(LEASE, _LEASE_LOOK_S)
    return False


def _locked(folder: Path, store: Store, job: str, *, replace: bool) -> IO[str]:
    """Hold the job for as long as this process lives, also while it is suspended and its lease expires.

    Whoever replaces another one locks a new file: the other keeps a lock that nobody asks for any more.
    """
    own = job_folder(folder, job)
    own.mkdir(parents=True, exist_ok=True)
    path = own / _LOCK
    if replace:
        path.unlink(missing_ok=True)
    handle = path.open("a", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise runs_already(store, f'job "{job}" is already running in this folder') from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


def _supervisor_pid(folder: Path, job: str) -> int | None:
    """Who locked the job last on this host; its lease may have expired long ago."""
    try:
        return int((job_folder(folder, job) / _LOCK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def runs_already(store: Store, fact: str) -> RunError:
    """Somebody else supervises the job."""
    return RunError(
        "LS0610",
        fact,
        why=f"process {store.holder(LEASE) or '(unknown)'} supervises it.",
        hint="stop it first (Ctrl-C there), look at it with `lockstep status`, or supervise the job from here, "
        "without a pause, with --take-over.",
    )
