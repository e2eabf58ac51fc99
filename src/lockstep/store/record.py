"""The record in SQLite: digests, publications, divergences and events, each kept to a limit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from lockstep.credentials import without_secrets
from lockstep.observe.histogram import Histogram
from lockstep.store.database import Part
from lockstep.store.protocols import Digest, Divergence, Published

PUBLISHED_MAX = 100_000
EVENTS_MAX = 10_000
DIVERGENCES_MAX = 1_000

RECORD_TABLES = (
    # The digest is part of the key: if one incarnation ever answers twice and differently, both answers stay.
    """CREATE TABLE digests (
        epoch INTEGER, sink TEXT, replica TEXT, incarnation INTEGER, digest TEXT, rows INTEGER NOT NULL, version TEXT,
        PRIMARY KEY (epoch, sink, replica, incarnation, version, digest)) WITHOUT ROWID""",
    """CREATE TABLE published (
        epoch INTEGER PRIMARY KEY, replica TEXT NOT NULL, published_us INTEGER NOT NULL, records INTEGER NOT NULL,
        ingested_oldest_us INTEGER, ingested_newest_us INTEGER, epoch_s REAL NOT NULL)""",
    "CREATE TABLE latency (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), histogram TEXT NOT NULL)",
    """CREATE TABLE divergences (
        id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, sink TEXT NOT NULL, replica TEXT NOT NULL,
        incarnation INTEGER NOT NULL, published_by TEXT NOT NULL, digest TEXT NOT NULL, published_digest TEXT NOT NULL,
        detail TEXT NOT NULL, at_us INTEGER NOT NULL, verdict TEXT NOT NULL,
        UNIQUE (epoch, sink, replica, incarnation))""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL, replica TEXT NOT NULL,
        text TEXT NOT NULL)""",
    "CREATE TABLE observed (epoch INTEGER PRIMARY KEY, newest_us TEXT NOT NULL)",
)
_DIGESTS = "SELECT epoch, sink, replica, incarnation, digest, rows, version FROM digests"
_PUBLISHED = """SELECT epoch, replica, published_us, records, ingested_oldest_us, ingested_newest_us, epoch_s
    FROM published"""
_DIVERGENCES = """SELECT epoch, sink, replica, incarnation, published_by, digest, published_digest, detail, at_us,
    verdict FROM divergences"""


class SqliteRecord(Part):
    """Implements ``Record``, ``Divergences`` and ``Observations`` of :mod:`lockstep.store.protocols`."""

    def add_digests(self, digests: Sequence[Digest]) -> None:
        """Keep these digests, all at once."""
        with self._database.relaxed() as connection:
            rows = [astuple(digest) for digest in digests]
            connection.executemany("INSERT OR IGNORE INTO digests VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def digests(self, epoch: int) -> list[Digest]:
        """Everything reported for ``epoch``."""
        query = f"{_DIGESTS} WHERE epoch = ? ORDER BY sink, replica, incarnation"
        with self._database.reading() as connection:
            return [Digest(*row) for row in connection.execute(query, (epoch,))]

    def digest_mismatches(self) -> list[tuple[int, str]]:
        """(epoch, sink) for which kept digests of one version differ."""
        query = """SELECT DISTINCT epoch, sink FROM
            (SELECT epoch, sink FROM digests GROUP BY epoch, sink, version HAVING min(digest) <> max(digest))
            ORDER BY epoch, sink"""
        with self._database.reading() as connection:
            return connection.execute(query).fetchall()

    def add_published(self, published: Published) -> None:
        """Keep it once per epoch (the first wins) and add its latency to the job's histogram."""
        with self._database.relaxed() as connection:
            values = astuple(published)
            added = connection.execute("INSERT OR IGNORE INTO published VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            if not added.rowcount:
                return
            if published.ingested_oldest_us is not None:
                latency_ms = (published.published_us - published.ingested_oldest_us) / 1000
                _keep(connection, _histogram(connection).add(latency_ms))
            connection.execute("DELETE FROM published WHERE epoch <= ?", (published.epoch - PUBLISHED_MAX,))

    def published(self, first: int, last: int) -> list[Published]:
        """The publications of the epochs from ``first`` to ``last`` inclusive, in order."""
        query = f"{_PUBLISHED} WHERE epoch BETWEEN ? AND ? ORDER BY epoch"
        with self._database.reading() as connection:
            return [Published(*row) for row in connection.execute(query, (first, last))]

    def add_divergence(self, divergence: Divergence) -> None:
        """Keep it once per epoch, sink and incarnation; on disk at once, since it must not be forgotten."""
        statement = "INSERT OR IGNORE INTO divergences VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        with self._database.durable() as connection:
            connection.execute(statement, astuple(replace(divergence, detail=without_secrets(divergence.detail))))
            _forget_oldest(connection, "divergences", DIVERGENCES_MAX)

    def divergences(self) -> list[Divergence]:
        """All that are kept, oldest first."""
        with self._database.reading() as connection:
            return [Divergence(*row) for row in connection.execute(f"{_DIVERGENCES} ORDER BY id")]

    def judge(self, epoch: int, sink: str, replica: str, verdict: str) -> None:
        """Note what was decided about a divergence."""
        statement = "UPDATE divergences SET verdict = ? WHERE epoch = ? AND sink = ? AND replica = ?"
        with self._database.durable() as connection:
            connection.execute(statement, (verdict, epoch, sink, replica))

    def add_observed(self, epoch: int, newest_us: Mapping[str, int | None]) -> None:
        """Keep the highest event time that an epoch's records had, per ``event_time`` step; the first wins."""
        with self._database.relaxed() as connection:
            row = connection.execute("SELECT newest_us FROM observed WHERE epoch = ?", (epoch,)).fetchone()
            held = json.loads(row[0]) if row is not None else {}
            text = json.dumps({**newest_us, **held}, sort_keys=True)
            if row is None or text != row[0]:
                connection.execute("INSERT OR REPLACE INTO observed VALUES (?, ?)", (epoch, text))

    def observed(self, epoch: int) -> dict[str, int | None]:
        """What was kept for ``epoch``; empty if nothing was."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT newest_us FROM observed WHERE epoch = ?", (epoch,)).fetchone()
        return dict(json.loads(row[0])) if row else {}

    def add_event(self, kind: str, text: str, replica: str = "") -> None:
        """A line for people: replica died, was seeded, records set aside. The newest 10,000 are kept."""
        with self._database.relaxed() as connection:
            values = (self._clock(), kind, replica, without_secrets(text))
            connection.execute("INSERT INTO events (at_us, kind, replica, text) VALUES (?, ?, ?, ?)", values)
            _forget_oldest(connection, "events", EVENTS_MAX)

    def events(self, after_id: int = 0, limit: int = 1000) -> list[tuple[int, int, str, str, str]]:
        """(id, at_us, kind, replica, text), oldest first."""
        query = "SELECT id, at_us, kind, replica, text FROM events WHERE id > ? ORDER BY id LIMIT ?"
        with self._database.reading() as connection:
            return connection.execute(query, (after_id, limit)).fetchall()

    def newest_event(self) -> int:
        """The id of the newest event, 0 if there is none."""
        with self._database.reading() as connection:
            return int(connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0])

    def latency_ms(self) -> dict[str, float]:
        """p50, p90, p99, max and count of the job's histogram: age of an epoch's oldest record at its publishing."""
        with self._database.reading() as connection:
            return _histogram(connection).summary_ms()


def _forget_oldest(connection: sqlite3.Connection, table: str, kept: int) -> None:
    # Rows leave in the order of their ids, so the newest stays and an id is never given twice.
    connection.execute(f"DELETE FROM {table} WHERE id <= (SELECT max(id) FROM {table}) - ?", (kept,))  # noqa: S608


def _histogram(connection: sqlite3.Connection) -> Histogram:
    row = connection.execute("SELECT histogram FROM latency").fetchone()
    return Histogram.from_json(row[0]) if row else Histogram()


def _keep(connection: sqlite3.Connection, histogram: Histogram) -> None:
    connection.execute("INSERT OR REPLACE INTO latency VALUES (1, ?)", (histogram.to_json(),))
