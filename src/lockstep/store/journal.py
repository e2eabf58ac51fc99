"""A journal in SQLite: Arrow batches in a file of its own, so that heavy ingestion never makes a ledger wait."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.errors import StoreError
from lockstep.plan.schema import Schema
from lockstep.store.batches import RECORDS_PER_BATCH_MAX, decoded, encoded, fingerprint, pieces
from lockstep.store.database import Database, Format, run_all
from lockstep.store.group_commit import GroupCommit
from lockstep.store.names import checked_name
from lockstep.store.types import arrow_schema, schema_text

JOURNALS_FOLDER = "journals"
JOURNAL_FILE = "journal.db"
ROWS_HELD_MAX = 50_000
"""Rows of an epoch that are in memory at a time while they are appended."""
FENCES_KEPT = 10_000
"""Epochs of which a journal knows that they were published: a replica that is further behind is seeded long before."""
KEYS_KEPT = 1_000_000
"""Keys that a journal remembers, the newest, whether their records are kept or not: at a hundred keyed appends a second
those of the last three hours. A key takes about 120 bytes, so all of them some 120 MB."""
BATCHES_PER_TRIM = 500
"""Batches forgotten in one transaction: appends get their turn in between."""

_TIME = pa.timestamp("us", tz="UTC")
_NAMED = "once:"
"""What the keys of batches with a name begin with: Lockstep's own keys are other ones."""

