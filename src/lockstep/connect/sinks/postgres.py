"""Publishing epochs into a table of a Postgres database: the rows and the fence go in one transaction.

As in SQLite, but several publishers meet: they take turns by a lock on the sink's own row. Large epochs are copied into
a temporary table first, without that lock, so that one who stands still half-way holds up nobody.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.protocols import CHANGED, Output, Place, Publication, Stager
from lockstep.connect.sinks.arrow_stage import ArrowStage
from lockstep.connect.sinks.order import (
    Owner,
    check_not_retired,
    check_order,
    check_owner,
    made_by_others,
    schema_of,
    schema_text,
)
from lockstep.connect.sinks.postgres_server import PATIENCE_S, Server, import_psycopg, run
from lockstep.connect.sinks.postgres_values import column_type, from_postgres, selected, to_postgres
from lockstep.connect.sinks.schemas import check_key, check_names, check_unchanged, without_nullability
from lockstep.connect.sinks.taken_back import own_columns
from lockstep.connect.specs import PostgresSink
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder

if TYPE_CHECKING:
    from psycopg import Connection

FORMAT_VERSION = 1
FENCES_KEPT = 100
"""The newest epochs that keep a fence of their own, rows or not."""
ROWS_INSERTED_MAX = 200
"""More are copied into a temporary table and merged: a row costs about 50 µs inserted, a tenth of that copied."""
PARAMETERS_MAX = 30_000
"""Values in one statement; Postgres takes 65,535."""
EPOCH_COLUMN = "lockstep_epoch"
ROW_COLUMN = "lockstep_row"
KEY_VERSION_MIN = 150_000
"""Postgres 15 can treat nulls in a key as equal; the last release that cannot ended in November 2026."""

_FENCE = tuple(field.name for field in fields(Publication))
_FENCE_COLUMNS = ", ".join(f'"{name}"' for name in _FENCE)
_TABLES = {
    "_lockstep_sinks": "table_name text PRIMARY KEY, format_version integer NOT NULL, job text NOT NULL, "
    "sink text NOT NULL, arrow_schema text NOT NULL, key text NOT NULL",
    "_lockstep_epochs": 'table_name text NOT NULL, "epoch" bigint NOT NULL, "digest" text NOT NULL, '
    '"rows" bigint NOT NULL, "by" text NOT NULL, "version" text NOT NULL, "published_us" bigint NOT NULL, '
    '"epoch_time_us" bigint NOT NULL, "ingested_oldest_us" bigint, "ingested_newest_us" bigint, '
    '"first_epoch" bigint, PRIMARY KEY (table_name, "epoch")',
    "_lockstep_publishers": "table_name text NOT NULL, replica text NOT NULL, incarnation bigint NOT NULL, "
    "PRIMARY KEY (table_name, replica)",
}


class PostgresSinkSide:
    """The working side of :func:`lockstep.connect.specs.postgres`."""

    def __init__(
        self, spec: PostgresSink, sink_id: str, place: Place, clock: Clock = wall_us, patience_s: float = PATIENCE_S
    ) -> None:
        self._spec = spec
        self._sink = sink_id
        self._job = place.job
        self._stage = ArrowStage(place, sink_id)
        self._clock = clock
        self._server = Server(spec.server, spec.password_env, patience_s)
        self._names = Names(spec.table)

    def open(self, schema: pa.Schema) -> None:
        """Make the table, or recognise it as ours."""
        import_psycopg()
        wanted = own_columns(without_nullability(schema))
        self._check_columns(wanted)
        self._stage.open(schema)
        self._server.patiently(lambda connection: self._prepare(connection, wanted))

    def last_published(self) -> int | None:
        """The newest published epoch."""
        return self._server.patiently(self._last)

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``, None if nobody published it."""
        return self._server.patiently(lambda connection: self._fence(connection, epoch))

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """An Arrow file beside the store: the rows enter the database in the driver's one transaction."""
        return self._stage.stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Insert the rows and the fence, or nothing if the fence is there."""
        published = self._server.patiently(lambda connection: self._insert(connection, wanted, output, holder))
        self._stage.remove(output)
        return published

    def rows(self, epoch: int) -> pa.Table | None:
        """The published rows of one epoch; with a key they may have been replaced since."""
        if self._spec.key or self.publication(epoch) is None:
            return None
        return self._server.patiently(
            lambda connection: _select(connection, self._names, self._stage.schema(), [epoch])
        )

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        return self._stage.sweep(dead)

    def close(self) -> None:
        """Let the connection go."""
        self._server.close()

    def _check_columns(self, schema: pa.Schema) -> None:
        place = f"table {self._spec.table}"
        check_names(place, schema, EPOCH_COLUMN)
        check_names(place, schema, ROW_COLUMN)
        check_key(place, self._spec.key, schema)
        long = [name for name in schema.names if len(name.encode()) > 63]
        if long:
            raise ConnectError("LS0501", f"Postgres cuts names after 63 bytes: {long[0]}", hint="rename the column.")

    def _prepare(self, connection: Connection, schema: pa.Schema) -> None:
        with connection.transaction():
            # Two replicas that open a new sink at once: "IF NOT EXISTS" alone lets the second one fail.
            run(connection, "SELECT pg_advisory_xact_lock(hashtext('lockstep'))")
            for name, columns in _TABLES.items():
                if not _exists(connection, self._names.beside(name)):
                    run(connection, f"CREATE TABLE {self._names.beside(name)} ({columns})")
            if self._is_mine(connection, schema):
                self._check_table(connection, schema)
            else:
                self._create(connection, schema)

    def _is_mine(self, connection: Connection, schema: pa.Schema) -> bool:
        """Whether the table is there and ours; False if there is none."""
        place = f"table {self._spec.table} in Postgres"
        query = "SELECT format_version, job, sink, arrow_schema, key FROM {} WHERE table_name = %s"
        row = run(connection, query.format(self._names.sinks), (self._spec.table,)).fetchone()
        if row is None:
            if _exists(connection, self._names.table):
                raise made_by_others(place)
            return False
        stored = Owner(row[1], row[2], row[3], tuple(json.loads(row[4])), row[0])
        check_owner(place, stored, Owner(self._job, self._sink, schema_text(schema), self._spec.key, FORMAT_VERSION))
        return True

    def _check_table(self, connection: Connection, schema: pa.Schema) -> None:
        """LS0512 if somebody changed the table since: each column has to be there, in its type."""
        query = (
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        )
        there = dict(run(connection, query, (self._names.text(self._names.table),)).fetchall())
        wanted = {field.name: column_type(field.type) for field in schema} | {EPOCH_COLUMN: "bigint"}
        check_unchanged(f"table {self._spec.table} in Postgres", there, wanted, "change it back (ALTER TABLE)")

    def _create(self, connection: Connection, schema: pa.Schema) -> None:
        columns = [f"{quoted(field.name)} {column_type(field.type)}" for field in schema]
        columns.append(f"{EPOCH_COLUMN} bigint NOT NULL")
        if self._spec.key:
            _check_key_version(connection.info.server_version)
            columns.append(f"UNIQUE NULLS NOT DISTINCT ({', '.join(map(quoted, self._spec.key))})")
        run(connection, f"CREATE TABLE {self._names.table} ({', '.join(columns)})")
        if not self._spec.key:
            run(connection, f"CREATE INDEX ON {self._names.table} ({EPOCH_COLUMN})")
        mine = (
            self._spec.table,
            FORMAT_VERSION,
            self._job,
            self._sink,
            schema_text(schema),
            json.dumps(self._spec.key),
        )
        run(connection, f"INSERT INTO {self._names.sinks} VALUES (%s, %s, %s, %s, %s, %s)", mine)  # noqa: S608

    def _last(self, connection: Connection) -> int | None:
        query = f'SELECT max("epoch") FROM {self._names.epochs} WHERE table_name = %s'  # noqa: S608
        newest: int | None = run(connection, query, (self._spec.table,)).fetchone()[0]
        return newest

    def _fence(self, connection: Connection, epoch: int) -> Publication | None:
        query = (
            f'SELECT {_FENCE_COLUMNS}, "first_epoch" FROM {self._names.epochs} '  # noqa: S608
            'WHERE table_name = %s AND "epoch" >= %s ORDER BY "epoch" LIMIT 1'
        )
        row = run(connection, query, (self._spec.table, epoch)).fetchone()
        if row is None:
            return None
        *values, first = row
        held = Publication(*values)
        if held.epoch == epoch:
            return held
        return Publication(epoch, held.digest, 0, "", held.version) if first is not None and first <= epoch else None

    def _insert(self, connection: Connection, wanted: Publication, output: Output, holder: Holder) -> Publication:
        if (held := self._fence(connection, wanted.epoch)) is not None:
            return held
        is_large = output.table is None or output.table.num_rows > ROWS_INSERTED_MAX
        with connection.transaction():
            if is_large:
                self._copy(connection, output)
            # From here on one publisher at a time. An attempt of ours whose answer was lost is over by then, too.
            query = f"SELECT 1 FROM {self._names.sinks} WHERE table_name = %s FOR UPDATE"  # noqa: S608
            run(connection, query, (self._spec.table,))
            if (held := self._fence(connection, wanted.epoch)) is not None:
                return held
            self._check_alive(connection, holder)
            check_order(f"table {self._spec.table} in Postgres", wanted.epoch, self._last(connection))
            if is_large:
                self._take_over(connection, self._names.staged, wanted.epoch, ())
            else:
                self._insert_rows(connection, output, wanted.epoch)
            published = replace(wanted, published_us=self._clock())
            marks = ", ".join("%s" for _ in range(len(_FENCE) + 1))
            statement = f"INSERT INTO {self._names.epochs} (table_name, {_FENCE_COLUMNS}) VALUES ({marks})"  # noqa: S608
            run(connection, statement, (self._spec.table, *astuple(published)))
            self._lengthen_run(connection, wanted.epoch - FENCES_KEPT)
        return published

    def _check_alive(self, connection: Connection, holder: Holder) -> None:
        """LS0534 for an incarnation whose replica has started anew since and published here."""
        noted = run(
            connection,
            f"INSERT INTO {self._names.publishers} AS known VALUES (%s, %s, %s) ON CONFLICT (table_name, replica) "  # noqa: S608
            "DO UPDATE SET incarnation = greatest(known.incarnation, excluded.incarnation) RETURNING incarnation",
            (self._spec.table, holder.replica, holder.incarnation),
        ).fetchone()[0]
        check_not_retired(f"table {self._spec.table}", holder, noted)

    def _insert_rows(self, connection: Connection, output: Output, epoch: int) -> None:
        """Few rows, in one statement. Not by ``executemany``: after its pipeline, a session that stood still with the
        lock was not ended by the server (tried with Postgres 15).
        """
        schema = self._stage.schema()
        rows = [row for batch in self._stage.batches(output) for row in _rows(batch)]
        at_once = max(1, PARAMETERS_MAX // (len(schema) + 1))
        for start in range(0, len(rows), at_once):
            part = rows[start : start + at_once]
            listed = ", ".join(_marks(schema) for _ in part)
            source = f"(VALUES {listed}) AS staged ({', '.join([*map(quoted, schema.names), ROW_COLUMN])})"
            values = [value for number, row in enumerate(part) for value in (*row, number)]
            self._take_over(connection, source, epoch, values)

    def _take_over(self, connection: Connection, source: str, epoch: int, values: Sequence[Any]) -> None:
        """Delete what is taken back in ``source``, and write the rest; ``values`` are those that it stands for."""
        schema, key = self._stage.schema(), self._spec.key
        columns = own_columns(schema).names
        if CHANGED in schema.names:
            run(connection, _delete(self._names, key, source), tuple(values))
            source = f"(SELECT * FROM {source} WHERE {CHANGED} > 0) AS begun"  # noqa: S608
        run(connection, _merge(self._names, columns, key, source), (epoch, *values))

    def _copy(self, connection: Connection, output: Output) -> None:
        schema = self._stage.schema()
        columns = [f"{quoted(field.name)} {column_type(field.type)}" for field in schema]
        # Once for a connection: a new one for every epoch would wear out the server's own catalogue.
        definition = ", ".join([*columns, f"{ROW_COLUMN} bigint"])
        run(
            connection,
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {self._names.staged} ({definition}) ON COMMIT DELETE ROWS",
        )
        names = ", ".join([*map(quoted, schema.names), ROW_COLUMN])
        count = 0
        statement = f"COPY {self._names.staged} ({names}) FROM STDIN"
        with connection.cursor() as cursor, cursor.copy(Names.text(statement).encode()) as copy:
            for batch in self._stage.batches(output):
                for number, row in enumerate(_rows(batch), count):
                    copy.write_row((*row, number))
                count += batch.num_rows

    def _lengthen_run(self, connection: Connection, epoch: int) -> None:
        """Let the fence of an epoch without rows stand for the one before it too, if that had none either."""
        epochs = self._names.epochs
        merged = run(
            connection,
            f'SELECT coalesce(earlier."first_epoch", earlier."epoch") FROM {epochs} earlier '  # noqa: S608
            f'JOIN {epochs} later ON earlier.table_name = later.table_name AND earlier."epoch" = later."epoch" - 1 '
            'WHERE later.table_name = %s AND later."epoch" = %s AND earlier."rows" = 0 AND later."rows" = 0 '
            "AND earlier.digest = later.digest AND earlier.version = later.version",
            (self._spec.table, epoch),
        ).fetchone()
        if merged is None:
            return
        where = f'{epochs} WHERE table_name = %s AND "epoch" = %s'
        run(connection, f"DELETE FROM {where}", (self._spec.table, epoch - 1))  # noqa: S608
        update = f'UPDATE {epochs} SET "first_epoch" = %s WHERE table_name = %s AND "epoch" = %s'  # noqa: S608
        run(connection, update, (merged[0], self._spec.table, epoch))


class Names:
    """The names of a sink's tables as statements take them; all are in the schema of the user's table.

    >>> Names("sales.totals").table, Names("sales.totals").epochs, Names("totals").epochs
    ('"sales"."totals"', '"sales"."_lockstep_epochs"', '"_lockstep_epochs"')
    """

    def __init__(self, table: str) -> None:
        schema, _, name = table.rpartition(".")
        self._prefix = f"{quoted(schema)}." if schema else ""
        self.table = f"{self._prefix}{quoted(name)}"
        self.staged = quoted(f"_lockstep_staged_{hashlib.sha256(table.encode()).hexdigest()[:16]}")
        self.sinks = self.beside("_lockstep_sinks")
        self.epochs = self.beside("_lockstep_epochs")
        self.publishers = self.beside("_lockstep_publishers")

    def beside(self, name: str) -> str:
        """Another table in the same schema."""
        return f"{self._prefix}{quoted(name)}"

    @staticmethod
    def text(name: str) -> str:
        """A name as a value, or in a statement without values."""
        return name.replace("%%", "%")


def quoted(name: str) -> str:
    """A name as a statement with values takes it.

    >>> quoted('50% "a" day')
    '"50%% ""a"" day"'
    """
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def read_postgres(server: str, table: str, epochs: Iterable[int] | None = None, password_env: str = "") -> pa.Table:
    """The published rows of a Postgres sink, in epoch order, in the types they were written with."""
    names, found = Names(table), Server(server, password_env)

    def act(connection: Connection) -> pa.Table:
        row = None
        if _exists(connection, names.sinks):
            query = f"SELECT arrow_schema FROM {names.sinks} WHERE table_name = %s"  # noqa: S608
            row = run(connection, query, (table,)).fetchone()
        if row is None:
            raise ConnectError("LS0513", f"nothing was ever published in table {table} of this Postgres database")
        return _select(connection, names, schema_of(row[0]), None if epochs is None else sorted(set(epochs)))

    try:
        return found.patiently(act)
    finally:
        found.close()


def _select(connection: Connection, names: Names, schema: pa.Schema, epochs: list[int] | None) -> pa.Table:
    columns = ", ".join(selected(quoted(field.name), field.type) for field in schema)
    chosen = "" if epochs is None else f"WHERE {EPOCH_COLUMN} = ANY(%s)"
    query = f"SELECT {columns} FROM {names.table} {chosen} ORDER BY {EPOCH_COLUMN}, ctid"  # noqa: S608
    found = run(connection, query, () if epochs is None else (epochs,)).fetchall()
    values: list[Sequence[Any]] = list(zip(*found, strict=True)) if found else [()] * len(schema)
    return pa.Table.from_arrays(
        [from_postgres(column, field.type) for column, field in zip(values, schema, strict=True)], schema=schema
    )


def _merge(names: Names, columns: Sequence[str], key: Sequence[str], source: str) -> str:
    """Everything that is in ``source``, of each key the last row; the epoch is the first value."""
    listed = list(map(quoted, columns))
    insert = f"INSERT INTO {names.table} ({', '.join([EPOCH_COLUMN, *listed])})"
    if not key:
        return f"{insert} SELECT %s::bigint, {', '.join(listed)} FROM {source} ORDER BY {ROW_COLUMN}"  # noqa: S608
    keys = ", ".join(map(quoted, key))
    newest = f"SELECT DISTINCT ON ({keys}) %s::bigint, {', '.join(listed)} FROM {source}"  # noqa: S608
    # The key's own columns too: two zeros are one key, and the newer row has its own.
    changes = ", ".join(f"{name} = excluded.{name}" for name in (EPOCH_COLUMN, *listed))
    return f"{insert} {newest} ORDER BY {keys}, {ROW_COLUMN} DESC ON CONFLICT ({keys}) DO UPDATE SET {changes}"


def _delete(names: Names, key: Sequence[str], source: str) -> str:
    """Every row with a key that is taken back in ``source``; null is a value like any other."""
    same = " AND ".join(f"held.{quoted(name)} IS NOT DISTINCT FROM gone.{quoted(name)}" for name in key)
    gone = f"(SELECT * FROM {source} WHERE {CHANGED} < 0) AS gone"  # noqa: S608
    return f"DELETE FROM {names.table} AS held USING {gone} WHERE {same}"  # noqa: S608


def _rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*[to_postgres(column) for column in batch.columns], strict=True))


def _marks(schema: pa.Schema) -> str:
    return f"({', '.join([f'%s::{column_type(field.type)}' for field in schema] + ['%s::integer'])})"


def _exists(connection: Connection, name: str) -> bool:
    return run(connection, "SELECT to_regclass(%s)", (Names.text(name),)).fetchone()[0] is not None


def _check_key_version(version: int) -> None:
    if version < KEY_VERSION_MIN:
        raise ConnectError(
            "LS0535",
            f"Postgres {version // 10_000} cannot hold a table with a key",
            why="null is a value of a key like any other, and Postgres can keep such keys apart from version 15 on.",
            hint="upgrade the server, or leave key= out.",
        )
