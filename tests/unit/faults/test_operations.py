"""The injected layer between Lockstep and a real SQLite store."""

from __future__ import annotations

import errno
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.clock import US_PER_S, wall_us
from lockstep.errors import StoreError
from lockstep.faults.orders import Orders, StoreOrder
from lockstep.faults.switch import Switch, switch
from lockstep.runtime.reporting import Reporter
from lockstep.store.protocols import Entry, Store
from lockstep.store.sqlite_store import SqliteStore, open_store

SOON_US = wall_us() + 3600 * US_PER_S


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "faults")


@pytest.fixture
def store(tmp_path: Path, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(switch, "folder", orders.folder)
    monkeypatch.setattr(switch, "who", "supervisor")
    monkeypatch.setattr("lockstep.faults.operations.LOOK_INTERVAL_S", 0.0)
    opened = open_store(tmp_path, "job")
    yield opened
    opened.close()


def entry(epoch: int) -> Entry:
    return Entry(epoch, epoch_time_us=1000 + epoch, cut={"in": {"0": epoch}})


def test_without_orders_the_store_is_as_it_was_and_says_that_faults_are_on(store: Store) -> None:
    holder = store.begin("r0", pid=1)
    assert store.seal(entry(0), holder).sealed_by == "r0.1"
    assert store.head() == store.entry(0)
    assert [(kind, replica) for _, _, kind, replica, _ in store.events()] == [("faults-on", "r0")]


def test_every_operation_of_the_protocol_goes_through_the_orders(store: Store, orders: Orders) -> None:
    orders.give(StoreOrder("all", SOON_US, error="LS0404"))
    names = {name for base in Store.__mro__ for name in vars(base) if not name.startswith("_")} - {"close"}
    assert names >= {"seal", "head", "acquire", "report", "add_digests", "swap_fact", "begin"}
    for name in names:
        with pytest.raises(StoreError, match="LS0404"):
            getattr(store, name)(*(["r0", 1] if name == "begin" else []))


def test_an_operation_that_fails_before_was_not_carried_out(store: Store, orders: Orders) -> None:
    holder = store.begin("r0", pid=1)
    orders.give(StoreOrder("locked", SOON_US, ("seal",), error="LS0413", times_max=1))
    with pytest.raises(StoreError, match="LS0413"):
        store.seal(entry(0), holder)
    assert store.head() is None
    store.seal(entry(0), holder)
    assert store.head() is not None


def test_an_operation_that_fails_after_was_carried_out_and_can_be_repeated(store: Store, orders: Orders) -> None:
    holder = store.begin("r0", pid=1)
    orders.give(StoreOrder("lost-answer", SOON_US, ("seal",), error="LS0404", after=True, times_max=1))
    with pytest.raises(StoreError, match="carried out"):
        store.seal(entry(0), holder)
    head = store.head()
    assert head is not None
    assert store.seal(entry(0), holder) == head


def test_only_the_replica_that_is_named_is_hit(store: Store, orders: Orders) -> None:
    orders.give(StoreOrder("r1-only", SOON_US, ("head",), replica="r1", error="LS0404"))
    store.begin("r0", pid=1)
    store.head()
    store.begin("r1", pid=2)  # what a process registers tells whose it is
    with pytest.raises(StoreError, match="LS0404"):
        store.head()


def test_a_delay_delays_and_ends_with_its_time_and_when_it_is_taken_back(
    store: Store, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("lockstep.faults.operations.time.sleep", slept.append)
    orders.give(StoreOrder("past", wall_us() - 1, ("head",), delay_s=9))
    orders.give(StoreOrder("slow", SOON_US, ("head",), delay_s=0.25))
    store.head()
    assert slept == [0.25]
    orders.take_back("slow")
    store.head()
    assert slept == [0.25]


def test_chance_decides_about_each_operation(store: Store, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.give(StoreOrder("sometimes", SOON_US, ("head",), error="LS0404", chance=0.25))
    outcomes = []
    for drawn in (0.1, 0.9, 0.24, 0.25):
        monkeypatch.setattr(store._interference, "_chance", lambda drawn=drawn: drawn)  # type: ignore[attr-defined]
        try:
            store.head()
            outcomes.append("fine")
        except StoreError:
            outcomes.append("failed")
    assert outcomes == ["failed", "fine", "failed", "fine"]


def test_while_faults_are_off_there_is_no_layer_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "folder", Switch({}).folder)
    store = open_store(tmp_path, "job")
    assert type(store) is SqliteStore
    store.close()


def test_a_store_that_is_busy_looks_for_orders_now_and_then_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Orders] = []

    def pending(orders: Orders) -> list[StoreOrder]:
        looks.append(orders)
        return []

    monkeypatch.setattr("lockstep.faults.operations.LOOK_INTERVAL_S", 60.0)
    monkeypatch.setattr(Orders, "pending", pending)
    for _ in range(50):
        store.head()
    assert len(looks) <= 1


class FullDisk(io.StringIO):
    """A log that cannot be written."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_replica_goes_on_reporting_when_neither_store_nor_log_could_be_written(
    store: Store, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.runtime.reporting.INTERVAL_S", 0.01)
    monkeypatch.setattr("sys.stderr", FullDisk())
    holder = store.begin("r0", pid=1)
    orders.give(StoreOrder("full", SOON_US, ("report",), error="LS0404", times_max=3))
    reporter = Reporter(store, holder, on_retired=lambda: None, lead_epochs=50)
    reporter.start()
    deadline_s = time.monotonic() + 20
    while not store.progress() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    said = store.progress()
    reporter.stop("stopped")
    reporter.join()
    assert [one.replica for one in said] == ["r0"]
    assert not orders.claim_one_of(StoreOrder("full", SOON_US, times_max=3)), "it had failed three times before"
