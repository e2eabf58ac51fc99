"""The ledger: put-if-absent, no gaps, only the living seal, nothing moves back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.errors import StoreError
from lockstep.store.protocols import Digest, Entry, Holder, Item, Store
from lockstep.store.sealing_rules import from_text, to_text


def entry(epoch: int, position: int | None = None, **changes: object) -> Entry:
    cut = {"in": {"0": epoch * 10 if position is None else position}}
    made = Entry(epoch, epoch_time_us=epoch * 100, cut=cut, marks={"time": epoch or None}, records=10)
    return replace(made, **changes)  # type: ignore[arg-type]


def sealed(store: Store, epochs: int) -> Holder:
    holder = store.begin("r0", pid=1)
    for epoch in range(epochs):
        store.seal(entry(epoch), holder)
    return holder


def test_what_was_sealed_is_read_back_whole(store: Store, opening: Callable[[], Store]) -> None:
    proposal = entry(0, ingested_oldest_us=5, ingested_newest_us=9, active_us={"in": 7})
    holder = store.begin("r0", pid=1)
    expected = replace(proposal, sealed_by="r0.1")
    assert store.seal(proposal, holder) == expected
    other = opening()
    assert other.entry(0) == other.head() == expected
    assert other.entry(1) is None
    other.close()


def test_the_first_proposal_holds_for_everyone(store: Store) -> None:
    first, second = store.begin("r0", pid=1), store.begin("r1", pid=2)
    held = store.seal(entry(0, 5), first)
    assert store.seal(entry(0, 7), second) == held
    assert store.seal(entry(0, 5), second) == held
    assert held.sealed_by == "r0.1"


def test_a_gap_is_refused(store: Store) -> None:
    holder = sealed(store, 2)
    with pytest.raises(StoreError, match="LS0406"):
        store.seal(entry(3), holder)
    with pytest.raises(StoreError, match="LS0406"):
        open_holder = store.begin("r1", pid=2)
        store.seal(entry(4), open_holder)
    assert [one.epoch for one in store.entries(0, 9)] == [0, 1]


def test_the_first_epoch_is_zero(store: Store) -> None:
    with pytest.raises(StoreError, match="LS0406"):
        store.seal(entry(1), store.begin("r0", pid=1))


def test_only_a_live_incarnation_seals(store: Store) -> None:
    old = store.begin("r0", pid=1)
    new = store.begin("r0", pid=2)
    for dead in (old, Holder("r9", 1)):
        with pytest.raises(StoreError, match="LS0405"):
            store.seal(entry(0), dead)
    store.seal(entry(0), new)
    store.retire("r0")
    with pytest.raises(StoreError, match="LS0405"):
        store.seal(entry(1), new)
    assert store.head() == store.entry(0)


@pytest.mark.parametrize(
    "wrong",
    [
        entry(2, position=9),
        entry(2, epoch_time_us=99),
        entry(2, cut={"in": {}}),
        entry(2, cut={"other": {"0": 50}}),
    ],
)
def test_nothing_moves_back_from_one_entry_to_the_next(store: Store, wrong: Entry) -> None:
    holder = sealed(store, 2)
    with pytest.raises(StoreError, match="LS0407"):
        store.seal(wrong, holder)
    assert store.head() == store.entry(1)


def test_an_epoch_without_records_and_a_new_partition_are_fine(store: Store) -> None:
    holder = sealed(store, 2)
    store.seal(entry(2, cut={"in": {"0": 10, "1": 0}}, epoch_time_us=100), holder)
    assert store.entries(2, 2)[0].cut == {"in": {"0": 10, "1": 0}}


def test_items_are_put_with_their_entry_and_only_with_it(store: Store) -> None:
    first, second = store.begin("r0", pid=1), store.begin("r1", pid=2)
    items = [Item("files", position, {"path": f"f{position}"}) for position in range(3)]
    store.seal(entry(0), first, items)
    store.seal(entry(0), second, [Item("files", 7, {"path": "loser"})])
    assert store.items("files", 0, 99) == items
    assert store.items("files", 1, 2) == items[1:2]
    assert store.last_item("files") == items[2]
    assert store.last_item("other") is None
    assert list(store.item_bodies("files")) == [item.body for item in items]


def test_an_entry_whose_item_is_taken_is_refused_whole(store: Store) -> None:
    holder = store.begin("r0", pid=1)
    store.seal(entry(0), holder, [Item("files", 0, {})])
    with pytest.raises(StoreError, match="LS0407"):
        store.seal(entry(1), holder, [Item("files", 1, {}), Item("files", 0, {})])
    assert store.entry(1) is None
    assert len(store.items("files", 0, 9)) == 1


def test_bodies_of_many_items_come_in_order(store: Store) -> None:
    holder = store.begin("r0", pid=1)
    store.seal(entry(0), holder, [Item("files", position, {"n": position}) for position in range(2500)])
    assert [body["n"] for body in store.item_bodies("files")] == list(range(2500))
    store.drop_items("files", range(2400))
    assert [body["n"] for body in store.item_bodies("files")] == list(range(2400, 2500))


def test_trimming_forgets_what_is_below_the_floor_and_never_the_head(store: Store) -> None:
    holder = sealed(store, 5)
    store.add_digests([Digest(epoch, "out", "r0", 1, "d", 1, "v") for epoch in range(5)])
    store.add_observed(2, {"time": 5})
    assert store.floor() == 0
    store.trim(3)
    assert (store.floor(), store.entry(2), len(store.digests(2)), store.observed(2)) == (3, None, 0, {})
    assert len(store.digests(3)) == 1
    store.trim(99)
    assert store.floor() == 4
    assert store.seal(entry(5), holder).epoch == 5
    with pytest.raises(StoreError, match="LS0408"):
        store.seal(entry(2), holder)


def test_trimming_an_empty_ledger_does_nothing(store: Store) -> None:
    store.trim(5)
    assert store.floor() == 0


def test_waiting_ends_when_another_thread_seals(store: Store) -> None:
    holder = sealed(store, 1)
    seen: list[Entry | None] = []
    waiter = threading.Thread(target=lambda: seen.append(store.wait(1, timeout_s=30)))
    waiter.start()
    time.sleep(0.05)
    assert not seen
    store.seal(entry(1), holder)
    waiter.join(timeout=10)
    assert [one.epoch for one in seen if one] == [1]


def test_waiting_gives_up_after_its_time(store: Store) -> None:
    assert store.wait(0, timeout_s=0.03) is None
    assert store.wait(0, timeout_s=0) is None


def test_waiting_burns_no_core(store: Store) -> None:
    before_s = time.process_time()
    store.wait(0, timeout_s=1.0)
    # 0.3 % by the arithmetic in the code; a loop that does not sleep would use all of the second.
    assert time.process_time() - before_s < 0.2


def test_an_entry_of_a_newer_lockstep_is_read_and_what_is_as_always_is_not_written() -> None:
    """Replicas of two versions of Lockstep may run side by side."""
    entry = Entry(3, 100, {"logins": {"0": 5}}, records=2)
    kept = json.loads(to_text(entry))
    assert set(kept) == {"epoch", "epoch_time_us", "cut", "records"}
    assert from_text(json.dumps({**kept, "of_tomorrow": 1})) == entry
