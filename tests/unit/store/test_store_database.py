"""Files: versions, migrations, foreign files, troubles, threads and forks."""

from __future__ import annotations

import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.errors import StoreError
from lockstep.errors.page import all_pages
from lockstep.store.database import Database, Format, troubles_explained
from lockstep.store.hosts import SqliteHosts
from lockstep.store.journal import JOURNAL_FORMAT
from lockstep.store.names import checked_name
from lockstep.store.pool import Pool
from lockstep.store.sqlite_store import LEDGER_FORMAT, list_jobs, open_store


def create_notes(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE notes (text TEXT)")


def number_notes(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE notes ADD COLUMN number INTEGER")
    connection.execute("UPDATE notes SET number = rowid * 10")


FIRST = Format("notebook", 0x4E4F5445, (create_notes,))
SECOND = replace(FIRST, migrations=(create_notes, number_notes))


def test_an_older_file_is_migrated_with_its_rows(tmp_path: Path) -> None:
    old = Database(tmp_path / "notes.db", FIRST)
    with old.durable() as connection:
        connection.executemany("INSERT INTO notes VALUES (?)", [("a",), ("b",)])
    old.close()
    new = Database(tmp_path / "notes.db", SECOND)
    with new.reading() as connection:
        assert connection.execute("SELECT text, number FROM notes").fetchall() == [("a", 10), ("b", 20)]
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    new.close()


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE notes")
        raise RuntimeError("power cut")

    Database(tmp_path / "notes.db", FIRST).close()
    with pytest.raises(RuntimeError):
        Database(tmp_path / "notes.db", replace(FIRST, migrations=(create_notes, fails)))
    unchanged = Database(tmp_path / "notes.db", FIRST)
    with unchanged.reading() as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)
    unchanged.close()


def test_a_newer_file_is_refused_with_both_versions(tmp_path: Path) -> None:
    Database(tmp_path / "notes.db", SECOND).close()
    with pytest.raises(StoreError) as caught:
        Database(tmp_path / "notes.db", FIRST)
    assert caught.value.code == "LS0401"
    assert "version 2" in caught.value.why
    assert "up to 1" in caught.value.why


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path, "job").close()
    connection = sqlite3.connect(tmp_path / "jobs/job/ledger.db")
    connection.execute(f"PRAGMA user_version={LEDGER_FORMAT.version + 1}")
    connection.close()
    with pytest.raises(StoreError, match="LS0401"):
        open_store(tmp_path, "job")


def test_what_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_bytes(b"dear diary, " * 1000)
    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    journal = tmp_path / "journal.db"
    Database(journal, JOURNAL_FORMAT).close()
    for path in (text, foreign, journal):
        before = path.read_bytes()
        with pytest.raises(StoreError, match="LS0402"):
            Database(path, LEDGER_FORMAT)
        assert path.read_bytes() == before


def test_a_full_disk_is_explained_and_leaves_nothing_behind(tmp_path: Path) -> None:
    database = Database(tmp_path / "notes.db", FIRST)
    with pytest.raises(StoreError) as caught, database.durable() as connection:
        connection.execute("PRAGMA max_page_count=3")
        connection.execute("INSERT INTO notes VALUES (?)", ("x" * 100_000,))
    assert caught.value.code == "LS0404"
    assert "full" in caught.value.why
    with database.durable() as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)
        connection.execute("INSERT INTO notes VALUES ('the next one works')")
    database.close()


def test_a_file_that_may_only_be_read_is_explained(tmp_path: Path) -> None:
    database = Database(tmp_path / "notes.db", FIRST)
    with pytest.raises(StoreError, match="LS0412"), database.reading() as connection:
        connection.execute("INSERT INTO notes VALUES ('x')")
    database.close()


def test_a_lock_that_is_never_released_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    database = Database(path, FIRST)
    with database.durable():
        impatient = sqlite3.connect(path, timeout=0.01, isolation_level=None)
        with pytest.raises(StoreError, match="LS0413"), troubles_explained(path):
            impatient.execute("BEGIN IMMEDIATE")
        impatient.close()
    database.close()


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("a file is in the way")
    with pytest.raises(StoreError, match="LS0404"):
        open_store(tmp_path, "job")