JOURNAL_TABLES = (
    "CREATE TABLE declared (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), schema TEXT NOT NULL)",
    """CREATE TABLE partitions (
        partition INTEGER PRIMARY KEY, first INTEGER NOT NULL, end INTEGER NOT NULL, appends INTEGER NOT NULL,
        ingested_us INTEGER NOT NULL)""",
    # The index of a journal: small rows, so that asking for positions and times never touches a body.
    """CREATE TABLE batches (
        partition INTEGER, first INTEGER, end INTEGER NOT NULL, ingested_us INTEGER NOT NULL, body INTEGER NOT NULL,
        PRIMARY KEY (partition, first)) WITHOUT ROWID""",
    "CREATE TABLE bodies (id INTEGER PRIMARY KEY, plain_bytes INTEGER NOT NULL, body BLOB NOT NULL)",
    """CREATE TABLE keys (
        key TEXT PRIMARY KEY, partition INTEGER NOT NULL, position INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX keys_by_position ON keys (partition, position)",
)


def _create_tables(connection: sqlite3.Connection) -> None:
    run_all(connection, JOURNAL_TABLES)


def _create_fences(connection: sqlite3.Connection) -> None:
    """Whoever publishes epochs into a journal notes each of them, with its records and in the same transaction."""
    connection.execute(
        """CREATE TABLE fences (
            epoch INTEGER PRIMARY KEY, body TEXT NOT NULL, first INTEGER NOT NULL, end INTEGER NOT NULL)"""
    )


def _let_keys_outlive_records(connection: sqlite3.Connection) -> None:
    """Keys are numbered, so that the newest are known; each has the place and the fingerprint of what it stands for."""
    run_all(
        connection,
        (
            """CREATE TABLE numbered_keys (
                id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, partition INTEGER NOT NULL, first INTEGER NOT NULL,
                end INTEGER, fingerprint BLOB)""",
            # Where the records of an older key end was not kept, nor what they were.
            """INSERT INTO numbered_keys (key, partition, first)
                SELECT CASE WHEN key LIKE 'http:%' THEN 'once:' || substr(key, 6) ELSE key END, partition, position
                FROM keys ORDER BY position""",
            "DROP TABLE keys",
            "ALTER TABLE numbered_keys RENAME TO keys",
        ),
    )


JOURNAL_FORMAT = Format("journal", int.from_bytes(b"LkJn"), (_create_tables, _create_fences, _let_keys_outlive_records))
"""A change of the tables is a further function at the end; those that stand here are never edited once released."""


Fence = tuple[int, str, int, int]
"""Of an epoch that was published into a journal: its number, what was noted, and the positions of its records."""


@dataclass(frozen=True)
class _Append:
    """What one call wants to append. ``key``: only if nothing was appended under it before."""

    table: pa.Table
    partition: int | None
    key: str | None = None
    fingerprint: bytes | None = None


@dataclass(frozen=True)
class _Placed:
    """Where the records of one call are, and whether they were there before, under the same key."""

    partition: int
    first: int
    end: int | None
    fingerprint: bytes | None
    repeated: bool = False

    @property
    def positions(self) -> dict[int, tuple[int, int]]:
        """As callers are told; of a key that an older release kept, the end is not known."""
        return {} if self.end is None else {self.partition: (self.first, self.end)}


@dataclass
class _End:
    """Where a partition ends, while a group of appends is under way."""

    end: int
    appends: int
    ingested_us: int


class SqliteJournal:
    """Implements :class:`lockstep.store.protocols.Journal`."""

    def __init__(self, database: Database, name: str, schema: pa.Schema, partitions: int, clock: Clock) -> None:
        self.name = name
        self._database = database
        self._schema = schema
        self._partitions = partitions
        self._clock = clock
        self._group: GroupCommit[_Append, _Placed] = GroupCommit(self._commit)

    @property
    def schema(self) -> pa.Schema:
        """What every record in it has."""
        return self._schema

    @property
    def partitions(self) -> int:
        """How many partitions it has; they are numbered from 0."""
        return self._partitions

    def append(self, batch: pa.RecordBatch | pa.Table, partition: int | None = None) -> dict[int, tuple[int, int]]:
        """Append all of it or nothing; on disk when this returns. partition -> (first position, one past the last).

        Without a partition, calls take turns between the partitions. An empty batch appends nothing.
        """
        table = self._checked(batch, partition)
        if not table.num_rows:
            return {}
        return self._group.submit(_Append(table, partition)).positions

    def append_named(self, batch: pa.RecordBatch | pa.Table, name: str) -> tuple[dict[int, tuple[int, int]], bool]:
        """Append unless records of this name are there: where they are, and whether they were there before.

        All of it or nothing; on disk when this returns. The name is kept in the transaction of its records, so whoever
        was killed before the answer, or asks from two processes at once, may ask again. LS0428 if the name stands for
        other records. The newest :data:`KEYS_KEPT` names are remembered. An empty batch takes no name.
        """
        table = self._checked(batch, None)
        if not table.num_rows:
            return {}, False
        wanted = fingerprint(table)
        placed = self._group.submit(_Append(table, None, _NAMED + name, wanted))
        if placed.fingerprint not in (None, wanted):
            raise _other_records(self.name, name)
        return placed.positions, placed.repeated

    def append_once(self, batch: pa.RecordBatch | pa.Table, key: str, partition: int = 0) -> bool:
        """Append unless something was appended under ``key`` before; whether it was done now. On disk either way.

        The newest :data:`KEYS_KEPT` keys are remembered.
        """
        table = self._checked(batch, partition)
        if not table.num_rows:
            return False
        return not self._group.submit(_Append(table, partition, key)).repeated

    def was_appended(self, key: str) -> bool:
        """Whether something was appended under ``key``, which is remembered."""
        with self._database.reading() as connection:
            return connection.execute("SELECT 1 FROM keys WHERE key = ?", (key,)).fetchone() is not None

    def publish(self, epoch: int, body: str, batches: Iterable[pa.RecordBatch]) -> str:
        """Append an epoch's records and its fence in one transaction, unless the fence is there; the one that holds.

        On disk when this returns. Only for journals with one writer, which publishes epoch after epoch.
        """
        with self._database.durable() as connection:
            held = connection.execute("SELECT body FROM fences WHERE epoch = ?", (epoch,)).fetchone()
            if held is not None:
                return str(held[0])
            end = _ends(connection)[0]
            first = end.end
            for tables in _bounded(self._checked(batch, 0) for batch in batches if batch.num_rows):
                end.end += sum(table.num_rows for table in tables)
                self._write(connection, 0, tables, end)
            connection.execute("INSERT INTO fences VALUES (?, ?, ?, ?)", (epoch, body, first, end.end))
            connection.execute("DELETE FROM fences WHERE epoch < ?", (epoch - FENCES_KEPT,))
        return body

    def begin_at(self, first: int, batches: Iterable[pa.RecordBatch], fences: Sequence[Fence]) -> None:
        """Begin an empty journal as another one goes on: with its records from ``first`` on, and their fences."""
        with self._database.durable() as connection:
            end = _ends(connection)[0]
            assert end.end == 0, f"journal {self.name} has begun"
            end.end = first
            for tables in _bounded(self._checked(batch, 0) for batch in batches if batch.num_rows):
                end.end += sum(table.num_rows for table in tables)
                self._write(connection, 0, tables, end)
            connection.execute("UPDATE partitions SET first = ?, end = ? WHERE partition = 0", (first, end.end))
            connection.executemany("INSERT INTO fences VALUES (?, ?, ?, ?)", fences)

    def fences(self, first: int, last: int) -> list[Fence]:
        """(epoch, body, first position, end) of the epochs from ``first`` to ``last`` that were published here."""
        query = "SELECT epoch, body, first, end FROM fences WHERE epoch BETWEEN ? AND ? ORDER BY epoch"
        with self._database.reading() as connection:
            return [tuple(row) for row in connection.execute(query, (first, last))]

    def fence(self, epoch: int) -> tuple[str, int, int] | None:
        """What was noted when ``epoch`` was published, and the positions of its records."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT body, first, end FROM fences WHERE epoch = ?", (epoch,)).fetchone()
            return tuple(row) if row is not None else None

    def last_fence(self) -> int | None:
        """The newest epoch that was published here."""
        with self._database.reading() as connection:
            newest: int | None = connection.execute("SELECT max(epoch) FROM fences").fetchone()[0]
            return newest

    def ends(self) -> dict[int, int]:
        """For each partition the position after its newest record."""
        with self._database.reading() as connection:
            return dict(connection.execute("SELECT partition, end FROM partitions ORDER BY partition"))

    def begins(self) -> dict[int, int]:
        """For each partition the oldest position still kept."""
        with self._database.reading() as connection:
            return dict(connection.execute("SELECT partition, first FROM partitions ORDER BY partition"))

    def ingested(self, partition: int, start: int, end: int) -> tuple[int, int] | None:
        """Oldest and newest ingestion time (us) in the range, None if it is empty."""
        if start >= end:
            return None
        # Times never fall along a partition, so the first and the last batch of the range have the answer.
        query = "SELECT end, ingested_us FROM batches WHERE partition = ? AND first <= ? ORDER BY first DESC LIMIT 1"
        later = "SELECT first, ingested_us FROM batches WHERE partition = ? AND first > ? ORDER BY first LIMIT 1"
        with self._database.reading() as connection:
            oldest = connection.execute(query, (partition, start)).fetchone()
            if oldest is None or oldest[0] <= start:
                oldest = connection.execute(later, (partition, start)).fetchone()
                if oldest is None or oldest[0] >= end:
                    return None
            newest = connection.execute(query, (partition, end - 1)).fetchone()
        return oldest[1], newest[1]

    def arrivals(self, partition: int, start: int, end: int) -> pa.Array:
        """When each record of the range came in, as a column of times: they were kept with the records."""
        query = """SELECT max(first, ?), min(end, ?), ingested_us FROM batches WHERE partition = ? AND first < ? AND
            first >= (SELECT max(first) FROM batches WHERE partition = ? AND first <= ?) ORDER BY first"""
        with self._database.reading() as connection:
            spans = connection.execute(query, (start, end, partition, end, partition, start)).fetchall()
        times = [pa.repeat(pa.scalar(ingested_us, _TIME), until - since) for since, until, ingested_us in spans]
        assert sum(map(len, times)) == end - start, f"journal {self.name} has times for other records than these"
        return pa.concat_arrays(times)

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records at positions ``start <= p < end``, in batches of bounded size. LS0408 if some were trimmed.

        At most one stored batch is in memory; small ones are put together, up to the size of a large one.
        """
        waiting: list[pa.RecordBatch] = []
        for batch in self._stored(partition, start, end):
            if waiting and sum(one.num_rows for one in waiting) + batch.num_rows > RECORDS_PER_BATCH_MAX:
                yield pa.concat_batches(waiting)
                waiting = []
            waiting.append(batch)
        if waiting:
            yield pa.concat_batches(waiting)

    def trim(self, keep_from: Mapping[int, int]) -> int:
        """Forget whole batches below these positions; returns how many records went."""
        records = 0
        for partition, position in keep_from.items():
            while gone := self._trim_some(partition, position):
                records += gone
        return records

    def close(self) -> None:
        """Give the file back."""
        self._database.close()

    def _checked(self, batch: pa.RecordBatch | pa.Table, partition: int | None) -> pa.Table:
        if partition is not None and not 0 <= partition < self._partitions:
            raise StoreError(
                "LS0414",
                f"journal {self.name} has no partition {partition}",
                why=f"its partitions are 0 to {self._partitions - 1}.",
                hint="leave the partition out, and calls take turns.",
            )
        if not batch.schema.equals(self._schema):
            raise StoreError(
                "LS0403",
                f"a batch does not fit journal {self.name}",
                why=f"it has: {schema_text(batch.schema)}.\nthe journal has: {schema_text(self._schema)}.",
                hint="bring its columns into this order and these types; nothing of this call was kept.",
            )
        return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])

    def _commit(self, appends: list[_Append]) -> list[_Placed]:
        """Append for several calls in one transaction; those whose key is known append nothing."""
        results: list[_Placed] = []
        wanted: dict[int, list[pa.Table]] = {}
        with self._database.durable() as connection:
            ends = _ends(connection)
            for append in appends:
                partition = _turn(ends) if append.partition is None else append.partition
                placed = _placed(connection, append, partition, ends[partition])
                results.append(placed)
                if not placed.repeated:
                    wanted.setdefault(partition, []).append(append.table)
            for partition, tables in wanted.items():
                self._write(connection, partition, tables, ends[partition])
        return results

    def _write(self, connection: sqlite3.Connection, partition: int, tables: list[pa.Table], end: _End) -> None:
        # A clock that was set back must not make ingestion times fall: `ingested` relies on their order.
        ingested_us = max(self._clock(), end.ingested_us)
        first = end.end - sum(table.num_rows for table in tables)
        for piece in pieces(pa.concat_tables(tables)):
            statement = "INSERT INTO bodies (plain_bytes, body) VALUES (?, ?)"
            body = connection.execute(statement, encoded(piece)).lastrowid
            values = (partition, first, first + piece.num_rows, ingested_us, body)
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", values)
            first += piece.num_rows
        statement = "UPDATE partitions SET end = ?, appends = ?, ingested_us = ? WHERE partition = ?"
        connection.execute(statement, (end.end, end.appends, ingested_us, partition))

    def _stored(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The stored batches of a range, cut to it. No connection is held while the caller works."""
        at = start
        while at < end:
            row = self._batch_at(partition, at)
            if row is None:
                raise self._not_there(partition, at)
            first, last, plain_bytes, body = row
            batch = decoded(plain_bytes, body, self._schema)
            until = min(last, end)
            yield batch.slice(at - first, until - at)
            at = until

    def _batch_at(self, partition: int, position: int) -> tuple[int, int, int, bytes] | None:
        """(first, end, plain_bytes, body) of the batch that holds ``position``."""
        query = """SELECT first, end, plain_bytes, bodies.body FROM batches JOIN bodies ON bodies.id = batches.body
            WHERE partition = ? AND first <= ? ORDER BY first DESC LIMIT 1"""
        with self._database.reading() as connection:
            row = connection.execute(query, (partition, position)).fetchone()
        return row if row and row[1] > position else None

    def _not_there(self, partition: int, position: int) -> StoreError:
        if position < self.begins().get(partition, 0):
            return StoreError(
                "LS0408",
                f"journal {self.name} no longer has position {position} of partition {partition}",
                why="it was trimmed when no replica, snapshot or savepoint needed it any more.",
                hint="seed this replica from a newer snapshot.",
            )
        return StoreError(
            "LS0414",
            f"journal {self.name} has no position {position} in partition {partition}",
            why=f"its partitions end at {self.ends()}.",
            hint="see whether the journal's file was replaced by an older copy.",
        )

    def _trim_some(self, partition: int, position: int) -> int:
        """Forget up to a limit of batches that end at or below ``position``."""
        query = "SELECT body, end FROM batches WHERE partition = ? AND first < ? AND end <= ? ORDER BY first LIMIT ?"
        with self._database.relaxed() as connection:
            found = connection.execute(query, (partition, position, position, BATCHES_PER_TRIM)).fetchall()
            if not found:
                return 0
            end = found[-1][1]
            first = connection.execute("SELECT first FROM partitions WHERE partition = ?", (partition,)).fetchone()[0]
            connection.executemany("DELETE FROM bodies WHERE id = ?", [(body,) for body, _ in found])
            connection.execute("DELETE FROM batches WHERE partition = ? AND first < ?", (partition, end))
            connection.execute("UPDATE partitions SET first = ? WHERE partition = ?", (end, partition))
        return int(end - first)


