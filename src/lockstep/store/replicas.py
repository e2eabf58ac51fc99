"""Replicas in SQLite: who is live (durable), and how far each has come (the newest word only)."""

from __future__ import annotations

import json
import sqlite3

from lockstep.store.database import Part
from lockstep.store.protocols import Holder, Progress

REPLICAS_TABLES = (
    """CREATE TABLE replicas (
        replica TEXT PRIMARY KEY, incarnation INTEGER NOT NULL, live INTEGER NOT NULL, pid INTEGER NOT NULL,
        begun_us INTEGER NOT NULL) WITHOUT ROWID""",
    # As JSON, a report may gain fields with a default without a migration: nothing searches by them.
    "CREATE TABLE progress (replica TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
)


class SqliteReplicas(Part):
    """Implements :class:`~lockstep.store.protocols.Incarnations` and :class:`~lockstep.store.protocols.Reports`."""

    def begin(self, replica: str, pid: int) -> Holder:
        """Register a new start of ``replica``: a fresh incarnation, which alone may act for it from now on."""
        with self._database.durable() as connection:
            row = connection.execute("SELECT incarnation FROM replicas WHERE replica = ?", (replica,)).fetchone()
            incarnation = row[0] + 1 if row else 1
            values = (replica, incarnation, pid, self._clock())
            connection.execute("INSERT OR REPLACE INTO replicas VALUES (?, ?, 1, ?, ?)", values)
        return Holder(replica, incarnation)

    def is_live(self, holder: Holder) -> bool:
        """Whether ``holder`` is the newest incarnation of its replica and was not retired."""
        with self._database.reading() as connection:
            return holder_is_live(connection, holder)

    def retire(self, replica: str) -> None:
        """No incarnation of ``replica`` so far may act any more (before it is replaced or stopped)."""
        with self._database.durable() as connection:
            connection.execute("UPDATE replicas SET live = 0 WHERE replica = ?", (replica,))

    def report(self, progress: Progress) -> None:
        """Replace what ``progress.replica`` said last. Ignored if it is not the newest incarnation."""
        statement = """INSERT OR REPLACE INTO progress
            SELECT replica, ? FROM replicas WHERE replica = ? AND incarnation = ?"""
        with self._database.relaxed() as connection:
            connection.execute(statement, (json.dumps(vars(progress)), progress.replica, progress.incarnation))

    def progress(self) -> list[Progress]:
        """The newest word of every replica, by name."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT body FROM progress ORDER BY replica")
            return [Progress(**json.loads(body)) for (body,) in rows]

    def remove(self, replica: str) -> None:
        """Forget ``replica``'s progress and retire it; its count of incarnations stays, since none is ever reused."""
        with self._database.durable() as connection:
            connection.execute("UPDATE replicas SET live = 0 WHERE replica = ?", (replica,))
            connection.execute("DELETE FROM progress WHERE replica = ?", (replica,))


def holder_is_live(connection: sqlite3.Connection, holder: Holder) -> bool:
    """Whether ``holder`` may act, as seen inside the transaction under way."""
    query = "SELECT 1 FROM replicas WHERE replica = ? AND incarnation = ? AND live"
    return connection.execute(query, (holder.replica, holder.incarnation)).fetchone() is not None
