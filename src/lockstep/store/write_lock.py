"""Which process holds the write lock of a SQLite file, as the kernel knows it; SQLite itself does not tell."""

from __future__ import annotations

from pathlib import Path

LOCKS = Path("/proc/locks")
_WRITE_LOCK_BYTE = "120"
"""Of the shared memory file beside a database with a write-ahead log: the first of its eight lock bytes."""


def write_lock_pid(database: Path, locks: Path = LOCKS) -> int | None:
    """Who holds the write lock of ``database`` now; None if nobody does, or if this system does not tell.

    The list is read rather than the lock asked for: closing a file takes back every lock that this process has on it,
    those of its own connections too.
    """
    try:
        inode = str(database.with_name(f"{database.name}-shm").stat().st_ino)
        lines = locks.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        # "7: POSIX  ADVISORY  WRITE 4711 08:01:1234 120 120". The device is not compared: a file system of several
        # disks gives one number there and another to stat.
        words = line.split()
        if len(words) == 8 and words[1] == "POSIX" and words[3] == "WRITE" and words[6] == _WRITE_LOCK_BYTE:
            pid, place = int(words[4]), words[5]
            if place.rpartition(":")[2] == inode and pid > 0:
                return pid
    return None
