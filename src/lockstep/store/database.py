"""One SQLite file: its format version, its connections, its transactions, and its troubles in plain words.

Three kinds of connection, pooled so that threads never wait for each other's reads:

- *durable* writes (``synchronous=FULL``): on disk when the transaction returns;
- *relaxed* writes (``NORMAL``): atomic and ordered, but a power cut may take back the newest of them;
- reads, which never write. A reader therefore sees every commit as somebody else's, those of its own process too.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lockstep.clock import Clock
from lockstep.errors import StoreError
from lockstep.store.patience import PATIENCE_S, patience_s
from lockstep.store.pool import Pool
from lockstep.store.write_lock import write_lock_pid

PEEK_TIMEOUT_S = 1.0
"""How long a look into a file of another job waits for a writer: it can be taken again later."""
WAL_PAGES_MAX = 1_000
"""Pages in the log before a commit copies them into the file: 4 MB, a few milliseconds of work."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""A log that grew beyond this (a reader held it) is cut back when it is reused."""

Migration = Callable[[sqlite3.Connection], None]


@dataclass(frozen=True)
class Format:
    """A kind of file. Migration n turns version n into n + 1; version 0 is an empty file."""

    kind: str
    application_id: int
    """Stands in the file's header, so that a ledger is never opened as a journal, nor anything else as either."""
    migrations: tuple[Migration, ...]

    @property
    def version(self) -> int:
        """The version this Lockstep reads and writes."""
        return len(self.migrations)


class Database:
    """An open file of some format. Safe to use from several threads, and in a child after ``fork``."""

    def __init__(self, path: Path, format_: Format) -> None:
        self.path = path
        with troubles_explained(path):
            _prepare(path, format_)
        self._durable = Pool(lambda: _connect(path, "synchronous=FULL"))
        self._relaxed = Pool(lambda: _connect(path, "synchronous=NORMAL"))
        self._readers = Pool(lambda: _connect(path, "query_only=1"))

    @contextmanager
    def durable(self) -> Iterator[sqlite3.Connection]:
        """A write transaction that is on disk when it ends."""
        with troubles_explained(self.path), self._borrowed(self._durable) as connection, _transaction(connection):
            yield connection

    @contextmanager
    def relaxed(self) -> Iterator[sqlite3.Connection]:
        """A write transaction that is on disk a little later."""
        with troubles_explained(self.path), self._borrowed(self._relaxed) as connection, _transaction(connection):
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for single reads; hold it for no longer than they take."""
        with troubles_explained(self.path), self._borrowed(self._readers) as connection:
            yield connection

    @contextmanager
    def _borrowed(self, pool: Pool) -> Iterator[sqlite3.Connection]:
        """A connection that waits for others as long as its borrower would."""
        with pool.borrow() as connection:
            connection.execute(f"PRAGMA busy_timeout={round(patience_s() * 1000)}")
            yield connection

    def close(self) -> None:
        """Give all connections back."""
        for pool in (self._durable, self._relaxed, self._readers):
            pool.close()


@contextmanager
def peeking(path: Path, format_: Format) -> Iterator[sqlite3.Connection | None]:
    """A file that somebody else works with, for single reads: nothing is created, migrated or waited for.

    None if there is no such file, or nothing in it yet.
    """
    try:
        with troubles_explained(path), closing(_reading_only(path)) as connection:
            yield connection if _version(connection, path, format_) else None
    except sqlite3.Error as error:
        # Of a file of ours SQLite would say nothing else: a table of it is missing.
        raise _not_ours(path, f"SQLite says: {error}.") from error


def run_all(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    """Run statements one by one inside the transaction under way (``executescript`` would commit it)."""
    for statement in statements:
        connection.execute(statement)


@contextmanager
def troubles_explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system report about ``path`` into errors with a code and a way out."""
    try:
        yield
    except sqlite3.Error as error:
        explained = _explained(error, path)
        if explained is None:
            raise
        raise explained from error
    except OSError as error:
        raise _cannot_use(path, str(error)) from error