def _ends(connection: sqlite3.Connection) -> dict[int, _End]:
    rows = connection.execute("SELECT partition, end, appends, ingested_us FROM partitions ORDER BY partition")
    return {partition: _End(*rest) for partition, *rest in rows}


def _turn(ends: Mapping[int, _End]) -> int:
    """The partition with the fewest appends: taking turns, between all processes that write."""
    return min(ends, key=lambda partition: (ends[partition].appends, partition))


def _placed(connection: sqlite3.Connection, append: _Append, partition: int, end: _End) -> _Placed:
    """The place that an append gets, or the one that its key has already."""
    if append.key is not None:
        query = "SELECT partition, first, end, fingerprint FROM keys WHERE key = ?"
        known = connection.execute(query, (append.key,)).fetchone()
        if known is not None:
            where, first, until, kept = known
            return _Placed(where, first, until, kept, repeated=True)
    placed = _Placed(partition, end.end, end.end + append.table.num_rows, append.fingerprint)
    end.end += append.table.num_rows
    end.appends += 1
    if append.key is not None:
        statement = "INSERT INTO keys (key, partition, first, end, fingerprint) VALUES (?, ?, ?, ?, ?)"
        values = (append.key, placed.partition, placed.first, placed.end, placed.fingerprint)
        newest = connection.execute(statement, values).lastrowid
        assert newest is not None, "SQLite numbers every row"
        connection.execute("DELETE FROM keys WHERE id <= ?", (newest - KEYS_KEPT,))
    return placed


