"""Pages against a plain dict: what was put is there, whatever was cut, united and emptied meanwhile."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.keyed.pages import DATA, DIRECTORY, FRONT, KEY, TIMERS, Pages, key_bytes
from lockstep.keyed.tester import MemoryStore

PAGE_BYTES = 300


class CountingStore(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.writes: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        self.reads.append(name)
        return super().get(name, default)

    def put(self, name: str, value: bytes) -> None:
        self.writes.append(name)
        super().put(name, value)


def _hash(name: str, few_hashes: bool = False) -> int:
    found = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return found % 3 if few_hashes else found


def _put(pages: Pages, name: str, data: bytes, timers: list[list[Any]] | None, *, few_hashes: bool = False) -> None:
    page, entry = pages.find(_hash(name, few_hashes), key_bytes((name,)))
    entry[DATA], entry[TIMERS] = data, timers
    page.keep(entry)


def _all(store: MemoryStore) -> dict[bytes, tuple[bytes, Any]]:
    return {entry[KEY]: (entry[DATA], entry[TIMERS]) for entry in Pages(store, PAGE_BYTES)}


CHANGES = st.lists(
    st.dictionaries(
        st.integers(0, 60).map(lambda number: f"key-{number}"),
        st.tuples(
            st.sampled_from([b"", b"x", b"y" * 40, b"z" * 150, b"w" * 700]),
            st.sampled_from([None, [[0, 5, "a"]], [[0, 9, ""], [1, 3, "b"]]]),
        ),
        max_size=40,
    ),
    max_size=8,
)


@settings(max_examples=80, deadline=None)
@given(CHANGES, st.booleans())
def test_pages_hold_what_a_dict_would_however_they_were_cut(epochs: list[dict[str, Any]], few_hashes: bool) -> None:
    store, wanted = MemoryStore(), {}
    for changes in epochs:
        pages = Pages(store, PAGE_BYTES)
        for name, (data, timers) in changes.items():
            _put(pages, name, data, timers, few_hashes=few_hashes)
            wanted[key_bytes((name,))] = (data, timers)
            if not data and not timers:
                del wanted[key_bytes((name,))]
        pages.save()
        assert _all(store) == wanted
        _check_due(store, wanted)


def _check_due(store: MemoryStore, wanted: dict[bytes, Any]) -> None:
    for watermark, epoch_time in ((None, 0), (5, 0), (4, 3), (9, 9)):
        due = {entry[KEY] for _, entry in Pages(store, PAGE_BYTES).due(watermark, epoch_time)}
        expected = {
            key
            for key, (_, timers) in wanted.items()
            for kind, at_us, _ in timers or ()
            if (kind == 0 and watermark is not None and at_us <= watermark) or (kind == 1 and at_us <= epoch_time)
        }
        assert due == expected


def test_a_small_bucket_is_one_value() -> None:
    store = CountingStore()
    pages = Pages(store)
    for number in range(20):
        _put(pages, f"key-{number}", b"data", None)
    pages.save()
    assert store.writes == [FRONT]
    store.reads.clear()
    again = Pages(store)
    assert again.find(_hash("key-3"), key_bytes(("key-3",)))[1][DATA] == b"data"
    again.save()
    assert (store.reads, store.writes) == ([FRONT], [FRONT])


def test_of_many_pages_only_the_touched_one_is_read_and_written() -> None:
    store = CountingStore()
    pages = Pages(store, PAGE_BYTES)
    for number in range(200):
        _put(pages, f"key-{number}", b"x" * 20, [[0, 100, ""]])
    pages.save()
    assert len(store) > 20
    store.reads.clear()
    store.writes.clear()
    again = Pages(store, PAGE_BYTES)
    _put(again, "key-7", b"y" * 20, [[0, 100, ""]])
    again.save()
    assert store.reads[:2] == [FRONT, DIRECTORY] and len(store.reads) == 3
    assert store.writes == [store.reads[2]], "nothing but the page itself has changed"


def test_a_tick_without_due_timers_reads_the_front_and_nothing_else() -> None:
    store = CountingStore()
    pages = Pages(store, PAGE_BYTES)
    for number in range(200):
        _put(pages, f"key-{number}", b"x" * 20, [[0, 100, ""], [1, 50, ""]])
    pages.save()
    store.reads.clear()
    store.writes.clear()
    quiet = Pages(store, PAGE_BYTES)
    assert list(quiet.due(99, 49)) == []
    quiet.save()
    assert (store.reads, store.writes) == ([FRONT], [])


def test_what_is_emptied_leaves_no_pages_behind() -> None:
    store = MemoryStore()
    pages = Pages(store, PAGE_BYTES)
    for number in range(200):
        _put(pages, f"key-{number}", b"x" * 20, None)
    pages.save()
    pages = Pages(store, PAGE_BYTES)
    for number in range(200):
        _put(pages, f"key-{number}", b"", None)
    pages.save()
    assert list(store) == [FRONT]
    assert len(store[FRONT]) < 20


def test_growth_keeps_pages_small_and_writes_only_what_it_touches() -> None:
    store, chance = MemoryStore(), random.Random(7)
    names = [f"user-{number}" for number in range(20_000)]
    for start in range(0, len(names), 2_000):
        pages = Pages(store)
        for name in names[start : start + 2_000]:
            _put(pages, name, b"x" * 12, None)
        pages.save()
    sizes = [len(page) for name, page in store.items() if name.startswith("page ")]
    assert max(sizes) <= 33 * 1024 and min(sizes) > 8 * 1024
    counting = CountingStore()
    counting.update(store)
    pages = Pages(counting)
    _put(pages, chance.choice(names), b"y" * 12, None)
    pages.save()
    assert len(counting.writes) == 1
    assert len(list(Pages(store))) == len(names)


@pytest.mark.parametrize("size", [100, 40_000])
def test_one_key_with_more_than_a_page_is_kept_whole(size: int) -> None:
    store = MemoryStore()
    for _ in range(2):
        pages = Pages(store)
        _put(pages, "large", b"x" * size, [[1, 5, ""]])
        pages.save()
    assert [len(entry[DATA]) for entry in Pages(store)] == [size]
    assert [entry[KEY] for _, entry in Pages(store).due(None, 5)] == [key_bytes(("large",))]
