"""Publishing epochs into a table of a SQLite database: the rows and the fence go in one transaction."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.disk import disk_trouble, make_folders
from lockstep.connect.protocols import Output, Place, Publication, Stager
from lockstep.connect.sinks.arrow_stage import ArrowStage
from lockstep.connect.sinks.order import Owner, check_order, check_owner, made_by_others, schema_of, schema_text
from lockstep.connect.sinks.schemas import check_key, check_names, without_nullability
from lockstep.connect.sinks.sqlite_values import column_type, from_sqlite, to_sqlite
from lockstep.connect.sinks.taken_back import own_columns, parted
from lockstep.connect.specs import SqliteSink
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder

FORMAT_VERSION = 2
"""1: a row in `_lockstep_epochs` for every epoch; now one may stand for a run of epochs without rows."""
FENCES_KEPT = 100
"""The newest epochs that keep a fence of their own, rows or not."""
EPOCH_COLUMN = "lockstep_epoch"
LOCKED_S = 30.0
"""How long another program may hold the database before that is an error."""
_BUSY_S = 1.0
_RETRY_S = 0.02

_FENCE = tuple(field.name for field in fields(Publication))
_FENCE_COLUMNS = ", ".join(f'"{name}"' for name in _FENCE)
_TABLES = (
    "CREATE TABLE IF NOT EXISTS _lockstep_sinks (table_name TEXT PRIMARY KEY, format_version INTEGER NOT NULL, "
    "job TEXT NOT NULL, sink TEXT NOT NULL, arrow_schema TEXT NOT NULL, key TEXT NOT NULL)",
    'CREATE TABLE IF NOT EXISTS _lockstep_epochs (table_name TEXT NOT NULL, "epoch" INTEGER NOT NULL, '
    '"digest" TEXT NOT NULL, "rows" INTEGER NOT NULL, "by" TEXT NOT NULL, "version" TEXT NOT NULL, '
    '"published_us" INTEGER NOT NULL, "epoch_time_us" INTEGER NOT NULL, "ingested_oldest_us" INTEGER, '
    '"ingested_newest_us" INTEGER, "first_epoch" INTEGER, PRIMARY KEY (table_name, "epoch")) WITHOUT ROWID',
)

Result = TypeVar("Result")


class SqliteSinkSide:
    """The working side of :func:`lockstep.connect.specs.sqlite`."""

    def __init__(
        self, spec: SqliteSink, sink_id: str, place: Place, clock: Clock = wall_us, locked_s: float = LOCKED_S
    ) -> None:
        self._spec = spec
        self._sink = sink_id
        self._job = place.job
        self._path = place.project / spec.path
        self._stage = ArrowStage(place, sink_id)
        self._clock = clock
        self._locked_s = locked_s
        self._connection: sqlite3.Connection | None = None

    def open(self, schema: pa.Schema) -> None:
        """Make the table, or recognise it as ours."""
        wanted = own_columns(without_nullability(schema))
        self._check_columns(wanted)
        with disk_trouble(self._path):
            make_folders(self._path.parent)
        self._stage.open(schema)
        self._patiently(lambda: self._prepare(wanted))

    def last_published(self) -> int | None:
        """The newest published epoch."""
        return self._patiently(self._last)

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``, None if nobody published it."""
        return self._patiently(lambda: self._fence(epoch))

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """An Arrow file beside the store: the rows enter the database in the driver's one transaction."""
        return self._stage.stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Insert the rows and the fence, or nothing if the fence is there."""
        del holder  # nothing in the database belongs to a replica
        published = self._patiently(lambda: self._insert(wanted, output))
        self._stage.remove(output)
        return published

    def rows(self, epoch: int) -> pa.Table | None:
        """The published rows of one epoch; with a key they may have been replaced since."""
        if self._spec.key or self.publication(epoch) is None:
            return None
        return self._patiently(lambda: _select(self._open(), self._spec.table, self._stage.schema(), [epoch]))

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        return self._stage.sweep(dead)

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            # Spark calls from threads of its own, one after the other.
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA synchronous=FULL")
            self._connection = connection
        return self._connection

    def _patiently(self, act: Callable[[], Result]) -> Result:
        """Do it, again and again while another program holds the database, up to ``locked_s``."""
        deadline_s = time.monotonic() + self._locked_s
        while True:
            try:
                return act()
            except sqlite3.Error as error:
                if not _is_locked(error) or time.monotonic() > deadline_s:
                    raise _explained(error, self._path, self._locked_s) from error
                time.sleep(_RETRY_S)

    def _check_columns(self, schema: pa.Schema) -> None:
        place = f"table {self._spec.table}"
        check_names(place, schema, EPOCH_COLUMN)
        check_key(place, self._spec.key, schema)
        lowered = [name.lower() for name in schema.names]
        twice = sorted({name for name in lowered if lowered.count(name) > 1})
        if twice:
            raise ConnectError("LS0501", f"SQLite does not tell {twice[0]} apart: its names ignore case")

    def _prepare(self, schema: pa.Schema) -> None:
        connection = self._open()
        if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
            # Readers and the one writer do not wait for each other. A database that was there keeps its own mode.
            connection.execute("PRAGMA journal_mode=WAL")
        with _transaction(connection):
            for statement in _TABLES:
                connection.execute(statement)
            _add_runs(connection)
            if not self._is_mine(connection, schema):
                self._create(connection, schema)
            if self._spec.key:
                index = quoted(f"{self._spec.table}_null_keys")
                place = f"{quoted(self._spec.table)} {_null_keys(self._spec.key)}"
                connection.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {place}")

    def _is_mine(self, connection: sqlite3.Connection, schema: pa.Schema) -> bool:
        """Whether the table is there and ours; False if there is none."""
        place = f"table {self._spec.table} in {self._path}"
        query = "SELECT format_version, job, sink, arrow_schema, key FROM _lockstep_sinks WHERE table_name = ?"
        row = connection.execute(query, (self._spec.table.lower(),)).fetchone()
        if row is None:
            query = "SELECT count(*) FROM sqlite_master WHERE lower(name) = ?"
            if connection.execute(query, (self._spec.table.lower(),)).fetchone()[0]:
                raise made_by_others(place)
            return False
        stored = Owner(row[1], row[2], row[3], tuple(json.loads(row[4])), row[0])
        check_owner(place, stored, Owner(self._job, self._sink, schema_text(schema), self._spec.key, FORMAT_VERSION))
        # From here on releases that do not know of runs must not write to it.
        version = (FORMAT_VERSION, self._spec.table.lower())
        connection.execute("UPDATE _lockstep_sinks SET format_version = ? WHERE table_name = ?", version)
        return True

    def _create(self, connection: sqlite3.Connection, schema: pa.Schema) -> None:
        table = quoted(self._spec.table)
        columns = [f"{quoted(field.name)} {column_type(field.type)}" for field in schema]
        columns.append(f"{EPOCH_COLUMN} INTEGER NOT NULL")
        if self._spec.key:
            # Not PRIMARY KEY: one integer column would become the row id, which SQLite makes up where it is null.
            columns.append(f"UNIQUE ({', '.join(map(quoted, self._spec.key))})")
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        if not self._spec.key:
            connection.execute(f"CREATE INDEX {quoted(self._spec.table + '_epoch')} ON {table} ({EPOCH_COLUMN})")
        mine = (
            self._spec.table.lower(),
            FORMAT_VERSION,
            self._job,
            self._sink,
            schema_text(schema),
            json.dumps(self._spec.key),
        )
        connection.execute("INSERT INTO _lockstep_sinks VALUES (?, ?, ?, ?, ?, ?)", mine)

    def _last(self) -> int | None:
        query = 'SELECT max("epoch") FROM _lockstep_epochs WHERE table_name = ?'
        newest: int | None = self._open().execute(query, (self._spec.table.lower(),)).fetchone()[0]
        return newest

    def _fence(self, epoch: int) -> Publication | None:
        query = (
            f'SELECT {_FENCE_COLUMNS}, "first_epoch" FROM _lockstep_epochs '  # noqa: S608
            'WHERE table_name = ? AND "epoch" >= ? ORDER BY "epoch" LIMIT 1'
        )
        row = self._open().execute(query, (self._spec.table.lower(), epoch)).fetchone()
        return _fence_in(row, epoch) if row is not None else None

    def _insert(self, wanted: Publication, output: Output) -> Publication:
        connection = self._open()
        with _transaction(connection):
            held = self._fence(wanted.epoch)
            if held is not None:
                return held
            check_order(f"table {self._spec.table} in {self._path}", wanted.epoch, self._last())
            self._change_rows(connection, wanted.epoch, output)
            published = replace(wanted, published_us=self._clock())
            marks = ", ".join("?" for _ in range(len(_FENCE) + 1))
            connection.execute(
                f"INSERT INTO _lockstep_epochs (table_name, {_FENCE_COLUMNS}) VALUES ({marks})",  # noqa: S608
                (self._spec.table.lower(), *astuple(published)),
            )
            _lengthen_run(connection, self._spec.table.lower(), wanted.epoch - FENCES_KEPT)
        return published

    def _change_rows(self, connection: sqlite3.Connection, epoch: int, output: Output) -> None:
        """Delete the rows that are taken back, and write the others."""
        names, key = own_columns(self._stage.schema()).names, self._spec.key
        upsert, delete = _upsert(self._spec.table, names, key), _delete(self._spec.table, key)
        for batch in self._stage.batches(output):
            gone, begun = parted(batch)
            if gone.num_rows:
                connection.executemany(delete, zip(*(to_sqlite(gone.column(name)) for name in key), strict=True))
            columns = [to_sqlite(column) for column in begun.columns]
            connection.executemany(upsert, zip(*columns, [epoch] * begun.num_rows, strict=True))


def _add_runs(connection: sqlite3.Connection) -> None:
    """A database of format 1 learns about runs; its fences stay as they are."""
    names = [row[1] for row in connection.execute("PRAGMA table_info(_lockstep_epochs)")]
    if "first_epoch" not in names:
        connection.execute('ALTER TABLE _lockstep_epochs ADD COLUMN "first_epoch" INTEGER')


def _fence_in(row: tuple[Any, ...], epoch: int) -> Publication | None:
    """The fence of an epoch in the first row that is not before it: its own, or that of the run it is in."""
    *values, first = row
    held = Publication(*values)
    if held.epoch == epoch:
        return held
    return Publication(epoch, held.digest, 0, "", held.version) if first is not None and first <= epoch else None


def _lengthen_run(connection: sqlite3.Connection, table: str, epoch: int) -> None:
    """Let the fence of an epoch without rows stand for the one before it too, if that had none either."""
    merged = connection.execute(
        'SELECT coalesce(earlier."first_epoch", earlier."epoch") FROM _lockstep_epochs earlier '
        'JOIN _lockstep_epochs later ON earlier.table_name = later.table_name AND earlier."epoch" = later."epoch" - 1 '
        'WHERE later.table_name = ? AND later."epoch" = ? AND earlier."rows" = 0 AND later."rows" = 0 '
        "AND earlier.digest = later.digest AND earlier.version = later.version",
        (table, epoch),
    ).fetchone()
    if merged is not None:
        connection.execute('DELETE FROM _lockstep_epochs WHERE table_name = ? AND "epoch" = ?', (table, epoch - 1))
        changed = (merged[0], table, epoch)
        connection.execute(
            'UPDATE _lockstep_epochs SET "first_epoch" = ? WHERE table_name = ? AND "epoch" = ?', changed
        )


def read_sqlite(path: Path, table: str, epochs: Iterable[int] | None = None) -> pa.Table:
    """The published rows of a SQLite sink, in epoch order, in the types they were written with."""
    if not path.is_file():
        raise ConnectError("LS0513", f"nothing was ever published in {path}", why="there is no such database.")
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=LOCKED_S, isolation_level=None)
    try:
        query = "SELECT arrow_schema FROM _lockstep_sinks WHERE table_name = ?"
        row = connection.execute(query, (table.lower(),)).fetchone()
        if row is None:
            raise ConnectError("LS0513", f"nothing was ever published in table {table} of {path}")
        return _select(connection, table, schema_of(row[0]), None if epochs is None else sorted(set(epochs)))
    except sqlite3.Error as error:
        raise _explained(error, path, LOCKED_S) from error
    finally:
        connection.close()


def quoted(name: str) -> str:
    """A name as SQLite takes it.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def _select(connection: sqlite3.Connection, table: str, schema: pa.Schema, epochs: list[int] | None) -> pa.Table:
    columns = ", ".join(map(quoted, schema.names))
    chosen = "" if epochs is None else f"WHERE {EPOCH_COLUMN} IN (SELECT value FROM json_each(?))"  # noqa: S608
    query = f"SELECT {columns} FROM {quoted(table)} {chosen} ORDER BY {EPOCH_COLUMN}, rowid"  # noqa: S608
    found = connection.execute(query, () if epochs is None else (json.dumps(epochs),)).fetchall()
    values = list(zip(*found, strict=True)) if found else [()] * len(schema)
    return pa.Table.from_arrays(
        [from_sqlite(column, field.type) for column, field in zip(values, schema, strict=True)], schema=schema
    )