def open_journal(
    folder: Path, name: str, schema: Schema | None = None, partitions: int = 1, clock: Clock = wall_us
) -> SqliteJournal:
    """The journal ``name`` in the store's folder (".lockstep").

    With a ``schema`` it is created if it is not there, with so many ``partitions``; if it is, its own partitions hold
    and the schemas are compared: LS0409 if they differ. Without one it must be there: LS0410 lists those that are.

    >>> import tempfile
    >>> from lockstep.plan.schema import parse_schema
    >>> from lockstep.store.arrow import batch_from_pylist
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = open_journal(Path(folder), "logins", parse_schema("user string"))
    ...     journal.append(batch_from_pylist([{"user": "ann"}, {"user": "bob"}], journal.schema))
    ...     [batch.to_pylist() for batch in journal.read(partition=0, start=1, end=2)]
    ...     journal.close()
    {0: (0, 2)}
    [[{'user': 'bob'}]]
    """
    path = folder / JOURNALS_FOLDER / checked_name("journal", name) / JOURNAL_FILE
    if schema is None and not path.exists():
        raise _unknown(folder, name)
    database = Database(path, JOURNAL_FORMAT)
    try:
        held = _declared(database, schema, partitions)
        if held is None:
            raise _unknown(folder, name)
        if schema is not None and held["schema"] != schema.to_json():
            raise _different(name, Schema.from_json(held["schema"]), schema)
        count = len(_partitions(database))
    except BaseException:
        database.close()
        raise
    arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(held["arrow"])))
    return SqliteJournal(database, name, arrow, count, clock)


