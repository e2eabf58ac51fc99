"""Which order a job has is settled before its first replica starts, and stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.config import RunSettings
from lockstep.connect.kafka.order import TopicStart
from lockstep.control.start import order as orders
from lockstep.control.start.order import settle_order
from lockstep.errors import RunError
from lockstep.plan.graph import Graph
from lockstep.runtime.decide.deriving import DerivedOrder
from lockstep.store.derived import ORDER
from lockstep.store.protocols import Entry, Store
from lockstep.store.sqlite_store import open_store

DERIVED = RunSettings(order="derived", epoch_interval_s=0.25)
TOPIC = ls.kafka("clicks", servers="127.0.0.1:1", schema="user string, at timestamp")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path, "job")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "topic_start", lambda spec: TopicStart(spec.topic, {"0": 3}))
    monkeypatch.setattr(orders, "check_topic", lambda spec: None)


def graph_of(source: Any = TOPIC, *, totals: bool = False) -> Graph:
    job = ls.Job("job")
    stream = job.source("clicks", source).event_time("at")
    windows = stream.key_by("user").window(ls.tumbling("1 second")).agg(n=F.count("*"))
    windows.to(ls.files("out"), name="out")
    if totals:
        # What is counted on and on has another output mode than what is counted in windows.
        windows.key_by("user").agg(n=F.sum("n")).to(ls.sqlite("totals.db", table="totals", key="user"), name="totals")
    return job.graph()


def refused(store: Store, graph: Graph, settings: RunSettings) -> RunError:
    with pytest.raises(RunError) as raised:
        settle_order(store, graph, settings)
    return raised.value


def test_start_and_interval_are_agreed_on_once(store: Store) -> None:
    settle_order(store, graph_of(), DERIVED, clock=lambda: 7_000_000)
    held = store.fact(ORDER)
    settle_order(store, graph_of(), RunSettings(order="derived", epoch_interval_s=9), clock=lambda: 99_000_000)
    assert store.fact(ORDER) == held
    order = DerivedOrder.from_text(held or "")
    assert (order.start_ms, order.interval_ms) == (7_000, 250)
    assert order.topics == {"clicks": TopicStart("clicks", {"0": 3})}
    assert [text for _, _, kind, _, text in store.events() if kind == "order-interval"] == [
        "epoch_interval_s stays 0.25: the bounds of all epochs follow from it"
    ]


def test_the_order_of_a_job_stays(store: Store, tmp_path: Path) -> None:
    settle_order(store, graph_of(), DERIVED)
    assert refused(store, graph_of(), RunSettings()).code == "LS0616"
    other = open_store(tmp_path / "other", "job")
    settle_order(other, graph_of(), RunSettings())
    other.seal(Entry(0, 0, {}), other.begin("r0", pid=1))
    assert refused(other, graph_of(), DERIVED).code == "LS0616"
    other.close()


def test_what_cannot_be_derived_is_refused(store: Store) -> None:
    journal = ls.journal("clicks", schema="user string, at timestamp")
    told = refused(store, graph_of(journal), DERIVED)
    assert told.code == "LS0617"
    assert 'the source "clicks" is no Kafka topic' in str(told)
    assert "it has 2 stages" in str(refused(store, graph_of(totals=True), DERIVED))
    until_done = RunSettings(order="derived", until_done=True)
    assert "end by itself" in str(refused(store, graph_of(), until_done))
    assert store.fact(ORDER) is None