def _upsert(table: str, names: list[str], key: tuple[str, ...]) -> str:
    columns = [*map(quoted, names), EPOCH_COLUMN]
    marks = ", ".join("?" for _ in columns)
    insert = f"INSERT INTO {quoted(table)} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
    if not key:
        return insert
    others = [name for name in columns if name not in {quoted(each) for each in key}]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    # Rows come in order, and so do epochs: of two with one key the later one is the newer.
    update = f"DO UPDATE SET {changes}"
    return f"{insert} ON CONFLICT ({', '.join(map(quoted, key))}) {update} ON CONFLICT {_null_keys(key)} {update}"


def _delete(table: str, key: tuple[str, ...]) -> str:
    """Of the row with this key; null is a value like any other."""
    return f"DELETE FROM {quoted(table)} WHERE {' AND '.join(f'{quoted(name)} IS ?' for name in key)}"  # noqa: S608


def _null_keys(key: tuple[str, ...]) -> str:
    """What tells keys with nulls apart: to SQLite's own UNIQUE no null is equal to another."""
    names = list(map(quoted, key))
    parts = ", ".join(f"{name} IS NULL, ifnull({name}, 0)" for name in names)
    return f"({parts}) WHERE {' OR '.join(f'{name} IS NULL' for name in names)}"


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_locked(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _explained(error: sqlite3.Error, path: Path, locked_s: float) -> ConnectError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if _is_locked(error):
        return ConnectError(
            "LS0511",
            f"{path} has been locked for {locked_s:g} s",
            why="another program holds a transaction open in this database.",
            hint="end that transaction; the epoch is published by the next attempt.",
        )
    if code == sqlite3.SQLITE_FULL:
        return ConnectError(
            "LS0508",
            f"no space left to write {path}",
            why=f"SQLite says: {error}. Nothing of this epoch became visible.",
            hint="make room; the epoch is published by the next attempt.",
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return ConnectError(
            "LS0515",
            f"a row does not fit its table in {path}",
            why=f"SQLite says: {error}. A table that an earlier release made takes no null in its key.",
            hint="write to a new table, or filter such rows out before the sink.",
        )
    return ConnectError(
        "LS0509", f"cannot use {path}: {error}", hint="check that it is a SQLite database and writable."
    )
