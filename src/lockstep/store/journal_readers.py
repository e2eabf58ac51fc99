"""Who on this host reads a journal, and down to where each still needs it.

A journal is files of this host, so its readers are noted on this host too: each job in the embedded store of its own
folder, also a job whose ledger is in a coordination service. While one of these files cannot be read, nobody knows
what its job needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lockstep.store import sqlite_store
from lockstep.store.home import list_job_folders
from lockstep.store.protocols import Store


class JournalReaders:
    """The floors of one journal, as one job notes and reads them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     readers = [JournalReaders(Path(folder), job, "logins") for job in ("a", "b")]
    ...     readers[0].begin({"0": 5}), readers[1].begin({"0": 7})
    ...     readers[0].move({"0": 9})
    ...     readers[0].floors()
    ...     [one.close() for one in readers]
    (None, None)
    [{'0': 9}, {'0': 7}]
    [None, None]
    """

    def __init__(self, home: Path, job: str, journal: str) -> None:
        self._home = home
        self._job = job
        self._key = f"journal-floor:{journal}"
        self._store: Store | None = None

    def begin(self, floor: Mapping[str, int]) -> None:
        """This job reads the journal from here on; nothing happens if it did before."""
        self._opened().put_fact_if_absent(self._key, json.dumps(dict(floor)))

    def move(self, floor: Mapping[str, int]) -> None:
        """This job needs nothing below these positions any more."""
        self._opened().set_fact(self._key, json.dumps(dict(floor)))

    def floors(self) -> list[dict[str, int]]:
        """What each job that reads the journal needs; a :class:`StoreError` if one of them cannot be asked."""
        facts = (sqlite_store.peek_fact(self._home, job, self._key) for job in list_job_folders(self._home))
        return [{str(each): int(position) for each, position in json.loads(fact).items()} for fact in facts if fact]

    def close(self) -> None:
        """Give the file back."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self) -> Store:
        if self._store is None:
            self._store = sqlite_store.open_store(self._home, self._job)
        return self._store
