"""Servers that the whole ring shares: started once, ended with it; skipped, with the reason, if one cannot be had."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep import services
from lockstep.connect.protocols import Place
from tests.cluster.broker import Broker
from tests.cluster.publishing import with_replicas
from tests.cluster.remote import BUCKET, CREDENTIALS, moto

GIVEN = "LOCKSTEP_TEST_KAFKA"
"""The address of a broker that is there already; its topics are made under names of their own and stay."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[services.Service]:
    """A Postgres of its own."""
    if (why_not := services.missing("postgres")) is not None:
        pytest.skip(why_not)
    with services.running("postgres") as there:
        yield there["postgres"]


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[services.Service]:
    """An ensemble of three; a test that hurts a member starts it again."""
    if (why_not := services.missing("zookeeper")) is not None:
        pytest.skip(why_not)
    with services.running("zookeeper=3") as there:
        yield there["zookeeper"]


@pytest.fixture
def store_address(zookeeper: services.Service) -> str:
    """A place of its own in the ensemble."""
    return f"zookeeper://{zookeeper.address}/lockstep/{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for all tests."""
    if given := os.environ.get(GIVEN):
        yield Broker(given)
        return
    if (why_not := services.missing("kafka")) is not None:
        pytest.skip(why_not)
    with services.running("kafka") as there:
        yield Broker(there["kafka"].address, there["kafka"].nodes[0])


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    """Makes topics under new names."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        broker.make(name, partitions, config)
        return name

    return make


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project folder of its own, and a job whose first incarnations of r0 and r1 live."""
    return with_replicas(Place(tmp_path, tmp_path / ".lockstep", "job"))


@pytest.fixture(scope="session")
def hdfs() -> Iterator[services.Service]:
    """A name node and a data node."""
    if (why_not := services.missing("hdfs")) is not None:
        pytest.skip(why_not)
    with services.running("hdfs") as there:
        yield there["hdfs"]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store that speaks like S3, with one bucket."""
    with moto(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of its own, where the test's parameter says: "hdfs" or "s3"."""
    name = f"tests/{uuid.uuid4().hex[:12]}/out"
    if request.param == "hdfs":
        service: services.Service = request.getfixturevalue("hdfs")
        return f"{service.address}/{name}"
    for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": request.getfixturevalue("s3")}.items():
        monkeypatch.setenv(key, value)
    return f"s3a://{BUCKET}/{name}"


@pytest.fixture
def checkpoints(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address of its own for checkpoints, where the test's parameter says: "hdfs" or "s3"."""
    name = f"tests/{uuid.uuid4().hex[:12]}/lockstep"
    if request.param == "hdfs":
        service: services.Service = request.getfixturevalue("hdfs")
        settings = service.nodes[0].log.parent
        monkeypatch.setenv("HADOOP_CONF_DIR", str(settings))
        name_node = re.search(r"hdfs://[\w.]+:\d+", (settings / "core-site.xml").read_text(encoding="utf-8"))
        assert name_node is not None
        return f"{name_node[0]}/{name}"
    for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": request.getfixturevalue("s3")}.items():
        monkeypatch.setenv(key, value)
    return f"s3a://{BUCKET}/{name}"
