"""Leases, replicas, the record and the facts."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from lockstep.observe.histogram import Histogram
from lockstep.store import record
from lockstep.store.protocols import Digest, Divergence, Holder, Progress, Published, Store
from tests.unit.store.same_answers import HandClock

PUBLISHED = Published(0, "r0", 2_000, 5, ingested_oldest_us=1_000, ingested_newest_us=1_500, epoch_s=0.1)
DIVERGENCE = Divergence(3, "out", "r1", 1, "r0.1", "bb", "aa", "row 1 differs", at_us=5)


def test_a_lease_is_its_holders_until_it_expires(store: Store, clock: HandClock) -> None:
    assert store.acquire("leader", "a", ttl_s=2.0)
    clock.now_us += 1_999_999
    assert not store.acquire("leader", "b", ttl_s=2.0)
    assert store.holder("leader") == "a"
    clock.now_us += 1
    assert store.holder("leader") is None
    assert store.acquire("leader", "b", ttl_s=2.0)
    assert not store.acquire("leader", "a", ttl_s=2.0)


def test_renewing_a_lease_prolongs_it(store: Store, clock: HandClock) -> None:
    store.acquire("leader", "a", ttl_s=2.0)
    clock.now_us += 1_500_000
    assert store.acquire("leader", "a", ttl_s=2.0)
    clock.now_us += 1_500_000
    assert store.holder("leader") == "a"


def test_a_lease_is_released_by_its_holder_only(store: Store) -> None:
    store.acquire("leader", "a", ttl_s=2.0)
    store.release("leader", "b")
    assert store.holder("leader") == "a"
    store.release("leader", "a")
    assert store.holder("leader") is None


def test_whoever_waits_for_a_lease_is_told_when_it_is_given_back(store: Store) -> None:
    store.acquire("leader", "a", ttl_s=60.0)
    waiting = threading.Thread(target=store.wait_until_free, args=("leader", 600.0))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    store.release("leader", "a")
    waiting.join(60.0)
    assert not waiting.is_alive()
    store.wait_until_free("leader", 600.0)  # nobody has it: no wait at all


def test_waiting_for_a_lease_that_stays_held_ends(store: Store) -> None:
    store.acquire("leader", "a", ttl_s=60.0)
    store.wait_until_free("leader", 0.05)
    assert store.holder("leader") == "a"


def test_incarnations_grow_and_are_never_reused(store: Store) -> None:
    assert [store.begin("r0", pid) for pid in (1, 2)] == [Holder("r0", 1), Holder("r0", 2)]
    assert store.begin("r1", 3) == Holder("r1", 1)
    store.remove("r0")
    assert store.begin("r0", 4) == Holder("r0", 3)


def test_the_newest_incarnation_lives_until_it_is_retired_or_removed(store: Store) -> None:
    old, new = store.begin("r0", 1), store.begin("r0", 2)
    assert (store.is_live(old), store.is_live(new)) == (False, True)
    store.retire("r0")
    assert not store.is_live(new)
    again = store.begin("r0", 3)
    assert store.is_live(again)
    store.remove("r0")
    assert not store.is_live(again)


def test_only_the_newest_incarnation_is_listened_to(store: Store) -> None:
    store.begin("r1", 1)
    store.begin("r0", 1)
    first = Progress("r0", 1, pid=1, state="running", epoch=7, epoch_s=0.25, note="fine", updated_us=3, moved_us=2)
    store.report(first)
    store.report(Progress("r1", 1, pid=1, state="starting"))
    assert store.progress() == [first, Progress("r1", 1, pid=1, state="starting")]
    store.begin("r0", 2)
    store.report(replace(first, epoch=8))
    assert store.progress()[0].epoch == 7
    store.report(replace(first, incarnation=2, epoch=3))
    assert store.progress()[0] == replace(first, incarnation=2, epoch=3)
    store.remove("r0")
    assert [word.replica for word in store.progress()] == ["r1"]


def test_a_replica_nobody_began_is_not_listened_to(store: Store) -> None:
    store.report(Progress("ghost", 1, pid=1, state="running"))
    assert store.progress() == []


def test_digests_of_one_version_are_compared(store: Store) -> None:
    digest = Digest(1, "out", "r0", 1, "aa", rows=3, version="v1")
    store.add_digests([digest, replace(digest, replica="r1"), replace(digest, replica="r2", digest="bb", version="v2")])
    assert store.digest_mismatches() == []
    store.add_digests([replace(digest, epoch=2, replica="r0"), replace(digest, epoch=2, replica="r1", digest="bb")])
    assert store.digest_mismatches() == [(2, "out")]
    assert store.digests(1)[0] == digest
    assert len(store.digests(1)) == 3


def test_one_incarnation_that_answers_twice_and_differently_is_a_mismatch(store: Store) -> None:
    digest = Digest(1, "out", "r0", 1, "aa", rows=3, version="v1")
    store.add_digests([digest, digest])
    assert store.digests(1) == [digest]
    store.add_digests([replace(digest, digest="bb")])
    assert store.digest_mismatches() == [(1, "out")]


def test_only_the_first_publication_of_an_epoch_counts(store: Store) -> None:
    store.add_published(PUBLISHED)
    store.add_published(replace(PUBLISHED, replica="r1", published_us=900_000))
    assert store.published(0, 9) == [PUBLISHED]
    assert store.latency_ms() == Histogram().add(1.0).summary_ms()


def test_an_epoch_without_records_has_no_latency(store: Store) -> None:
    store.add_published(replace(PUBLISHED, ingested_oldest_us=None, ingested_newest_us=None))
    assert store.latency_ms()["count"] == 0


def test_publications_are_kept_to_a_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "PUBLISHED_MAX", 5)
    for epoch in range(12):
        store.add_published(replace(PUBLISHED, epoch=epoch))
    assert [one.epoch for one in store.published(0, 99)] == [7, 8, 9, 10, 11]
    assert store.latency_ms()["count"] == 12


def test_divergences_are_kept_once_judged_and_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "DIVERGENCES_MAX", 2)
    store.add_divergence(DIVERGENCE)
    store.add_divergence(replace(DIVERGENCE, detail="again"))
    assert store.divergences() == [DIVERGENCE]
    store.judge(3, "out", "r1", "reseed")
    assert store.divergences() == [replace(DIVERGENCE, verdict="reseed")]
    for epoch in (4, 5):
        store.add_divergence(replace(DIVERGENCE, epoch=epoch))
    assert [one.epoch for one in store.divergences()] == [4, 5]


def test_events_are_read_on_from_where_one_was_and_bounded(
    store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "EVENTS_MAX", 3)
    store.add_event("died", "r0 died", replica="r0")
    first = store.events()
    assert [event[1:] for event in first] == [(clock.now_us, "died", "r0", "r0 died")]
    for number in range(5):
        store.add_event("note", str(number))
    assert [event[4] for event in store.events()] == ["2", "3", "4"]
    newest = store.events()[-1][0]
    assert store.newest_event() == newest
    store.add_event("note", "5")
    assert [event[4] for event in store.events(after_id=newest)] == ["5"]
    assert len(store.events(limit=2)) == 2


def test_the_first_observation_of_an_epoch_holds(store: Store) -> None:
    store.add_observed(1, {"time": 5, "other": None})
    store.add_observed(1, {"time": 6})
    assert store.observed(1) == {"time": 5, "other": None}
    assert store.observed(2) == {}


def test_facts_are_put_once_or_set(store: Store) -> None:
    assert store.fact("plan") is None
    assert store.put_fact_if_absent("plan", "a") == "a"
    assert store.put_fact_if_absent("plan", "b") == "a"
    store.set_fact("plan", "c")
    assert store.fact("plan") == "c"
    assert not store.swap_fact("plan", "b", "d")
    assert store.swap_fact("plan", "c", "d")
    assert not store.swap_fact("plan", None, "e")
    assert store.swap_fact("new", None, "f")
    assert (store.fact("plan"), store.fact("new")) == ("d", "f")
