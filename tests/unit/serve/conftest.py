"""A service in this process, over a real store with a job that has some history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lockstep.clock import wall_us
from lockstep.config import Settings
from lockstep.connect.put_back import SOURCES
from lockstep.control.start.drawing import DRAWING
from lockstep.plan.schema import parse_schema
from lockstep.runtime.desired_run import RUN_BEGAN, DesiredRun, note_desired
from lockstep.serve.app import create_app
from lockstep.serve.limits import Limits
from lockstep.serve.service import Service
from lockstep.serve.tokens import TokenBook
from lockstep.store.journal import open_journal
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Digest, Entry, Holder, Progress, Published, Store

JOB = "logins"
EPOCHS = 5
LOCAL = "http://127.0.0.1:8470"


def with_history(store: Store) -> None:
    """Two replicas, five epochs of ten records, the last one not yet published."""
    settings = Settings().model_dump(mode="json")
    note_desired(store, DesiredRun(JOB, "code/ab/job.py:job", "hash", "sqlite:x", settings))
    store.set_fact(RUN_BEGAN, "1")
    store.set_fact(SOURCES, json.dumps({"logins": {"kind": "journal", "name": "logins"}}))
    stage = {"stage": 0, "output_mode": "append", "steps": ["logins"], "sinks": ["out"], "reads": ["logins"]}
    store.set_fact(DRAWING, json.dumps({"text": "logins -> out", "graph": {"job": JOB, "stages": [stage]}}))
    store.add_event("replica-started", "pid 1, start 1", "r0")
    store.add_event("seeded", "from r0 at epoch 3", "r1")
    holders = {name: store.begin(name, pid=1) for name in ("r0", "r1")}
    now_us = wall_us()
    for number in range(EPOCHS):
        _epoch(store, holders, number, now_us)
    for name, holder in holders.items():
        store.report(
            Progress(name, holder.incarnation, 1, "running", epoch=EPOCHS - 1, updated_us=now_us, moved_us=now_us)
        )


def _epoch(store: Store, holders: dict[str, Holder], number: int, now_us: int) -> None:
    store.seal(Entry(number, now_us, {"logins": {"0": 10 * (number + 1)}}, records=10), holders["r0"])
    store.add_digests([Digest(number, "out", name, 1, "d" if number else name, 10, "v1") for name in ("r0", "r1")])
    if number < EPOCHS - 1:
        store.add_published(Published(number, "r0", now_us, 10, now_us - 7_000, now_us, 0.1))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return made_project(tmp_path / "project")


def made_project(folder: Path) -> Path:
    """A project with a job that has run, and the journal that it reads."""
    home = folder / ".lockstep"
    store = open_store(address_in(home), JOB)
    with_history(store)
    store.close()
    open_journal(home, "logins", parse_schema("user string, ok boolean")).close()
    return folder


@pytest.fixture
def service(project: Path) -> Iterator[Service]:
    opened = Service(project)
    yield opened
    opened.close()


@pytest.fixture
def store(service: Service) -> Store:
    return service.store(JOB)


@pytest.fixture
def http(service: Service) -> Iterator[TestClient]:
    """On loopback, without tokens."""
    with TestClient(create_app(service), base_url=LOCAL) as client:
        yield client


@pytest.fixture
def book(tmp_path: Path) -> TokenBook:
    return TokenBook(tmp_path / "tokens.json")


@pytest.fixture
def guarded(service: Service, book: TokenBook) -> Iterator[TestClient]:
    """With a token of each scope: their names are the scopes."""
    with TestClient(create_app(service, book), base_url="http://service.example:8470") as client:
        yield client


@pytest.fixture
def tight(service: Service) -> Iterator[TestClient]:
    """With limits that are soon met."""
    limits = Limits(request_bytes=200, ingest_bytes=300, backlog_records=60, requests_per_s=0.001, requests_burst=6)
    with TestClient(create_app(service, limits=limits), base_url=LOCAL) as client:
        yield client
