"""Journal, rate and collection: the same records for the same epochs, whoever reads them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.connect.protocols import Place, Slice
from lockstep.connect.registry import source_side
from lockstep.connect.sources.ranges import SLICE_RECORDS, fair_shares, split_range
from lockstep.connect.specs import collection, journal, rate
from lockstep.errors import StoreError
from lockstep.plan.schema import parse_schema
from lockstep.plan.specs import StageSource
from lockstep.store.journal import open_journal
from lockstep.store.sqlite_store import open_store
from tests.unit.connect.sealing_for_connect import SOURCE, Sealing

Make = Callable[[Any], Sealing]
NOW_US = 1_700_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _append(place: Place, partition: int, numbers: range, at_us: int) -> None:
    opened = open_journal(place.home, "log", parse_schema("n bigint"), 2, lambda: at_us)
    opened.append(pa.record_batch({"n": pa.array(list(numbers), pa.int64())}), partition)
    opened.close()


def test_a_journal_is_read_in_order_and_fairly(place: Place, sealing: Make) -> None:
    _append(place, 0, range(100), 10)
    _append(place, 1, range(1000, 1010), 20)
    job = sealing(journal("log", schema="n bigint", partitions=2))
    first = job.seal(NOW_US, records_max=40)
    assert dict(first.positions) == {"0": 30, "1": 10}
    assert (first.records, first.ingested_oldest_us, first.ingested_newest_us) == (40, 10, 20)
    assert [record["n"] for record in job.read(0)] == [*range(30), *range(1000, 1010)]
    assert [[r["n"] for r in epoch] for epoch in job.drain(NOW_US, 50)] == [[*range(30, 80)], [*range(80, 100)]]
    assert job.seal(NOW_US).records == 0


def test_a_journal_tells_when_each_record_came_in_whoever_reads_it_and_in_whatever_pieces(
    place: Place, sealing: Make
) -> None:
    for batch, at_us in ((range(3), 10), (range(3, 8), 20), (range(8, 9), 5)):
        _append(place, 0, batch, at_us)
    _append(place, 1, range(100, 102), 7)
    job = sealing(journal("log", schema="n bigint", partitions=2, timestamp_column="arrived"))
    came = {**dict.fromkeys(range(3), 10), **dict.fromkeys(range(3, 9), 20), 100: 7, 101: 7}
    epochs = job.drain(NOW_US, 4)
    assert len(epochs) > 1
    read = [(row["n"], (row["arrived"] - EPOCH) // timedelta(microseconds=1)) for epoch in epochs for row in epoch]
    assert sorted(read) == sorted(came.items())
    pieces = [row for at in range(9) for batch in job.side.read(Slice("0", at, at + 1, 1)) for row in batch.to_pylist()]
    assert [(row["arrived"] - EPOCH) // timedelta(microseconds=1) for row in pieces] == [came[n] for n in range(9)]


def test_a_journal_starts_at_its_oldest_kept_record(place: Place, sealing: Make) -> None:
    _append(place, 0, range(10), 1)
    _append(place, 0, range(10, 20), 2)
    job = sealing(journal("log", schema="n bigint", partitions=2))
    job.side.trim({"0": 10, "1": 0})
    assert job.side.start() == {"0": 10, "1": 0}
    assert [record["n"] for [*records] in job.drain(NOW_US) for record in records] == [*range(10, 20)]


def test_a_journal_keeps_what_another_job_still_needs(place: Place) -> None:
    for at in range(4):
        _append(place, 0, range(10 * at, 10 * at + 10), at)
    spec = journal("log", schema="n bigint", partitions=2)
    fast, slow = (source_side(spec, Place(place.project, place.home, job), SOURCE) for job in ("fast", "slow"))
    assert fast.start() == slow.start() == {"0": 0, "1": 0}
    slow.trim({"0": 20, "1": 0})
    assert fast.start() == {"0": 0, "1": 0}
    fast.trim({"0": 40, "1": 0})
    assert fast.start() == {"0": 20, "1": 0}
    fast.close()
    slow.close()


def test_whoever_only_reads_makes_no_journal(place: Place) -> None:
    """An executor whose disk is not the driver's would read its own empty one."""
    inside = StageSource("between", parse_schema("n bigint"))
    for spec in (journal("log", schema="n bigint"), inside):
        side = source_side(spec, place, SOURCE)
        with pytest.raises(StoreError, match="LS0410"):
            list(side.read(Slice("0", 0, 10, 10)))
        side.close()
    assert not [*place.home.rglob("journal.db")]


def _damaged(ledger: Path) -> None:
    ledger.write_bytes(b"no database at all" * 100)


def _of_a_newer_format(ledger: Path) -> None:
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("PRAGMA user_version=99")


def _without_its_tables(ledger: Path) -> None:
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("DROP TABLE facts")


def _unreadable(ledger: Path) -> None:
    ledger.unlink()
    ledger.symlink_to(ledger)


