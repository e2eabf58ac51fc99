"""Facts in SQLite: a few durable keys and values."""

from __future__ import annotations

import sqlite3

from lockstep.store.database import Part

FACTS_TABLES = ("CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",)


class SqliteFacts(Part):
    """Implements :class:`lockstep.store.protocols.Facts`."""

    def put_fact_if_absent(self, key: str, value: str) -> str:
        """Return the value that holds now."""
        with self._database.durable() as connection:
            connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (key, value))
            held = read_fact(connection, key)
            assert held is not None, "the row was put, or had been there"
            return held

    def set_fact(self, key: str, value: str) -> None:
        """Put ``value``, whatever was there."""
        with self._database.durable() as connection:
            connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    def swap_fact(self, key: str, before: str | None, after: str) -> bool:
        """Put ``after`` if the value is still ``before`` (None: absent); whether it was."""
        with self._database.durable() as connection:
            if read_fact(connection, key) != before:
                return False
            connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, after))
            return True

    def fact(self, key: str) -> str | None:
        """The value of ``key``, or None."""
        with self._database.reading() as connection:
            return read_fact(connection, key)


def read_fact(connection: sqlite3.Connection, key: str) -> str | None:
    """The value of ``key`` in an open file, or None."""
    row = connection.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else None
