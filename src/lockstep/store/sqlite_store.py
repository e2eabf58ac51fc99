"""A job's store in one SQLite file: ledger, leases, replicas, record and facts put together."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from lockstep.clock import Clock, wall_us
from lockstep.faults.switch import switch
from lockstep.store.database import Database, Format, peeking, run_all
from lockstep.store.facts import FACTS_TABLES, SqliteFacts, read_fact
from lockstep.store.faulty import with_faults
from lockstep.store.home import JOBS_FOLDER, job_folder
from lockstep.store.leases import LEASES_TABLES, SqliteLeases
from lockstep.store.ledger import LEDGER_TABLES, SqliteLedger
from lockstep.store.protocols import Store
from lockstep.store.record import RECORD_TABLES, SqliteRecord
from lockstep.store.replicas import REPLICAS_TABLES, SqliteReplicas

LEDGER_FILE = "ledger.db"


def _create_tables(connection: sqlite3.Connection) -> None:
    for tables in (LEDGER_TABLES, LEASES_TABLES, REPLICAS_TABLES, RECORD_TABLES, FACTS_TABLES):
        run_all(connection, tables)


LEDGER_FORMAT = Format("ledger", int.from_bytes(b"LkLg"), (_create_tables,))
"""A change of the tables is a further function at the end; those that stand here are never edited once released."""


class SqliteStore(SqliteLedger, SqliteLeases, SqliteReplicas, SqliteRecord, SqliteFacts):
    """Implements :class:`lockstep.store.protocols.Store`."""

    def close(self) -> None:
        """Give the file back."""
        self._database.close()


def open_store(folder: Path, job: str, clock: Clock = wall_us) -> Store:
    """The store of ``job`` in the store's folder (".lockstep"), created if it is not there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(Path(folder), "failed-logins")
    ...     store.begin("r0", pid=1), store.begin("r0", pid=2)
    ...     store.close()
    (Holder(replica='r0', incarnation=1), Holder(replica='r0', incarnation=2))
    """
    store = SqliteStore(Database(ledger_file(folder, job), LEDGER_FORMAT), clock)
    return store if switch.folder is None else with_faults(store, switch.folder)


def peek_fact(folder: Path, job: str, key: str) -> str | None:
    """A fact of a job that somebody else runs, None if it has none; a :class:`StoreError` if that cannot be read."""
    with peeking(folder / JOBS_FOLDER / job / LEDGER_FILE, LEDGER_FORMAT) as connection:
        return read_fact(connection, key) if connection is not None else None


def ledger_file(folder: Path, job: str) -> Path:
    """The one file that the store of ``job`` is."""
    return job_folder(folder, job) / LEDGER_FILE


def list_jobs(folder: Path) -> list[str]:
    """The jobs that have a ledger in the store's folder, by name."""
    return sorted(path.parent.name for path in (folder / JOBS_FOLDER).glob(f"*/{LEDGER_FILE}"))
