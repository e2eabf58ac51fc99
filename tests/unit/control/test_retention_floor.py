"""What may be forgotten, and what nobody may forget while somebody needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from lockstep.config import RunSettings
from lockstep.connect.protocols import Place, SourceSide
from lockstep.connect.registry import source_side
from lockstep.connect.specs import JournalSource, journal
from lockstep.control.supervise.retention import floor_epoch, forget
from lockstep.errors import StoreError
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.protocols import Entry, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.runtime.progress_for_runtime import said

SETTINGS = RunSettings(retention_epochs_min=10)
SPEC: JournalSource = journal("logins", schema="n bigint")


def test_the_slowest_replica_sets_the_floor() -> None:
    assert floor_epoch([said("r0", 90), said("r1", 40)], [], SETTINGS) == 30


def test_a_replica_that_is_down_still_counts_until_it_is_given_up() -> None:
    progress = [said("r0", 90), said("r1", 40, state="failed", said_ago_s=3600)]
    assert floor_epoch(progress, [], SETTINGS) == 30
    assert floor_epoch(progress, ["r1"], SETTINGS) == 80


def test_nothing_is_forgotten_while_a_replica_is_at_the_beginning_or_nobody_speaks() -> None:
    assert floor_epoch([said("r0", 90), said("r1", -1, state="starting")], [], SETTINGS) == 0
    assert floor_epoch([said("r0", 5)], [], SETTINGS) == 0
    assert floor_epoch([], [], SETTINGS) == 0


def test_nothing_is_forgotten_while_nobody_computes() -> None:
    """A crash may have left the only checkpoint damaged: then the job begins with the first epoch that is kept."""
    down = [said("r0", 90, state="failed"), said("r1", 40, state="starting")]
    assert floor_epoch(down, [], SETTINGS) == 0
    assert floor_epoch([said("r0", 90, state="catching-up"), down[1]], [], SETTINGS) == 30


class _Reader:
    """A job that reads the journal, one record per epoch."""

    def __init__(self, folder: Path, job: str) -> None:
        self.store: Store = open_store(folder, job)
        self.side: SourceSide = source_side(SPEC, Place(folder.parent, folder, job), "logins")
        self.side.start()
        holder = self.store.begin("r0", pid=1)
        for epoch in range(20):
            self.store.seal(Entry(epoch, epoch + 1, {"logins": {"0": epoch + 1}}, records=1), holder)

    def forget(self, floor: int) -> None:
        forget(self.store, {"logins": self.side}, floor)

    def close(self) -> None:
        self.side.close()
        self.store.close()


@pytest.fixture
def logins(tmp_path: Path) -> Iterator[SqliteJournal]:
    opened = open_journal(tmp_path / ".lockstep", "logins", SPEC.schema, 1)
    for n in range(20):
        opened.append(batch_from_pylist([{"n": n}], SPEC.schema))
    yield opened
    opened.close()


def test_ledger_and_journal_are_kept_from_the_floor_on(tmp_path: Path, logins: SqliteJournal) -> None:
    reader = _Reader(tmp_path / ".lockstep", "one")
    reader.forget(12)
    assert reader.store.floor() == 12
    assert reader.store.entry(11) is None and reader.store.entry(12) is not None
    # Epoch 12 begins with record 12: everything from there on can still be computed.
    assert logins.begins() == {0: 12}
    reader.forget(5)
    assert (reader.store.floor(), logins.begins()) == (12, {0: 12}), "a floor never sinks"
    reader.close()


def test_records_outlive_the_ledger_if_the_store_refuses_to_forget(tmp_path: Path, logins: SqliteJournal) -> None:
    reader = _Reader(tmp_path / ".lockstep", "one")

    class Full:
        """A store on a full disk: it can be read."""

        floor, entry = reader.store.floor, reader.store.entry

        def trim(self, floor: int) -> None:
            raise StoreError("LS0404", "the disk is full")

    with pytest.raises(StoreError):
        forget(cast("Store", Full()), {"logins": reader.side}, 12)
    assert logins.begins() == {0: 0}, "a replica that starts from epoch 0 still finds its records"
    reader.close()


def test_a_journal_read_by_two_jobs_is_kept_for_the_slower_one(tmp_path: Path, logins: SqliteJournal) -> None:
    quick, slow = (_Reader(tmp_path / ".lockstep", name) for name in ("quick", "slow"))
    quick.forget(15)
    assert quick.store.floor() == 15, "its own ledger does not wait for others"
    assert logins.begins() == {0: 0}
    slow.forget(4)
    assert logins.begins() == {0: 4}
    slow.forget(18)
    assert logins.begins() == {0: 15}
    quick.close()
    slow.close()


def test_a_job_that_has_begun_but_sealed_nothing_keeps_the_journal_whole(tmp_path: Path, logins: SqliteJournal) -> None:
    folder = tmp_path / ".lockstep"
    new = source_side(SPEC, Place(tmp_path, folder, "new"), "logins")
    new.start()
    quick = _Reader(folder, "quick")
    quick.forget(15)
    assert logins.begins() == {0: 0}
    new.close()
    quick.close()
