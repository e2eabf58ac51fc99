"""Leases in SQLite. Expiry is by the machine's clock: all holders are on one machine, as the file is."""

from __future__ import annotations

import sqlite3
import time

from lockstep.clock import US_PER_S
from lockstep.store.database import Part

POLL_S = 0.1
LEASES_TABLES = (
    "CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, expires_us INTEGER NOT NULL) WITHOUT ROWID",
)


class SqliteLeases(Part):
    """Implements :class:`lockstep.store.protocols.Leases`."""

    def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew ``name`` for ``holder``; False if someone else holds it and it has not expired."""
        with self._database.durable() as connection:
            now_us = self._clock()
            if _holder(connection, name, now_us) not in (None, holder):
                return False
            expires_us = now_us + round(ttl_s * US_PER_S)
            connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (name, holder, expires_us))
            return True

    def release(self, name: str, holder: str) -> None:
        """Give ``name`` back, if ``holder`` has it."""
        with self._database.durable() as connection:
            connection.execute("DELETE FROM leases WHERE name = ? AND holder = ?", (name, holder))

    def holder(self, name: str) -> str | None:
        """Who holds ``name`` now, None if nobody or expired."""
        with self._database.reading() as connection:
            return _holder(connection, name, self._clock())

    def wait_until_free(self, name: str, timeout_s: float) -> None:
        """Block while somebody holds ``name``, at most ``timeout_s``. It may expire without anything being written."""
        give_up_at_s = time.monotonic() + timeout_s
        while self.holder(name) is not None and (left_s := give_up_at_s - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left_s))


def _holder(connection: sqlite3.Connection, name: str, now_us: int) -> str | None:
    query = "SELECT holder FROM leases WHERE name = ? AND expires_us > ?"
    row = connection.execute(query, (name, now_us)).fetchone()
    return str(row[0]) if row else None