def list_journals(folder: Path) -> list[str]:
    """The journals in the store's folder, by name."""
    return sorted(path.parent.name for path in (folder / JOURNALS_FOLDER).glob(f"*/{JOURNAL_FILE}"))


def _declared(database: Database, schema: Schema | None, partitions: int) -> dict[str, Any] | None:
    """What the journal was declared with, declaring it now if that was not done; None if nothing is known of it."""
    query = "SELECT schema FROM declared"
    with database.reading() as connection:
        row = connection.execute(query).fetchone()
    if row is None and schema is not None:
        with database.durable() as connection:
            row = connection.execute(query).fetchone()
            if row is None:
                row = _declare(connection, schema, partitions)
    return dict(json.loads(row[0])) if row else None


def _declare(connection: sqlite3.Connection, schema: Schema, partitions: int) -> tuple[str]:
    # Arrow's form is kept too: stored batches are read with it, whatever a later version makes of the types' names.
    arrow = base64.b64encode(arrow_schema(schema).serialize()).decode()
    text = json.dumps({"schema": schema.to_json(), "arrow": arrow})
    connection.execute("INSERT INTO declared VALUES (1, ?)", (text,))
    connection.executemany("INSERT INTO partitions VALUES (?, 0, 0, 0, 0)", [(each,) for each in range(partitions)])
    return (text,)