def _written(file: Path) -> tuple[int, ...]:
    """All that writing would change; reading may move the time of the last access."""
    found = file.lstat()
    return (found.st_ino, found.st_mode, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@pytest.mark.parametrize("harm", [_damaged, _of_a_newer_format, _without_its_tables, _unreadable])
def test_another_jobs_broken_store_costs_a_warning_and_trimming_that_waits(
    place: Place, harm: Callable[[Path], None]
) -> None:
    for at in range(4):
        _append(place, 0, range(10 * at, 10 * at + 10), at)
    spec = journal("log", schema="n bigint", partitions=2)
    mine, other = (source_side(spec, Place(place.project, place.home, job), SOURCE) for job in ("mine", "other"))
    mine.start()
    other.start()
    other.close()
    ledger = place.home / "jobs" / "other" / "ledger.db"
    kept = ledger.read_bytes()
    harm(ledger)
    before = _written(ledger)
    for _ in range(3):
        mine.trim({"0": 40, "1": 0})
    assert mine.start() == {"0": 0, "1": 0}
    assert _written(ledger) == before, "another job's file was touched"
    store = open_store(place.home, "mine")
    waits = [text for _, _, kind, _, text in store.events() if kind == "retention-waits"]
    assert len(waits) == 1 and "jobs/other/ledger.db" in waits[0]
    store.close()
    ledger.unlink()
    ledger.write_bytes(kept)
    other = source_side(spec, Place(place.project, place.home, "other"), SOURCE)
    other.trim({"0": 20, "1": 0})
    mine.trim({"0": 40, "1": 0})
    assert mine.start() == {"0": 20, "1": 0}
    mine.close()
    other.close()


def test_a_job_whose_ledger_is_gone_needs_no_journal_any_more(place: Place) -> None:
    for at in range(4):
        _append(place, 0, range(10 * at, 10 * at + 10), at)
    spec = journal("log", schema="n bigint", partitions=2)
    mine, other = (source_side(spec, Place(place.project, place.home, job), SOURCE) for job in ("mine", "other"))
    mine.start()
    other.start()
    other.close()
    (place.home / "jobs" / "other" / "ledger.db").unlink()
    (place.home / "jobs" / "stray-file").touch()
    mine.trim({"0": 40, "1": 0})
    assert mine.start() == {"0": 40, "1": 0}
    assert not (place.home / "jobs" / "other" / "ledger.db").exists()
    mine.close()


def test_rate_makes_what_is_due_and_replicas_agree_on_when_it_began(place: Place, sealing: Make) -> None:
    job = sealing(rate(10))
    assert job.seal(NOW_US).records == 1
    assert job.seal(NOW_US + 1_050_000).records == 10
    other = source_side(rate(10), place, SOURCE)
    began = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    expected = [{"seq": i, "at": began + timedelta(milliseconds=100 * i)} for i in range(1, 11)]
    assert job.read(1) == expected
    assert job.read(1, other) == expected
    late = other.advance(job.position(), 1000, NOW_US + 1_950_000)
    assert (late.ingested_oldest_us, late.ingested_newest_us) == (NOW_US + 1_100_000, NOW_US + 1_900_000)
    other.close()


def test_rate_respects_the_epoch_limit_and_its_own(sealing: Make) -> None:
    job = sealing(rate(1000, limit=25))
    job.seal(NOW_US)
    epochs = job.drain(NOW_US + 10_000_000, records_max=10)
    assert [len(epoch) for epoch in epochs] == [10, 10, 4]


@given(
    st.one_of(st.integers(1, 100_000_000), st.decimals("0.01", 999, places=2).map(float)),
    st.integers(0, 10_000_000_000),
)
def test_rate_counts_exactly_the_records_whose_time_has_come(per_second: float, elapsed_us: int) -> None:
    from pathlib import Path

    from lockstep.connect.sources.rate import RateSide
    from lockstep.connect.specs import RateSource

    side = RateSide(RateSource(per_second), Place(Path(), Path(), "job"), SOURCE)
    due = side._due(elapsed_us)
    assert side._at_us(0, due - 1) <= elapsed_us < side._at_us(0, due)


def test_a_collection_is_there_at_once_and_in_lists_one_per_epoch(sealing: Make) -> None:
    whole = sealing(collection([{"n": i} for i in range(5)], schema="n bigint"))
    assert [[r["n"] for r in epoch] for epoch in whole.drain(NOW_US)] == [[0, 1, 2, 3, 4]]


def test_a_collection_in_lists_never_mixes_them(sealing: Make) -> None:
    lists = [[{"n": 0}, {"n": 1}, {"n": 2}], [], [{"n": 3}]]
    job = sealing(collection(epochs=lists, schema="n bigint"))
    assert [[r["n"] for r in epoch] for epoch in job.drain(NOW_US, 2)] == [[0, 1], [2], [3]]


@given(st.dictionaries(st.integers(0, 9).map(str), st.integers(0, 1000), min_size=1), st.integers(1, 2000))
def test_shares_use_the_limit_and_leave_nobody_out(available: dict[str, int], limit: int) -> None:
    shares = fair_shares(available, limit)
    hungry = [name for name in available if available[name]]
    assert all(0 <= shares[name] <= available[name] for name in available)
    assert all(shares[name] > 0 for name in hungry)
    assert sum(shares.values()) == min(sum(available.values()), max(limit, len(hungry)))


@pytest.mark.parametrize("length", [0, 1, SLICE_RECORDS, SLICE_RECORDS + 1, 7 * SLICE_RECORDS - 3])
def test_slices_cover_their_range_exactly(length: int) -> None:
    pieces = split_range("0", 5, 5 + length)
    assert sum(piece.records for piece in pieces) == length
    assert all(0 < piece.records <= SLICE_RECORDS for piece in pieces)
    bounds = [5, *(piece.end for piece in pieces)]
    assert [piece.start for piece in pieces] == bounds[:-1]
