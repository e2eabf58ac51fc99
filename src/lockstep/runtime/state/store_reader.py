"""Reads the state stores of a checkpoint while its replica writes on: without a JVM, and without asking the replica.

A version of a store is a base (RocksDB's own files) and the changes since (``store_files.py``). The base is opened by
links to its files in a folder of the reader's own, so that Spark may delete it; changes are kept in memory. Moving on
to a newer version costs what has changed.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.runtime.state.changelog import changes
from lockstep.runtime.state.store_files import NAMED, base_of

CHANGES_MAX = 200_000
"""So many changed keys are kept in memory at most before a newer base is opened, if there is one."""


class StoreReader:
    """One partition of one store, at the version it was last moved to."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self._base = 0
        self._opened: Any = None
        self._changed: dict[bytes, bytes | None] = {}
        self.version = 0

    def move_to(self, version: int) -> None:
        """Read what leads to ``version``. FileNotFoundError if Spark has deleted some of it meanwhile."""
        base = base_of([path.name for path in self._folder.iterdir()], version)
        outgrown = len(self._changed) > CHANGES_MAX and base > self._base
        if version < self.version or outgrown or base > self.version:
            self._open(base)
        for number in range(self.version + 1, version + 1):
            self._changed.update(changes(self._folder / f"{number}.changelog"))
            self.version = number

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        if key in self._changed:
            return self._changed[key]
        found = self._opened.get(key) if self._opened is not None else None
        return None if found is None else bytes(found)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key and its value, in no order."""
        for key, value in self._changed.items():
            if value is not None:
                yield key, value
        if self._opened is None:
            return
        for key, value in self._opened.items():
            if key not in self._changed:
                yield bytes(key), bytes(value)

    def close(self) -> None:
        """Give the files back."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _open(self, base: int) -> None:
        self.close()
        self._changed, self.version, self._base = {}, base, base
        if base == 0:
            return
        # Imported late: whoever does not look into state does not load RocksDB.
        from rocksdict import AccessType, Options, Rdict

        self._lay_out(base)
        options = Options(raw_mode=True)
        options.create_if_missing(False)
        self._opened = Rdict(str(self._scratch), options, access_type=AccessType.read_only(False))

    def _lay_out(self, base: int) -> None:
        """The base as RocksDB had it: small files out of the zip, large ones by link under their old names."""
        self._scratch.mkdir(parents=True)
        with zipfile.ZipFile(self._folder / f"{base}.zip") as archive:
            for name in archive.namelist():
                if name != "metadata":
                    (self._scratch / Path(name).name).write_bytes(archive.read(name))
            note = json.loads(archive.read("metadata").decode().partition("\n")[2])
        for files, field, folder in NAMED:
            for one in note.get(files) or ():
                _link(self._folder / folder / one[field], self._scratch / Path(one["localFileName"]).name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(source, target)
