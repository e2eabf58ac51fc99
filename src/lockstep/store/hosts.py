"""The registry of hosts beside embedded stores: a table of who was announced until when, by this machine's clock."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.store.database import Database, Format, run_all
from lockstep.store.protocols import ANNOUNCED_S

HOSTS_FILE = "hosts.db"


def _create_tables(connection: sqlite3.Connection) -> None:
    columns = "host TEXT PRIMARY KEY, body TEXT NOT NULL, until_us INTEGER NOT NULL"
    run_all(connection, [f"CREATE TABLE hosts ({columns}) WITHOUT ROWID"])


HOSTS_FORMAT = Format("registry of hosts", int.from_bytes(b"LkHs"), (_create_tables,))


class SqliteHosts:
    """Implements :class:`lockstep.store.protocols.Hosts`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hosts = SqliteHosts(Path(folder))
    ...     hosts.announce("h1", {"cores": 2})
    ...     hosts.hosts()
    ...     hosts.close()
    {'h1': {'cores': 2}}
    """

    def __init__(self, folder: Path, clock: Clock = wall_us) -> None:
        self._database = Database(folder / HOSTS_FILE, HOSTS_FORMAT)
        self._clock = clock

    def announce(self, host: str, body: Mapping[str, Any]) -> None:
        """``host`` lives, and has this to say of itself."""
        until_us = self._clock() + round(ANNOUNCED_S * US_PER_S)
        with self._database.relaxed() as connection:
            values = (host, json.dumps(dict(body), sort_keys=True), until_us)
            connection.execute("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?)", values)

    def withdraw(self, host: str) -> None:
        """``host`` leaves."""
        with self._database.relaxed() as connection:
            connection.execute("DELETE FROM hosts WHERE host = ?", (host,))

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The living ones by name, with what they said last."""
        query = "SELECT host, body FROM hosts WHERE until_us > ? ORDER BY host"
        with self._database.reading() as connection:
            return {host: json.loads(body) for host, body in connection.execute(query, (self._clock(),))}

    def close(self) -> None:
        """Give the file back."""
        self._database.close()