def test_an_error_inside_a_transaction_takes_back_all_of_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "notes.db", FIRST)
    with pytest.raises(ZeroDivisionError), database.relaxed() as connection:
        connection.execute("INSERT INTO notes VALUES ('x')")
        1 / 0  # noqa: B018
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)
    database.close()


def test_durable_connections_sync_fully_and_relaxed_ones_do_not(tmp_path: Path) -> None:
    database = Database(tmp_path / "notes.db", FIRST)
    with database.durable() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with database.relaxed() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
    database.close()


def test_a_store_is_used_by_many_threads_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path, "job")

    def work(name: str) -> None:
        for number in range(20):
            store.put_fact_if_absent(f"{name}-{number}", name)
            assert store.fact(f"{name}-{number}") == name

    threads = [threading.Thread(target=work, args=(f"t{index}",)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(store.fact(f"t{index}-{number}") for index in range(8) for number in range(20))
    store.close()


def in_child(work: object) -> int:
    """Run ``work()`` in a forked child; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()  # type: ignore[operator]
            os._exit(0)
        except StoreError as error:
            os._exit(int(error.code[-2:]))
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_opens_connections_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path, "job")
    store.set_fact("who", "parent")

    def work() -> None:
        assert store.fact("who") == "parent"
        store.set_fact("who", "child")

    assert in_child(work) == 0
    assert store.fact("who") == "child"
    store.set_fact("who", "parent again")
    store.close()


def test_a_child_forked_in_the_middle_of_a_transaction_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.store.pool.FORK_WAIT_S", 0.01)
    database = Database(tmp_path / "notes.db", FIRST)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with database.durable() as connection:
            connection.execute("INSERT INTO notes VALUES ('x')")
            entered.set()
            leave.wait()

    def work() -> None:
        with database.durable():
            raise AssertionError("the child must not get here")

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait()
    assert in_child(work) == 16
    leave.set()
    holder.join()
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (1,)
    database.close()


def test_connections_are_lent_again_and_closed_after_trouble(tmp_path: Path) -> None:
    pool = Pool(lambda: sqlite3.connect(tmp_path / "x.db", check_same_thread=False))
    with pool.borrow() as first:
        pass
    with pool.borrow() as second:
        assert second is first
    with pytest.raises(sqlite3.OperationalError), pool.borrow() as third:
        third.execute("SELECT nonsense")
    with pool.borrow() as fourth:
        assert fourth is not first
    pool.close()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "end.", "-x", "a b", "ä", "a\n", "x" * 101])
def test_names_that_would_be_bad_folders_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="LS0411"):
        open_store(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "logins", "failed-logins", "a.b_c-1", "_x", "x" * 100])
def test_ordinary_names_are_taken(name: str) -> None:
    assert checked_name("job", name) == name


def test_jobs_are_listed_by_name(tmp_path: Path) -> None:
    assert list_jobs(tmp_path) == []
    for name in ("b", "a"):
        open_store(tmp_path, name).close()
    assert list_jobs(tmp_path) == ["a", "b"]


def test_every_code_of_the_store_has_a_page() -> None:
    source = Path(__file__).parents[3] / "src/lockstep/store"
    text = "".join(path.read_text() for path in source.glob("*.py"))
    raised = {word for word in all_pages() if word in text}
    named = {text[at : at + 6] for at in range(len(text)) if text.startswith("LS04", at)}
    assert named == raised


def test_those_who_make_a_file_at_the_same_moment_take_each_other_for_what_they_are(tmp_path: Path) -> None:
    """Its two marks were read one after the other: half of a file that was being made was taken for another's."""
    failures: list[Exception] = []

    def make(folder: Path) -> None:
        try:
            SqliteHosts(folder).close()
        except StoreError as error:
            failures.append(error)

    for number in range(40):
        makers = [threading.Thread(target=make, args=[tmp_path / str(number)]) for _ in range(6)]
        for one in makers:
            one.start()
        for one in makers:
            one.join()
    assert failures == []
