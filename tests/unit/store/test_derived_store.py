"""The store of a replica that derives: nothing waits for the shared one, which is told later and compared with."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.errors import StoreError
from lockstep.store.derived import DerivedStore, LocalLedger, open_ledger
from lockstep.store.protocols import Entry, Holder, Progress, Store
from lockstep.store.sqlite_store import ledger_file, open_store

WAIT_S = 20.0


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path, "job")
    yield opened
    opened.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Callable[[str], LocalLedger]]:
    opened: list[LocalLedger] = []

    def get(replica: str) -> LocalLedger:
        opened.append(open_ledger(tmp_path / replica / "derived.db"))
        return opened[-1]

    yield get
    for one in opened:
        one.close()


def entry(epoch: int, position: int | None = None) -> Entry:
    return Entry(epoch, 1000 * epoch, {"clicks": {"0": 10 * epoch if position is None else position}})


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def head(store: Store | DerivedStore) -> int:
    found = store.head()
    return -1 if found is None else found.epoch


def test_epochs_go_on_while_the_shared_store_is_locked_and_are_told_then(
    shared: Store, ledger: Callable[[str], LocalLedger], tmp_path: Path
) -> None:
    holder = shared.begin("r0", pid=1)
    own = DerivedStore(shared, ledger("r0"), holder)
    own.start()
    other = sqlite3.connect(ledger_file(tmp_path, "job"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun_s = time.monotonic()
    for epoch in range(20):
        own.seal(entry(epoch), holder)
        own.add_observed(epoch, {"event_time": epoch})
        own.report(Progress("r0", 1, 1, "running", epoch=epoch))
        own.add_event("kind", f"epoch {epoch}")
        assert own.wait(epoch, 1.0) == entry(epoch)
        assert own.observed(epoch) == {"event_time": epoch}
    assert time.monotonic() - begun_s < 2.0, "nothing waited for the lock"
    assert (head(own), head(shared)) == (19, -1)
    other.execute("ROLLBACK")
    other.close()
    wait_for(lambda: head(shared) == 19)
    assert [one.cut for one in shared.entries(0, 19)] == [entry(epoch).cut for epoch in range(20)]
    assert shared.observed(18) == {"event_time": 18}
    wait_for(lambda: [one.epoch for one in shared.progress()] == [19])
    wait_for(lambda: len([one for one in shared.events() if one[2] == "kind"]) == 20)
    own._told.stop()


def test_two_replicas_tell_one_ledger_and_find_out_if_they_differ(
    shared: Store, ledger: Callable[[str], LocalLedger]
) -> None:
    holders = [shared.begin(name, pid=1) for name in ("r0", "r1")]
    first, second = (DerivedStore(shared, ledger(one.replica), one) for one in holders)
    for epoch in range(5):
        first.seal(entry(epoch), holders[0])
        second.seal(entry(epoch), holders[1])
        second._told.tell()
        first._told.tell()
    assert head(shared) == 4
    assert head(first) == 4
    second.seal(entry(5), holders[1])
    second._told.tell()
    first.seal(entry(5, position=51), holders[0])
    first._told.tell()
    with pytest.raises(StoreError) as raised:
        first.seal(entry(6), holders[0])
    assert raised.value.code == "LS0425"
    assert "'0': 51" in str(raised.value) and "'0': 50" in str(raised.value)
    second.seal(entry(6), holders[1])


def test_what_one_replica_derives_late_is_compared_too(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    holders = [shared.begin(name, pid=1) for name in ("r0", "r1")]
    first, second = (DerivedStore(shared, ledger(one.replica), one) for one in holders)
    first._told.tell()
    for epoch in range(3):
        second.seal(entry(epoch), holders[1])
    second._told.tell()
    # The first one is behind: it asks before it has derived what the second one has told.
    first._told.tell()
    first.seal(entry(0), holders[0])
    first.seal(entry(1, position=11), holders[0])
    first._told.tell()
    assert first._told.disagreement is not None
    assert "epoch 1" in str(first._told.disagreement)


def test_who_sealed_first_and_when_records_came_may_differ(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    holders = [shared.begin(name, pid=1) for name in ("r0", "r1")]
    first, second = (DerivedStore(shared, ledger(one.replica), one) for one in holders)
    first.seal(replace(entry(0), sealed_by="r0.1", ingested_oldest_us=7), holders[0])
    first._told.tell()
    second.seal(replace(entry(0), sealed_by="r1.1"), holders[1])
    second._told.tell()
    assert second._told.disagreement is None


def test_a_seed_takes_its_entry_from_what_the_others_told(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    holders = [shared.begin(name, pid=1) for name in ("r0", "r1")]
    first, second = (DerivedStore(shared, ledger(one.replica), one) for one in holders)
    for epoch in range(4):
        first.seal(entry(epoch), holders[0])
        first.add_observed(epoch, {"event_time": epoch})
    first._told.tell()
    second.adopt(2, ["event_time"], timeout_s=0)
    assert second.entry(2) is not None
    assert second.observed(2) == {"event_time": 2}
    assert second.seal(entry(3), holders[1]) == entry(3)
    # What epoch 3 saw is told with epoch 4: until then nobody could derive the marks of that.
    third = DerivedStore(shared, ledger("r2"), shared.begin("r2", pid=1))
    with pytest.raises(StoreError) as raised:
        third.adopt(3, ["event_time"], timeout_s=0)
    assert raised.value.code == "LS0426"
    third.adopt(3, [], timeout_s=0)
    third.adopt(-1, ["event_time"], timeout_s=0)


def test_a_start_tells_what_the_one_before_could_not(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    own = ledger("r0")
    holder = shared.begin("r0", pid=1)
    died = DerivedStore(shared, own, holder)
    for epoch in range(3):
        died.seal(entry(epoch), holder)
    assert head(shared) == -1
    started = DerivedStore(shared, own, shared.begin("r0", pid=2))
    started.start()
    assert head(shared) == 2
    started._told.stop()


def test_one_that_was_replaced_tells_nothing(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    holder = shared.begin("r0", pid=1)
    own = DerivedStore(shared, ledger("r0"), holder)
    own._told.start()
    shared.begin("r0", pid=2)
    own.seal(entry(0), holder)
    own._told.join(WAIT_S)
    assert not own._told.is_alive()
    assert head(shared) == -1


def test_a_ledger_of_another_order_is_forgotten(ledger: Callable[[str], LocalLedger]) -> None:
    own = ledger("r0")
    own.belong_to("one")
    own.put(entry(0), {"event_time": 5})
    own.belong_to("one")
    assert own.entry(0) is not None
    own.belong_to("another")
    assert own.entry(0) is None
    assert own.observed(0) == {}


def test_old_entries_go_when_they_were_told(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    holder = shared.begin("r0", pid=1)
    own = DerivedStore(shared, ledger("r0"), holder)
    for epoch in range(650):
        own._ledger.put(entry(epoch))
    while head(shared) < 649:
        own._told.tell()
    own._told.tell()
    kept = own._ledger.entries(0, 649)
    assert 200 <= len(kept) < 500
    assert kept[-1].epoch == 649


def test_a_replica_that_is_behind_keeps_what_it_stands_at(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    holders = [shared.begin(name, pid=1) for name in ("r0", "r1")]
    for epoch in range(900):
        shared.seal(entry(epoch), holders[0])
    behind = DerivedStore(shared, ledger("r1"), holders[1])
    for epoch in range(450):
        behind._ledger.put(entry(epoch))
    behind._told.tell()
    kept = [one.epoch for one in behind._ledger.entries(0, 900)]
    assert kept == list(range(249, 450))


def test_everything_else_is_asked_of_the_shared_store(shared: Store, ledger: Callable[[str], LocalLedger]) -> None:
    own = DerivedStore(shared, ledger("r0"), Holder("r0", 1))
    shared.set_fact("version", "7")
    assert own.fact("version") == "7"
    assert own.floor() == 0
