"""Looking into a folder: which files are there, and which of them are finished."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lockstep.connect.disk import disk_trouble
from lockstep.connect.sources.chunks import FileLook

LOOK_INTERVAL_S = 0.2
_LOOK_SHARE = 5
"""A look that took t is not repeated within 5 t: a folder of 100,000 files must not keep a core busy."""


@dataclass(frozen=True)
class _Seen:
    size: int
    mtime_ns: int
    since_us: int


class Watch:
    """One folder's files, listed at most every ``LOOK_INTERVAL_S``, and since when each has not changed."""

    def __init__(self, folder: Path, pattern: str, still_for_us: int) -> None:
        self._folder = folder
        self._pattern = pattern
        self._still_for_us = still_for_us
        self._seen: dict[str, _Seen] = {}
        self._looks: list[FileLook] = []
        self._finished: set[str] = set()
        self._look_again_at_s = 0.0

    def look(self, now_us: int) -> list[FileLook]:
        """All files in the folder, oldest first: the same order for whoever looks."""
        started_s = time.monotonic()
        if started_s >= self._look_again_at_s:
            with disk_trouble(self._folder):
                self._looks = list_files(self._folder, self._pattern)
            self._judge(now_us)
            ended_s = time.monotonic()
            self._look_again_at_s = ended_s + max(LOOK_INTERVAL_S, _LOOK_SHARE * (ended_s - started_s))
        return self._looks

    def is_finished(self, look: FileLook) -> bool:
        """Whether the file had been still for long enough at the last look."""
        return look.path in self._finished

    def look_soon(self) -> None:
        """Forget the last look: something was not as it showed."""
        self._look_again_at_s = 0.0

    def _judge(self, now_us: int) -> None:
        """A file is finished if it was not modified for ``still_for`` and two looks agree.

        One look is enough for a file that was old already when it first appeared: it came by rename, or was there
        before us. A file whose time lies in the future counts from when we first saw it so.
        """
        seen, finished = {}, set()
        for look in self._looks:
            before = self._seen.get(look.path)
            same = before is not None and (before.size, before.mtime_ns) == (look.size, look.mtime_ns)
            since_us = before.since_us if before is not None and same else now_us
            old = now_us - look.mtime_ns // 1000 >= self._still_for_us
            watched = now_us - since_us >= self._still_for_us
            if (old and (before is None or same)) or (same and watched):
                finished.add(look.path)
            seen[look.path] = _Seen(look.size, look.mtime_ns, since_us)
        self._seen, self._finished = seen, finished


def list_files(folder: Path, pattern: str = "*") -> list[FileLook]:
    """The regular files below ``folder`` with content, by modification time, then path. An absent folder is empty.

    Names that begin with "." or "_" or end in ".tmp" are somebody's work under way, and are left alone.
    """
    looks = list(_walk(folder, "", pattern, os.path.realpath(folder))) if folder.exists() else []
    return sorted(looks, key=lambda look: (look.mtime_ns, look.path))


def _walk(folder: Path, below: str, pattern: str, root: str) -> Iterator[FileLook]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith((".", "_")) or entry.name.endswith(".tmp"):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{below}{entry.name}/", pattern, root)
        elif fnmatchcase(entry.name, pattern) and (look := _look_at(entry, below, root)):
            yield look


def _look_at(entry: os.DirEntry[str], below: str, root: str) -> FileLook | None:
    try:
        if not entry.is_file() or (entry.is_symlink() and not _stays_inside(entry.path, root)):
            return None
        stat = entry.stat()
    except FileNotFoundError:
        return None
    # An empty file has no records, and may be one that is about to be written: nothing is lost by waiting.
    if stat.st_size == 0:
        return None
    return FileLook(below + entry.name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns // 1000)


def _stays_inside(path: str, root: str) -> bool:
    return os.path.realpath(path).startswith(root + os.sep)
