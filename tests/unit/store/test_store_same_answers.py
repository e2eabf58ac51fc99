"""The store of the simulator and the embedded one give the same answers; `tests/cluster` adds ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.sim.memory_store import MemoryStore
from lockstep.store.opening import address_in, open_hosts, open_store
from lockstep.store.protocols import ANNOUNCED_S
from tests.unit.store.same_answers import HandClock, assert_same_answers


@pytest.mark.parametrize("seed", range(5))
def test_memory_and_sqlite_agree(tmp_path: Path, seed: int) -> None:
    clock = HandClock()
    embedded = open_store(address_in(tmp_path), "job", clock)
    try:
        assert assert_same_answers({"memory": MemoryStore(clock), "sqlite": embedded}, clock, seed, 300) > 200
    finally:
        embedded.close()


def test_a_host_that_is_silent_is_gone(tmp_path: Path) -> None:
    clock = HandClock()
    hosts = open_hosts(address_in(tmp_path), clock)
    hosts.announce("h1", {})
    clock.now_us += round(ANNOUNCED_S * 1_000_000)
    assert hosts.hosts() == {}
    hosts.close()
