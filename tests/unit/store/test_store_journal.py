"""The journal: positions, slices, turns, schemas, keys and trimming."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import StoreError
from lockstep.plan.schema import parse_schema
from lockstep.store.batches import COMPRESSED_FROM_BYTES, decoded, encoded, fingerprint, pieces
from lockstep.store.database import Database
from lockstep.store.journal import JOURNAL_FORMAT, SqliteJournal, _declared, list_journals, open_journal
from lockstep.store.protocols import Journal
from lockstep.store.types import arrow_schema

SCHEMA = parse_schema("n bigint")


def numbers(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, end), pa.int64())})


def read(journal: SqliteJournal, partition: int, start: int, end: int) -> list[int]:
    return [n for batch in journal.read(partition, start, end) for n in batch.column("n").to_pylist()]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    opened = open_journal(tmp_path, "j", SCHEMA)
    yield opened
    opened.close()


def test_a_journal_is_all_that_the_protocol_asks(journal: SqliteJournal) -> None:
    as_protocol: Journal = journal
    assert (as_protocol.partitions, as_protocol.ends(), as_protocol.begins()) == (1, {0: 0}, {0: 0})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=12), st.data())
def test_any_range_reads_what_was_appended_there(sizes: list[int], data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        journal = open_journal(Path(folder), "j", SCHEMA)
        total = 0
        for size in sizes:
            appended = journal.append(numbers(total, total + size))
            assert appended == ({0: (total, total + size)} if size else {})
            total += size
        start = data.draw(st.integers(0, total))
        end = data.draw(st.integers(start, total))
        assert read(journal, 0, start, end) == list(range(start, end))
        assert journal.ends() == {0: total}
        journal.close()


def test_a_large_append_is_stored_in_pieces_and_read_in_slices(journal: SqliteJournal, tmp_path: Path) -> None:
    journal.append(numbers(0, 25_000))
    database = sqlite3.connect(tmp_path / "journals/j/journal.db")
    assert database.execute("SELECT first, end FROM batches").fetchall() == [
        (0, 10_000),
        (10_000, 20_000),
        (20_000, 25_000),
    ]
    database.close()
    slices = [batch.num_rows for batch in journal.read(0, 9_990, 20_010)]
    assert max(slices) <= 10_000
    assert read(journal, 0, 9_990, 20_010) == list(range(9_990, 20_010))


def test_small_appends_are_read_together_up_to_the_limit(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.store.journal.RECORDS_PER_BATCH_MAX", 6)
    for first in range(0, 20, 2):
        journal.append(numbers(first, first + 2))
    assert [batch.num_rows for batch in journal.read(0, 1, 20)] == [5, 6, 6, 2]
    assert read(journal, 0, 1, 20) == list(range(1, 20))


def test_a_table_of_many_chunks_is_one_append(journal: SqliteJournal) -> None:
    table = pa.Table.from_batches([numbers(0, 3), numbers(3, 5)])
    assert journal.append(table) == {0: (0, 5)}
    assert read(journal, 0, 0, 5) == [0, 1, 2, 3, 4]


def test_appends_take_turns_between_partitions_also_from_another_process(tmp_path: Path) -> None:
    first = open_journal(tmp_path, "j", SCHEMA, partitions=3)
    second = open_journal(tmp_path, "j")
    assert second.partitions == 3
    used = [next(iter(journal.append(numbers(0, 1)))) for journal in (first, second, first, second, second, first)]
    assert used == [0, 1, 2, 0, 1, 2]
    assert first.append(numbers(0, 4), partition=1) == {1: (2, 6)}
    assert second.ends() == {0: 2, 1: 6, 2: 2}
    first.close()
    second.close()


def test_a_partition_that_is_not_there_is_refused(journal: SqliteJournal) -> None:
    for partition in (-1, 1):
        with pytest.raises(StoreError, match="LS0414"):
            journal.append(numbers(0, 1), partition=partition)


def test_a_batch_of_another_schema_is_refused_and_nothing_kept(journal: SqliteJournal) -> None:
    for wrong in (pa.record_batch({"n": pa.array([1], pa.int32())}), pa.record_batch({"m": pa.array([1])})):
        with pytest.raises(StoreError) as caught:
            journal.append(wrong)
        assert caught.value.code == "LS0403"
        assert "n bigint" in caught.value.why
    assert journal.ends() == {0: 0}


def test_ingestion_times_are_those_of_the_appends(tmp_path: Path) -> None:
    times = iter([100, 200, 150, 300])
    journal = open_journal(tmp_path, "j", SCHEMA, clock=lambda: next(times))
    for first in (0, 10, 20, 30):
        journal.append(numbers(first, first + 10))
    assert journal.ingested(0, 0, 40) == (100, 300)
    assert journal.ingested(0, 5, 6) == (100, 100)
    assert journal.ingested(0, 9, 11) == (100, 200)
    assert journal.ingested(0, 20, 30) == (200, 200), "a clock that was set back does not make times fall"
    assert journal.ingested(0, 5, 5) is None
    assert journal.ingested(0, 40, 50) is None
    journal.trim({0: 20})
    assert journal.ingested(0, 0, 25) == (200, 200)
    assert journal.ingested(0, 0, 20) is None
    journal.close()


def test_every_record_has_the_time_of_its_append(tmp_path: Path) -> None:
    times = iter([100, 200, 150, 300])
    journal = open_journal(tmp_path, "j", SCHEMA, clock=lambda: next(times))
    for first in (0, 10, 20, 30):
        journal.append(numbers(first, first + 10))
    each = [100] * 10 + [200] * 20 + [300] * 10
    for start, end in ((0, 40), (0, 1), (9, 11), (15, 35), (39, 40)):
        assert journal.arrivals(0, start, end).cast(pa.int64()).to_pylist() == each[start:end]
    journal.trim({0: 20})
    assert journal.arrivals(0, 20, 31).cast(pa.int64()).to_pylist() == each[20:31]
    journal.close()


def test_trimming_forgets_whole_batches_below_the_position(journal: SqliteJournal) -> None:
    for first in (0, 10, 20):
        journal.append(numbers(first, first + 10))
    assert journal.trim({0: 15}) == 10
    assert (journal.begins(), journal.ends()) == ({0: 10}, {0: 30})
    assert read(journal, 0, 10, 30) == list(range(10, 30))
    with pytest.raises(StoreError, match="LS0408"):
        read(journal, 0, 9, 12)
    assert journal.trim({0: 15}) == 0
    assert journal.trim({0: 99}) == 20
    assert journal.append(numbers(30, 31)) == {0: (30, 31)}
    assert read(journal, 0, 30, 31) == [30]


def test_trimming_goes_on_beyond_one_transaction(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.store.journal.BATCHES_PER_TRIM", 2)
    for first in range(7):
        journal.append(numbers(first, first + 1))
    assert journal.trim({0: 6}) == 6
    assert read(journal, 0, 6, 7) == [6]


def test_reading_beyond_the_end_is_an_error_not_an_empty_answer(journal: SqliteJournal) -> None:
    journal.append(numbers(0, 3))
    with pytest.raises(StoreError, match="LS0414"):
        read(journal, 0, 0, 4)
    with pytest.raises(StoreError, match="LS0414"):
        read(journal, 5, 0, 1)


def test_a_key_is_appended_once(journal: SqliteJournal, tmp_path: Path) -> None:
    assert journal.append_once(numbers(0, 2), "epoch 1")
    again = open_journal(tmp_path, "j")
    assert not again.append_once(numbers(0, 2), "epoch 1")
    assert again.append_once(numbers(2, 3), "epoch 2")
    assert read(journal, 0, 0, 3) == [0, 1, 2]
    again.close()


def test_a_key_outlives_its_records(journal: SqliteJournal) -> None:
    journal.append_once(numbers(0, 2), "old")
    journal.append_named(numbers(2, 4), "new")
    journal.trim({0: 4})
    assert journal.begins() == {0: 4}
    assert not journal.append_once(numbers(0, 2), "old")
    assert journal.append_named(numbers(2, 4), "new") == ({0: (2, 4)}, True)
    assert journal.ends() == {0: 4}


def test_the_newest_keys_are_remembered_and_no_more(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.store.journal.KEYS_KEPT", 3)
    for key in range(5):
        assert journal.append_once(numbers(key, key + 1), str(key))
    assert [journal.was_appended(str(key)) for key in range(5)] == [False, False, True, True, True]
    assert not journal.append_once(numbers(2, 3), "2"), "a repetition makes no other key older"
    assert journal.append_once(numbers(0, 1), "0"), "what was forgotten is written again"
    assert read(journal, 0, 0, 6) == [0, 1, 2, 3, 4, 0]


def test_a_name_is_told_the_same_place_again_also_with_several_partitions(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, "j", SCHEMA, partitions=3)
    first = [journal.append_named(numbers(n, n + 2), f"batch {n}") for n in range(4)]
    assert [repeated for _, repeated in first] == [False] * 4
    assert [place for place, _ in first] == [{0: (0, 2)}, {1: (0, 2)}, {2: (0, 2)}, {0: (2, 4)}]
    again = [journal.append_named(numbers(n, n + 2), f"batch {n}") for n in range(4)]
    assert again == [(place, True) for place, _ in first]
    assert journal.ends() == {0: 4, 1: 2, 2: 2}
    journal.close()


def test_other_records_under_a_name_that_is_taken_are_refused_and_the_rest_of_their_group_is_kept(
    journal: SqliteJournal,
) -> None:
    journal.append_named(numbers(0, 2), "batch")
    gate = threading.Barrier(5)
    refused: list[str] = []

    def work(index: int) -> None:
        gate.wait()
        try:
            journal.append_named(numbers(7, 9), "batch" if index == 0 else f"batch {index}")
        except StoreError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["LS0428"]
    assert read(journal, 0, 0, 10) == [0, 1, *[7, 8] * 4]


def test_an_empty_batch_takes_no_name(journal: SqliteJournal) -> None:
    assert journal.append_named(numbers(0, 0), "batch") == ({}, False)
    assert journal.append_named(numbers(0, 1), "batch") == ({0: (0, 1)}, False)


def test_names_and_own_keys_do_not_meet(journal: SqliteJournal) -> None:
    journal.append_once(numbers(0, 1), "orders.dead-letters/0")
    assert journal.append_named(numbers(1, 2), "orders.dead-letters/0") == ({0: (1, 2)}, False)


def test_a_journal_of_the_format_before_keeps_its_records_and_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "journals/j/journal.db"
    before = replace(JOURNAL_FORMAT, migrations=JOURNAL_FORMAT.migrations[:2])
    database = Database(path, before)
    assert _declared(database, SCHEMA, 1) is not None
    with database.durable() as connection:
        plain_bytes, body = encoded(numbers(0, 4))
        connection.execute("INSERT INTO bodies VALUES (1, ?, ?)", (plain_bytes, body))
        connection.execute("INSERT INTO batches VALUES (0, 0, 4, 10, 1)")
        connection.execute("UPDATE partitions SET end = 4, appends = 2, ingested_us = 10")
        connection.execute("INSERT INTO keys VALUES ('http:r1', 0, 0), ('letters/2', 0, 2)")
    database.close()
    journal = open_journal(tmp_path, "j")
    assert read(journal, 0, 0, 4) == [0, 1, 2, 3]
    assert journal.append_named(numbers(0, 2), "r1") == ({}, True), "where it ended was not kept"
    assert not journal.append_once(numbers(2, 4), "letters/2")
    assert journal.append_named(numbers(4, 5), "r2") == ({0: (4, 5)}, False)
    journal.close()


def test_a_journal_of_a_later_format_is_refused(journal: SqliteJournal, tmp_path: Path) -> None:
    later = sqlite3.connect(tmp_path / "journals/j/journal.db")
    later.execute(f"PRAGMA user_version={JOURNAL_FORMAT.version + 1}")
    later.close()
    with pytest.raises(StoreError, match="LS0401"):
        open_journal(tmp_path, "j")


def test_threads_that_append_the_same_key_append_it_once(journal: SqliteJournal) -> None:
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(journal.append_once(numbers(0, 1), "key"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True]
    assert journal.ends() == {0: 1}


def test_many_threads_append_and_every_call_has_its_own_positions(journal: SqliteJournal) -> None:
    placed: dict[int, tuple[int, int]] = {}

    def work(index: int) -> None:
        for step in range(20):
            first = (index * 20 + step) * 3
            placed[first] = journal.append(numbers(first, first + 3))[0]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert journal.ends() == {0: 8 * 20 * 3}
    for first, (start, end) in placed.items():
        assert read(journal, 0, start, end) == [first, first + 1, first + 2]


def test_a_forked_child_appends_too(journal: SqliteJournal) -> None:
    journal.append(numbers(0, 1))
    child = os.fork()
    if child == 0:
        try:
            journal.append(numbers(1, 2))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    journal.append(numbers(2, 3))
    assert read(journal, 0, 0, 3) == [0, 1, 2]


def test_another_schema_is_refused_with_the_difference(journal: SqliteJournal, tmp_path: Path) -> None:
    for text, difference in (
        ("n string", "n is bigint, not string"),
        ("n bigint, m int", "m (int) is new"),
        ("m int", "n (bigint) is missing"),
    ):
        with pytest.raises(StoreError) as caught:
            open_journal(tmp_path, "j", parse_schema(text))
        assert caught.value.code == "LS0409"
        assert difference in caught.value.why
    open_journal(tmp_path, "ab", parse_schema("a int, b int")).close()
    with pytest.raises(StoreError, match="another order"):
        open_journal(tmp_path, "ab", parse_schema("b int, a int"))


def test_an_unknown_journal_is_refused_with_those_there_are(journal: SqliteJournal, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        open_journal(tmp_path, "logins")
    assert caught.value.code == "LS0410"
    assert "there are: j." in caught.value.why
    assert list_journals(tmp_path) == ["j"]
    with pytest.raises(StoreError, match="no journals"):
        open_journal(tmp_path / "elsewhere", "logins")


def test_a_journal_keeps_its_schema_and_records_when_opened_again(tmp_path: Path) -> None:
    schema = parse_schema("user string, at timestamp, tags array<string>")
    first = open_journal(tmp_path, "j", schema)
    batch = pa.RecordBatch.from_pylist([{"user": "ann", "at": 5, "tags": ["a", None]}, {}], schema=first.schema)
    first.append(batch)
    first.close()
    second = open_journal(tmp_path, "j")
    assert second.schema == batch.schema
    assert next(second.read(0, 0, 2)).equals(batch)
    second.close()


def test_a_full_disk_refuses_the_append_and_keeps_what_was_there(journal: SqliteJournal) -> None:
    journal.append(numbers(0, 10))
    with journal._database.durable() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(StoreError, match="LS0404"):
        journal.append(numbers(10, 100_000))
    assert journal.ends() == {0: 10}
    assert read(journal, 0, 0, 10) == list(range(10))


@pytest.mark.parametrize("records", [1, 100, 20_000])
def test_a_batch_is_decoded_as_it_was_encoded_also_when_cut_from_a_larger_one(records: int) -> None:
    batch = numbers(0, records + 50).slice(25, records)
    plain_bytes, body = encoded(batch)
    assert decoded(plain_bytes, body, batch.schema).equals(batch)
    assert (plain_bytes > 0) == (records * 8 > COMPRESSED_FROM_BYTES)


def test_wide_records_are_stored_in_smaller_pieces() -> None:
    table = pa.table({"s": ["x" * 300] * 10})
    assert [piece.num_rows for piece in pieces(table, bytes_max=1000)] == [3, 3, 3, 1]


def test_a_fingerprint_depends_on_the_records_alone() -> None:
    schema = arrow_schema(
        parse_schema("s string, ok boolean, n bigint, t array<string>, m map<string,int>, p struct<x:int>")
    )
    rows = [
        {"s": f"é{n}", "ok": n % 3 == 0, "n": n, "t": [str(n), None], "m": [("a", n)], "p": {"x": n}} if n % 4 else {}
        for n in range(40)
    ]
    whole = pa.Table.from_pylist(rows, schema)
    seen = set()
    for start, end in ((0, 40), (0, 5), (3, 21), (17, 40), (9, 10), (8, 9)):
        alone = pa.Table.from_pylist(rows[start:end], schema)
        cut = pa.concat_tables([whole.slice(start, 1), whole.slice(start + 1, end - start - 1)])
        assert fingerprint(cut) == fingerprint(whole.slice(start, end - start)) == fingerprint(alone)
        seen.add(fingerprint(alone))
    assert len(seen) == 6
    beneath = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.array([7, 9]).buffers()[1]])
    assert beneath.to_pylist() == [7, None]
    assert fingerprint(pa.table({"n": beneath})) == fingerprint(pa.table({"n": pa.array([7, None], pa.int64())}))
