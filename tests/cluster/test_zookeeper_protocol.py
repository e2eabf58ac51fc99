"""The store in ZooKeeper keeps the protocol: the very tests that the embedded store passes, and the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.clock import US_PER_S, wall_us
from lockstep.errors import StoreError
from lockstep.sim.memory_store import MemoryStore
from lockstep.store.opening import address_in, list_jobs, open_hosts, open_store
from lockstep.store.protocols import Entry, Hosts, Item, Progress, Store
from lockstep.store.zookeeper.client import REQUEST_BYTES_MAX
from tests.unit.store.same_answers import HandClock, assert_same_answers
from tests.unit.store.test_store_hosts import *  # noqa: F403
from tests.unit.store.test_store_ledger import *  # noqa: F403
from tests.unit.store.test_store_parts import *  # noqa: F403


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def opening(store_address: str, clock: HandClock) -> Callable[[], Store]:
    return lambda: open_store(store_address, "job", clock)


@pytest.fixture
def store(opening: Callable[[], Store]) -> Iterator[Store]:
    opened = opening()
    yield opened
    opened.close()


@pytest.fixture
def hosts(store_address: str) -> Iterator[Hosts]:
    opened = open_hosts(store_address)
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(100, 103))
def test_memory_sqlite_and_zookeeper_agree(tmp_path: Path, store: Store, clock: HandClock, seed: int) -> None:
    embedded = open_store(address_in(tmp_path), "job", clock)
    try:
        three = {"memory": MemoryStore(clock), "sqlite": embedded, "zookeeper": store}
        assert assert_same_answers(three, clock, seed, 250) > 400
    finally:
        embedded.close()


def test_jobs_are_listed_once_they_have_a_store(store_address: str, store: Store) -> None:
    assert list_jobs(store_address) == []
    store.head()
    assert list_jobs(store_address) == ["job"]


def test_an_epoch_that_is_too_large_is_refused_before_it_is_sent(store: Store) -> None:
    holder = store.begin("r0", pid=1)
    items = [Item("files", position, {"path": f"{position}" * 50}) for position in range(6_000)]
    entry = Entry(0, 0, {"in": {"0": 1}})
    with pytest.raises(StoreError, match="LS0422") as raised:
        store.seal(entry, holder, items)
    assert f"{REQUEST_BYTES_MAX:,}" in str(raised.value)
    assert store.head() is None
    large = Entry(0, 0, {"in": {f"{partition}": partition for partition in range(60_000)}})
    assert store.seal(large, holder).cut == large.cut, "packed, it fits"


def test_what_a_host_says_whose_clock_is_minutes_off_is_as_old_as_it_is(store_address: str) -> None:
    store = open_store(store_address, "job")
    for minutes in (-5, 5):
        theirs_us = wall_us() + minutes * 60 * US_PER_S
        holder = store.begin("r0", pid=1)
        said = Progress("r0", holder.incarnation, 1, "running", 7, updated_us=theirs_us, moved_us=theirs_us - US_PER_S)
        store.report(said)
        (found,) = store.progress()
        assert abs(found.updated_us - wall_us()) < 3 * US_PER_S
        assert found.updated_us - found.moved_us == US_PER_S
    store.close()