def _partitions(database: Database) -> list[int]:
    with database.reading() as connection:
        return [row[0] for row in connection.execute("SELECT partition FROM partitions")]


def _unknown(folder: Path, name: str) -> StoreError:
    names = list_journals(folder)
    return StoreError(
        "LS0410",
        f'there is no journal "{name}"',
        why=f"in {folder} there are: {', '.join(names)}." if names else f"there are no journals in {folder} yet.",
        hint='create it by giving its schema, like "user string, at timestamp", or by running a job that reads it.',
    )


def _other_records(journal: str, name: str) -> StoreError:
    return StoreError(
        "LS0428",
        f'journal {journal} has other records under the name "{name}"',
        why="a name stands for one batch: the same records again are taken for a repetition and not written, others "
        "would be lost.",
        hint="give other records a name of their own; nothing of this call was kept.",
    )


def _different(name: str, held: Schema, wanted: Schema) -> StoreError:
    before = {field.name: field.type for field in held.fields}
    after = {field.name: field.type for field in wanted.fields}
    lines = [
        f"{field} is {before[field]}, not {after[field]}"
        for field in before
        if after.get(field, before[field]) != before[field]
    ]
    lines += [f"{field} ({before[field]}) is missing" for field in before if field not in after]
    lines += [f"{field} ({after[field]}) is new" for field in after if field not in before]
    return StoreError(
        "LS0409",
        f"journal {name} has another schema",
        why="; ".join(lines or ["the fields are in another order"]) + f".\nit has: {held.ddl()}",
        hint="use its schema, or another journal: what is stored keeps its form.",
    )


def _bounded(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    """Tables in groups that fit into memory together, whatever their number."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(each.num_rows for each in held) >= ROWS_HELD_MAX:
            yield held
            held = []
    if held:
        yield held
