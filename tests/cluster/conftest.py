"""Real servers for the cluster ring: one broker for all its tests; skipped, with the reason, where none can be had."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.connect.protocols import Place
from tests.cluster.broker import Broker

GIVEN = "LOCKSTEP_TEST_KAFKA"
"""The address of a broker that is there already; its topics are made under names of their own and stay."""


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if given := os.environ.get(GIVEN):
        yield given
        return
    pytest.importorskip("lockstep.services", reason=f"no broker: set {GIVEN}=host:port")
    from lockstep import services

    with services.running("kafka", folder=tmp_path_factory.mktemp("services")) as there:
        yield there["kafka"].address


@pytest.fixture
def broker(servers: str) -> Broker:
    pytest.importorskip("confluent_kafka", reason="pip install 'lockstep[kafka]'")
    return Broker(servers)


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        broker.make(name, partitions, config)
        return name

    return make


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path / ".lockstep", "job")
