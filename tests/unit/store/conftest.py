from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.store.opening import address_in, open_hosts, open_store
from lockstep.store.protocols import Hosts, Store
from tests.unit.store.same_answers import HandClock

Opening = Callable[[], Store]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def opening(tmp_path: Path, clock: HandClock) -> Opening:
    """Opens the store of one and the same job. `tests/cluster` runs the same tests over ZooKeeper."""
    return lambda: open_store(address_in(tmp_path), "job", clock)


@pytest.fixture
def store(opening: Opening) -> Iterator[Store]:
    opened = opening()
    yield opened
    opened.close()


@pytest.fixture
def hosts(tmp_path: Path, clock: HandClock) -> Iterator[Hosts]:
    opened = open_hosts(address_in(tmp_path), clock)
    yield opened
    opened.close()
