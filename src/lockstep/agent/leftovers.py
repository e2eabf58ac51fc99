"""Processes of this host that nobody holds: those of an agent that died, and whoever keeps the store locked."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.agent.processes import kill_tree
from lockstep.store.write_lock import write_lock_pid

PATIENCE_S = 5.0
"""Replicas whose agent died notice it, finish their epoch and end by themselves."""
_STARTED = "lockstep.runtime.start"


def leftovers(job_folder: Path) -> list[psutil.Process]:
    """The drivers of replicas and spares of a job that run now: told by what they were started with, not by a pid."""
    return [one for one in psutil.process_iter() if _is_driver(one, job_folder)]


def end_leftovers(job_folder: Path, patience_s: float = PATIENCE_S) -> list[int]:
    """Wait until those that an earlier agent left have ended, and end the others; who was there."""
    left = leftovers(job_folder)
    _, stuck = psutil.wait_procs(left, timeout=patience_s)
    for one in stuck:
        kill_tree(one.pid)
    return [one.pid for one in left]


def end_blocker(database: Path | None, job_folder: Path, replaced: int | None = None) -> int | None:
    """End a replica that is stopped inside a transaction, before anybody waits for the store; its pid if there is one.

    Its agent, if it has one, sees it end; it could not be asked by whoever has no term yet. ``replaced`` is a
    supervisor whose place is being taken: stopped there, it would keep everybody waiting. Its agent lives on.
    """
    holder = lock_holder(database)
    if holder is None or not holder.stopped:
        return None
    if replaced is not None and holder.pids[0] == replaced:
        with suppress(ProcessLookupError):
            os.kill(replaced, signal.SIGKILL)
        return replaced
    for pid in holder.pids:
        try:
            if _is_driver(psutil.Process(pid), job_folder):
                kill_tree(pid)
                return pid
        except psutil.NoSuchProcess:
            continue
    return None


def _is_driver(process: psutil.Process, job_folder: Path) -> bool:
    try:
        words = process.cmdline()
        ours = _STARTED in words and Path(words[-1]).is_relative_to(job_folder)
        return ours and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@dataclass(frozen=True)
class LockHolder:
    """The process that holds a store's write lock."""

    pids: tuple[int, ...]
    """Its own process id and those of the processes above it: one of them may be a replica's driver."""
    stopped: bool


def lock_holder(database: Path | None) -> LockHolder | None:
    """Who holds the write lock of a store's file now, without asking the store; None if nobody, or nobody knows.

    A store that is no file on this host has no such lock.
    """
    pid = write_lock_pid(database) if database is not None else None
    try:
        if pid is None or pid == os.getpid():
            return None
        process = psutil.Process(pid)
        above = [one.pid for one in process.parents()]
        return LockHolder((pid, *above), process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP))
    except psutil.Error:
        return None  # it has just ended, and its lock with it