def _explained(error: sqlite3.Error, path: Path) -> StoreError | None:
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return _cannot_use(path, str(error))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreError(
            "LS0412",
            f"{path} cannot be written",
            why=f"{error}.",
            hint="give this user the right to write the folder, or work in another one.",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            "LS0413",
            f"{path} was locked by another process for {patience_s():g} seconds",
            why=f"a Lockstep transaction takes milliseconds: {_holder(path)} is stopped or stuck.",
            hint=f"find it with `fuser {path}`; let it go on, or end it.",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _not_ours(path, f"SQLite says: {error}.")
    if code == sqlite3.SQLITE_TOOBIG:
        return StoreError(
            "LS0403",
            "a record is too large",
            why="SQLite keeps at most 1 GB in one value.",
            hint="keep large things in files and put their path into the record.",
        )
    return None


def _holder(path: Path) -> str:
    pid = write_lock_pid(path)
    return "some process that has it open" if pid is None else f"process {pid}, which holds its write lock,"


def _cannot_use(path: Path, why: str) -> StoreError:
    return StoreError(
        "LS0404",
        f"{path} cannot be read or written",
        why=f"{why}.",
        hint="see whether the disk is full (`df -h`), still there, and may be used; then start again: nothing is lost.",
    )


def _not_ours(path: Path, why: str) -> StoreError:
    return StoreError(
        "LS0402", f"{path} is not a Lockstep file, or is damaged", why=why, hint="move it away, or restore a copy."
    )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    for pragma in (mode, f"wal_autocheckpoint={WAL_PAGES_MAX}", f"journal_size_limit={WAL_BYTES_KEPT}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def _reading_only(path: Path) -> sqlite3.Connection:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return sqlite3.connect(":memory:")
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=PEEK_TIMEOUT_S, isolation_level=None
    )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _prepare(path: Path, format_: Format) -> None:
    """Make sure that ``path`` is a file of this format and version, creating or migrating it."""
    _make_folder(path.parent)
    connection = _connect(path, "synchronous=FULL")
    try:
        if _version(connection, path, format_) < format_.version:
            _migrate(connection, path, format_)
        _use_wal(connection)
    finally:
        connection.close()


def _make_folder(folder: Path) -> None:
    """Create ``folder``, durably: a file that was acknowledged must not vanish with its folder's name."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for part in missing:
        handle = os.open(part.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _version(connection: sqlite3.Connection, path: Path, format_: Format) -> int:
    application_id, version, tables = _header(connection)
    if application_id == 0 and version == 0:
        if tables:
            raise _not_ours(path, "it is a SQLite database of some other program.")
        return 0
    if application_id != format_.application_id:
        raise _not_ours(path, f"it is not a {format_.kind} (its header says {application_id:#x}).")
    if version > format_.version:
        raise StoreError(
            "LS0401",
            f"{path} was written by a newer Lockstep",
            why=f"the {format_.kind} has format version {version}; this Lockstep knows up to {format_.version}.",
            hint="run the newer Lockstep, or use another folder. Nothing was changed.",
        )
    return version


def _header(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """What the file says of itself, and how many tables it has: as of one moment, since another may be making it."""
    begins = not connection.in_transaction
    if begins:
        connection.execute("BEGIN")
    try:
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        return _pragma(connection, "application_id"), _pragma(connection, "user_version"), tables
    finally:
        if begins:
            connection.execute("ROLLBACK")


def _migrate(connection: sqlite3.Connection, path: Path, format_: Format) -> None:
    """Bring the file to this version in one transaction: another process sees it before or after, never between."""
    with _transaction(connection):
        for migration in format_.migrations[_version(connection, path, format_) :]:
            migration(connection)
        connection.execute(f"PRAGMA application_id={format_.application_id}")
        connection.execute(f"PRAGMA user_version={format_.version}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, once per file.

    Two processes that switch at the same moment get "locked" at once, whatever the time-out, so it is tried again here.
    """
    give_up_at = time.monotonic() + patience_s()
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
            time.sleep(0.005)


class Part:
    """One protocol's worth of tables in a job's database, and the clock."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
