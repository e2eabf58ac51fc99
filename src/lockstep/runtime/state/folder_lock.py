"""Holding a replica's folder, so that one process at a time works with its checkpoint."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import IO

_POLL_S = 0.05


def locked(path: Path, drain: threading.Event) -> IO[str] | None:
    """Hold the replica's folder: two processes on one checkpoint would ruin it. Waits for one that is ending.

    None if it is told to drain before, or its supervisor is gone: the next one knows nothing of this process.
    """
    handle = path.open("a", encoding="utf-8")
    while not drain.is_set():
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            drain.wait(_POLL_S)
            continue
        # Whose it is, for people: a replica that was a spare has another name in the list of processes.
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        return handle
    handle.close()
    return None
