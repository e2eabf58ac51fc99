"""Taking a job over where hosts share the store."""

from __future__ import annotations

from typing import cast

import pytest

from lockstep.control.coordinator.taking_over import LEASE_S, take_over
from lockstep.errors import RunError
from lockstep.runtime.desired_run import LEASE
from lockstep.runtime.steps import run
from lockstep.sim.memory_store import MemoryStore
from lockstep.store.protocols import Store


@pytest.fixture
def store() -> Store:
    return cast("Store", MemoryStore(lambda: 0))


def test_whoever_has_the_lease_gets_a_term(store: Store) -> None:
    assert store.acquire(LEASE, "h1", LEASE_S)
    assert run(take_over(store, "h1", lambda: None, is_shared=True)) == 1


def test_whoever_lost_the_lease_since_takes_it_from_nobody_and_gets_no_term(store: Store) -> None:
    assert store.acquire(LEASE, "h2", LEASE_S)
    with pytest.raises(RunError, match="LS0610"):
        run(take_over(store, "h1", lambda: None, is_shared=True))
    assert store.holder(LEASE) == "h2"
    assert run(take_over(store, "h2", lambda: None, is_shared=True)) == 1, "the first term"
