"""Deriving entries: what the sealing thread makes of bounds that were reached, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from lockstep.config import RunSettings
from lockstep.connect.kafka.order import TopicOrder, TopicStart
from lockstep.connect.protocols import Advance
from lockstep.errors import LockstepError
from lockstep.runtime.decide.deriving import DerivedOrder, begun
from lockstep.runtime.decide.marks import TimeStep
from lockstep.runtime.decide.pacing import Wait
from lockstep.runtime.decide.proposing import Proposal
from lockstep.runtime.epoch.deriving import DerivingSealer
from lockstep.store.protocols import Positions, Store
from lockstep.store.sqlite_store import open_store

S = 1_000_000
START_MS = 1_700_000_000_000
STEPS = (TimeStep("event_time", ("clicks", "views"), S, 2 * S),)
ORDER = DerivedOrder(START_MS, 500, 100, {name: TopicStart("id", {"0": 5, "1": 0}) for name in ("clicks", "views")})


class Topic:
    """Answers what a test says."""

    def __init__(self) -> None:
        self.clock_ms = START_MS
        self.next: Advance | None = None
        self.asked: list[tuple[Positions, int, int]] = []

    def due_s(self, bound_ms: int) -> float:
        return (bound_ms - self.clock_ms) / 1000

    def advance(self, since: Positions, bound_ms: int, records_max: int) -> Advance | None:
        self.asked.append((dict(since), bound_ms, records_max))
        return self.next

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path, "job")
    yield opened
    opened.close()


def _raise(error: LockstepError) -> None:
    raise error


def sealer_of(store: Store, topics: dict[str, Topic], replica: str = "r0") -> DerivingSealer:
    sides = {name: cast("TopicOrder", one) for name, one in topics.items()}
    return DerivingSealer(store, store.begin(replica, pid=1), ORDER, sides, STEPS, RunSettings(), _raise)


def proposed(sealer: DerivingSealer, epoch: int) -> Proposal:
    found = sealer.look(epoch)
    assert isinstance(found, Proposal)
    return found


def test_the_first_epoch_takes_the_topics_up_as_they_were_agreed_on(store: Store) -> None:
    sealer = sealer_of(store, {"clicks": Topic(), "views": Topic()})
    entry = proposed(sealer, 0).entry
    assert (entry.epoch_time_us, entry.records) == (START_MS * 1000, 0)
    assert entry.cut == {"clicks": {"0": 5, "1": 0}, "views": {"0": 5, "1": 0}}


def test_an_epoch_waits_for_its_bound_and_then_for_every_partition_of_every_topic(store: Store) -> None:
    topics = {"clicks": Topic(), "views": Topic()}
    sealer = sealer_of(store, topics)
    sealer.put(proposed(sealer, 0))
    sealer.ready(1, {"event_time": None})
    assert sealer.look(1) == Wait(0.5, "interval")
    assert not topics["clicks"].asked, "nobody is asked before it is time"
    for one in topics.values():
        one.clock_ms = START_MS + 500
    topics["clicks"].next = Advance({"0": 7, "1": 1}, 3)
    assert sealer.look(1) == Wait(0.005, "heartbeat")
    assert topics["clicks"].asked == topics["views"].asked == [({"0": 5, "1": 0}, START_MS + 500, 100)]
    topics["views"].next = Advance({"0": 6, "1": 1}, 0)
    entry = proposed(sealer, 1).entry
    assert entry.epoch_time_us == (START_MS + 500) * 1000
    assert entry.cut == {"clicks": {"0": 7, "1": 1}, "views": {"0": 6, "1": 1}}
    assert entry.records == 3
    # Heartbeats alone do not make a source active.
    assert entry.active_us == {"clicks": (START_MS + 500) * 1000, "views": START_MS * 1000}


def test_replicas_derive_the_same_entries_whatever_their_clocks_say(store: Store, tmp_path: Path) -> None:
    """Both see the same log and the same event times; only who and when differs."""
    other = open_store(tmp_path / "other", "job")
    both: list[list[object]] = []
    for place, late_ms in ((store, 3), (other, 4_000)):
        topics = {"clicks": Topic(), "views": Topic()}
        sealer = sealer_of(place, topics, replica=f"r{late_ms}")
        found: list[object] = []
        for epoch in range(12):
            for one in topics.values():
                one.clock_ms = START_MS + 500 * epoch + late_ms
                one.next = Advance({"0": 5 + min(epoch, 3), "1": 0}, 1 if epoch < 3 else 0)
            sealer.ready(epoch, {"event_time": 1_000 * S + epoch if 0 < epoch <= 3 else None})
            entry = sealer.put(proposed(sealer, epoch))
            found.append((entry.cut, entry.epoch_time_us, entry.marks, entry.active_us))
        both.append(found)
    other.close()
    assert both[0] == both[1]
    assert both[0][-1] != both[0][3], "and idle sources let event time go on"


def test_an_order_is_found_again_in_the_store() -> None:
    order = begun(RunSettings(epoch_interval_s=0), ORDER.topics, 5_000_999)
    assert (order.start_ms, order.interval_ms) == (5_000, 10)
    assert order.partition_records_max == 500_000
    assert DerivedOrder.from_text(order.to_text()) == order


def test_falling_behind_is_told_once_each_time(store: Store) -> None:
    topics = {"clicks": Topic(), "views": Topic()}
    sealer = sealer_of(store, topics)
    sealer.put(proposed(sealer, 0))
    for late_s in (1, 11, 14, 6, 12, 2, 13):
        for one in topics.values():
            one.clock_ms = ORDER.bound_ms(1) + 1000 * late_s
        assert sealer.look(1) == Wait(0.005, "heartbeat")
    told = [text for _, _, kind, _, text in store.events() if kind == "order-behind"]
    assert [text.split(";")[0] for text in told] == ["epoch 1 comes 11 s late", "epoch 1 comes 13 s late"]
