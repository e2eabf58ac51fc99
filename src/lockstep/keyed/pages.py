"""The state of all keys of one bucket, in pages: what is touched is read, what has changed is written.

Every call to Spark's state store costs as much as handling a hundred records, so the state of many keys travels in one
page. A page holds the keys whose hash lies between its start and the next page's; when it has grown too large it is cut
in several, at hashes, so that growth costs what was touched and no more. A bucket with little state is one value: the
front, with its only page inside.

    front      version, rows emitted so far, earliest timers, next page's number, the page if there is only one
    directory  [start, page number, earliest event timer, earliest epoch timer] for each page, if there are several
    page N     [hash, key, data, timers] for each key; data stays encoded until its key has its turn
    common     what broadcast records left for all keys
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import ceil
from typing import Any, Protocol

from lockstep.keyed.codec import decode, encode, pack

PAGE_BYTES_MAX = 32 * 1024
"""A page beyond this is cut. Reading and writing one of 32 KB costs about twice an empty call to the state store."""
_FILL = 0.6
"""How full the parts of a page that was cut are: they will grow too."""
_ENTRY_BYTES = 16
_TIMER_BYTES = 14
FRONT, DIRECTORY, COMMON = "front", "directory", "common"

HASH, KEY, DATA, TIMERS = range(4)
"""The places in an entry. Data is bytes, empty for none; timers are [kind, at_us, tag], kind 0 event, 1 epoch."""
Entry = list[Any]
EVENT, EPOCH = 0, 1
Due = tuple[int | None, int | None]
"""The earliest event timer and the earliest epoch timer."""


class PageStore(Protocol):
    """Where pages are kept: the state store of a Spark task, or a dict in tests."""

    def get(self, name: str) -> bytes | None:
        """The value under ``name``, None if there is none."""

    def put(self, name: str, value: bytes) -> None:
        """Keep ``value`` under ``name``."""

    def delete(self, name: str) -> None:
        """Forget what is under ``name``."""


class Page:
    """A part of the hashes. ``entries`` is None until they are needed."""

    __slots__ = ("changed", "due", "entries", "number", "start", "stored")

    def __init__(self, start: int, number: int, due: Due = (None, None), *, stored: bool = True) -> None:
        self.start = start
        self.number = number
        self.due = due
        self.entries: dict[bytes, Entry] | None = None
        self.changed = False
        self.stored = stored

    def keep(self, entry: Entry) -> None:
        """Take in an entry that was changed; it is forgotten if nothing is left in it."""
        assert self.entries is not None, "an entry comes from a page that was read"
        self.changed = True
        if entry[DATA] or entry[TIMERS]:
            self.entries[entry[KEY]] = entry
        else:
            self.entries.pop(entry[KEY], None)

    def encoded(self) -> bytes:
        """All entries as bytes."""
        return encode(list((self.entries or {}).values()))


class Pages:
    """The entries of one bucket for the length of one epoch; ``save`` writes what has changed."""

    def __init__(self, store: PageStore, page_bytes_max: int = PAGE_BYTES_MAX) -> None:
        self._store = store
        self._page_bytes_max = page_bytes_max
        self._front = store.get(FRONT)
        self._pages: list[Page] | None = None
        self._starts: list[int] = []
        self._inline: bytes | None = None
        self._directory = b""
        self._due: Due = (None, None)
        self._next_page = 0
        self.emitted = 0
        """How many records the bucket has sent out since the beginning: their number is their position."""
        if self._front is not None:
            self.emitted, event, epoch, self._next_page, self._inline = decode(self._front)
            self._due = (event, epoch)

    def find(self, key_hash: int, key: bytes) -> tuple[Page, Entry]:
        """The entry of a key, a new one if it has none, and the page that keeps it once it was changed."""
        pages = self._pages if self._pages is not None else self._all()
        page = pages[bisect_right(self._starts, key_hash) - 1]
        entries = page.entries if page.entries is not None else self._entries(page)
        found = entries.get(key)
        return page, [key_hash, key, b"", None] if found is None else found

    def due(self, watermark_us: int | None, epoch_time_us: int) -> Iterator[tuple[Page, Entry]]:
        """The entries that have a timer which is due, and their pages."""
        limits = (watermark_us, epoch_time_us)
        if not _reached(self._due, limits):
            return
        for page in self._all():
            if _reached(page.due, limits):
                for entry in list(self._entries(page).values()):
                    if entry[TIMERS] and any(_timer_due(timer, limits) for timer in entry[TIMERS]):
                        yield page, entry

    def __iter__(self) -> Iterator[Entry]:
        """Every entry there is."""
        for page in self._all():
            yield from self._entries(page).values()

    def save(self) -> None:
        """Write what has changed."""
        if self._pages is not None and any(page.changed for page in self._pages):
            self._write(self._reshape())
        if self._front is None and self._empty():
            return
        front = encode([self.emitted, *self._due, self._next_page, self._inline])
        if front != self._front:
            self._store.put(FRONT, front)

    def common(self) -> Any:
        """What broadcast records left for all keys."""
        found = self._store.get(COMMON)
        return None if found is None else decode(found)

    def save_common(self, value: Any) -> None:
        """Keep it for the epochs to come."""
        self._store.put(COMMON, encode(value))

    def _empty(self) -> bool:
        return self.emitted == 0 and self._inline is None and self._next_page == 0

    def _all(self) -> list[Page]:
        if self._pages is None:
            self._pages = self._read_directory()
            self._starts = [page.start for page in self._pages]
        return self._pages

    def _read_directory(self) -> list[Page]:
        if self._next_page == 0:
            return [Page(0, 0, self._due, stored=False)]
        found = self._store.get(DIRECTORY)
        assert found is not None, "a bucket with several pages has a directory"
        self._directory = found
        return [Page(start, number, (event, epoch)) for start, number, event, epoch in decode(found)]

    def _entries(self, page: Page) -> dict[bytes, Entry]:
        if page.entries is None:
            data = self._store.get(_name(page.number)) if page.stored else self._inline
            assert data is not None or not page.stored, f"page {page.number} is gone"
            page.entries = {entry[KEY]: entry for entry in decode(data)} if data is not None else {}
        return page.entries

    def _reshape(self) -> dict[int, bytes]:
        """Cut pages that are too large, unite neighbours that have become small; the bytes of what has changed."""
        shaped: list[tuple[Page, bytes | None]] = []
        for page in self._all():
            this = (page, page.encoded() if page.changed else None)
            if shaped and (page.changed or shaped[-1][0].changed):
                shaped += self._united(shaped.pop(), this)
            else:
                shaped.append(this)
        pages: list[Page] = []
        written: dict[int, bytes] = {}
        for page, data in shaped:
            parts = [page] if data is None or len(data) <= self._page_bytes_max else self._cut(page)
            for part in parts:
                if part.changed:
                    written[id(part)] = data if data is not None and len(parts) == 1 else part.encoded()
                    part.due = _earliest(part.entries or {})
            pages += parts
        self._pages = pages
        return written

    def _united(
        self, left: tuple[Page, bytes | None], right: tuple[Page, bytes | None]
    ) -> list[tuple[Page, bytes | None]]:
        """Two neighbours as one, if one of them is empty, or both are here and small."""
        (one, data), (other, more) = left, right
        if other.entries is not None and not other.entries:
            self._drop(other)
            return [left]
        if one.entries is not None and not one.entries:
            self._drop(one)
            other.start = one.start
            return [right]
        if one.entries is None or other.entries is None:
            return [left, right]
        if len(data or one.encoded()) + len(more or other.encoded()) > self._page_bytes_max // 2:
            return [left, right]
        one.entries.update(other.entries)
        one.changed = True
        self._drop(other)
        return [(one, one.encoded())]

    def _drop(self, page: Page) -> None:
        if page.stored:
            self._store.delete(_name(page.number))
            page.stored = False

    def _cut(self, page: Page) -> list[Page]:
        """The pages that one becomes: keys of one hash stay together, since nothing could tell them apart."""
        entries = page.entries or {}
        total = sum(map(_entry_size, entries.values()))
        share = total / ceil(total / (self._page_bytes_max * _FILL))
        part: dict[bytes, Entry] = {}
        page.entries, parts = part, [page]
        filled, before = 0, -1
        for entry in sorted(entries.values(), key=lambda one: (one[HASH], one[KEY])):
            size = _entry_size(entry)
            if part and filled + size / 2 > share * len(parts) and entry[HASH] != before:
                part = {}
                parts.append(Page(entry[HASH], 0, stored=False))
                parts[-1].entries, parts[-1].changed = part, True
            part[entry[KEY]] = entry
            filled, before = filled + size, entry[HASH]
        return parts

    def _write(self, written: dict[int, bytes]) -> None:
        pages = self._all()
        alone = written.get(id(pages[0]), b"")
        if len(pages) == 1 and len(alone) <= self._page_bytes_max and (alone or not pages[0].stored):
            self._write_inline(pages[0], alone)
            return
        for page in pages:
            if page.number == 0:
                self._next_page += 1
                page.number = self._next_page
                written.setdefault(id(page), page.encoded())
            if (data := written.get(id(page))) is not None:
                self._store.put(_name(page.number), data)
                page.stored, page.changed = True, False
        directory = encode([[page.start, page.number, *page.due] for page in pages])
        if directory != self._directory:
            self._store.put(DIRECTORY, directory)
            self._directory = directory
        self._inline = None
        self._due = (_least(page.due[0] for page in pages), _least(page.due[1] for page in pages))
        self._starts = [page.start for page in pages]

    def _write_inline(self, page: Page, data: bytes) -> None:
        """The only page becomes part of the front."""
        self._drop(page)
        if self._next_page:
            self._store.delete(DIRECTORY)
            self._directory = b""
        page.start, page.number, page.changed, self._next_page = 0, 0, False, 0
        self._inline = data if page.entries else None
        self._due = page.due
        self._starts = [0]


def key_bytes(key: tuple[Any, ...]) -> bytes:
    """A key as it stands in a page."""
    return pack(list(key))


def _name(number: int) -> str:
    return f"page {number}"


def _entry_size(entry: Entry) -> int:
    return len(entry[KEY]) + len(entry[DATA]) + _ENTRY_BYTES + _TIMER_BYTES * len(entry[TIMERS] or ())


def _reached(due: Due, limits: tuple[int | None, int]) -> bool:
    event, epoch = due
    watermark_us, epoch_time_us = limits
    if epoch is not None and epoch <= epoch_time_us:
        return True
    return event is not None and watermark_us is not None and event <= watermark_us


def _timer_due(timer: list[Any], limits: tuple[int | None, int]) -> bool:
    limit = limits[timer[0]]
    return limit is not None and timer[1] <= limit


def _earliest(entries: dict[bytes, Entry]) -> Due:
    timers = [timer for entry in entries.values() if entry[TIMERS] for timer in entry[TIMERS]]
    return _least(at_us if kind == EVENT else None for kind, at_us, _ in timers), _least(
        at_us if kind == EPOCH else None for kind, at_us, _ in timers
    )


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
