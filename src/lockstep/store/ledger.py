"""The ledger in SQLite: entries put if absent and without gaps, with the items of their sources beside them."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.faults.windows import Window, reached
from lockstep.store.database import Part
from lockstep.store.protocols import Entry, Holder, Item
from lockstep.store.replicas import holder_is_live
from lockstep.store.sealing_rules import check_beginning, check_follows, from_text, may_not_seal, not_onward, to_text

LEDGER_TABLES = (
    # As JSON, an entry may gain fields with a default without a migration: nothing searches by them.
    "CREATE TABLE entries (epoch INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    """CREATE TABLE items (
        source TEXT, position INTEGER, body TEXT NOT NULL, PRIMARY KEY (source, position)) WITHOUT ROWID""",
)

POLL_SLEEP_S_MIN = 0.001
POLL_SLEEP_S_MAX = 0.010
POLL_SLEEP_GROWTH = 1.25
"""What waiting costs. Sleeps reach 10 ms after 11 polls (40 ms), so there are 100 polls a second. With caches as cold
as they are after a sleep, waking up costs 40 us and reading the change counter 60 us (measured; in a tight loop 3 us);
where the counter moved (progress reports, a few dozen a second) the entry is looked up for 50 us more. 100 * 100 us +
30 * 50 us = 11.5 ms a second, 1.2 % of a core. An entry is seen 5 ms after its seal on average, 10 ms at most."""
POLLS_PER_LOAN = 20
"""A connection is held for so many polls (0.2 s), as borrowing it for each costs 50 us more; a fork waits for it."""
_BODIES_AT_ONCE = 1_000


class SqliteLedger(Part):
    """Implements :class:`lockstep.store.protocols.Ledger`. The first epoch is 0."""

    def head(self) -> Entry | None:
        """The newest entry, or None if nothing was sealed yet."""
        with self._database.reading() as connection:
            return _head(connection)

    def entry(self, epoch: int) -> Entry | None:
        """The entry of ``epoch``, or None if it is not sealed (or was trimmed)."""
        with self._database.reading() as connection:
            return _entry(connection, epoch)

    def entries(self, first: int, last: int) -> list[Entry]:
        """The entries from ``first`` to ``last`` inclusive, in order."""
        with self._database.reading() as connection:
            query = "SELECT body FROM entries WHERE epoch BETWEEN ? AND ? ORDER BY epoch"
            return [from_text(body) for (body,) in connection.execute(query, (first, last))]

    def seal(self, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:
        """Put ``proposal`` (and its items) unless its epoch is taken; return whatever holds now."""
        with self._database.durable() as connection:
            if not holder_is_live(connection, holder):
                raise may_not_seal(holder)
            held = _entry(connection, proposal.epoch)
            if held is not None:
                return held
            check_follows(_head(connection), proposal)
            sealed = replace(proposal, sealed_by=str(holder))
            _insert(connection, sealed, items)
            reached(Window.INSIDE_TRANSACTION, holder.replica, sealed.epoch)
        return from_text(to_text(sealed))

    def begin_at(self, entries: Sequence[Entry], items: Sequence[Item]) -> None:
        """Begin an empty ledger with these entries."""
        with self._database.durable() as connection:
            check_beginning(_head(connection), entries)
            _insert(connection, entries[0], items)
            for entry in entries[1:]:
                _insert(connection, entry, ())

    def wait(self, epoch: int, timeout_s: float) -> Entry | None:
        """Block until ``epoch`` is sealed, at most ``timeout_s``. Sleeps on the database's change counter."""
        pause = _Pause(timeout_s)
        entry = None
        while entry is None and not pause.over:
            with self._database.reading() as connection:
                entry = _wait_awhile(connection, epoch, pause)
        return entry

    def items(self, source: str, first: int, last: int) -> list[Item]:
        """The items of ``source`` at positions ``first <= p < last``, in order."""
        with self._database.reading() as connection:
            return _items(connection, source, first, last, limit=-1)

    def last_item(self, source: str) -> Item | None:
        """The newest item of ``source``."""
        query = "SELECT position, body FROM items WHERE source = ? ORDER BY position DESC LIMIT 1"
        with self._database.reading() as connection:
            row = connection.execute(query, (source,)).fetchone()
        return Item(source, row[0], json.loads(row[1])) if row else None

    def item_bodies(self, source: str) -> Iterator[Mapping[str, Any]]:
        """All bodies of ``source``'s items still kept, in order."""
        first = -(2**63)
        while True:
            with self._database.reading() as connection:
                some = _items(connection, source, first, 2**63 - 1, limit=_BODIES_AT_ONCE)
            yield from (item.body for item in some)
            if len(some) < _BODIES_AT_ONCE:
                return
            first = some[-1].position + 1

    def floor(self) -> int:
        """The lowest epoch that is still kept (0 if nothing was trimmed)."""
        with self._database.reading() as connection:
            return connection.execute("SELECT min(epoch) FROM entries").fetchone()[0] or 0

    def trim(self, floor: int) -> None:
        """Forget what is kept per epoch below ``floor``; the head always stays: the next epoch begins at its cut."""
        with self._database.durable() as connection:
            head = _head(connection)
            if head is None:
                return
            lowest = min(floor, head.epoch)
            for table in ("entries", "digests", "observed"):
                connection.execute(f"DELETE FROM {table} WHERE epoch < ?", (lowest,))  # noqa: S608 (our own tables)

    def drop_items(self, source: str, positions: Sequence[int]) -> None:
        """Forget these items: their source no longer needs them to recognise what it has read."""
        rows = [(source, position) for position in positions]
        with self._database.durable() as connection:
            connection.executemany("DELETE FROM items WHERE source = ? AND position = ?", rows)


class _Pause:
    """Sleeps that grow, up to a limit each and a time in all."""

    def __init__(self, timeout_s: float) -> None:
        self.over = False
        self._give_up_at_s = time.monotonic() + timeout_s
        self._sleep_s = POLL_SLEEP_S_MIN

    def sleep(self) -> None:
        left_s = self._give_up_at_s - time.monotonic()
        self.over = left_s <= 0
        if not self.over:
            time.sleep(min(self._sleep_s, left_s))
            self._sleep_s = min(self._sleep_s * POLL_SLEEP_GROWTH, POLL_SLEEP_S_MAX)


def _wait_awhile(connection: sqlite3.Connection, epoch: int, pause: _Pause) -> Entry | None:
    """Look for the entry whenever the change counter has moved, for some polls; at least once."""
    seen = None
    for _ in range(POLLS_PER_LOAN):
        # The counter is the connection's own and leaves out its own commits, of which a reader has none.
        counter = connection.execute("PRAGMA data_version").fetchone()
        if counter != seen:
            seen = counter
            if entry := _entry(connection, epoch):
                return entry
        pause.sleep()
        if pause.over:
            break
    return None


def _insert(connection: sqlite3.Connection, entry: Entry, items: Sequence[Item]) -> None:
    connection.execute("INSERT INTO entries VALUES (?, ?)", (entry.epoch, to_text(entry)))
    rows = [(item.source, item.position, json.dumps(dict(item.body), sort_keys=True)) for item in items]
    try:
        connection.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)
    except sqlite3.IntegrityError:
        raise not_onward(entry.epoch, "one of its items is at a position that another item has") from None


def _entry(connection: sqlite3.Connection, epoch: int) -> Entry | None:
    row = connection.execute("SELECT body FROM entries WHERE epoch = ?", (epoch,)).fetchone()
    return from_text(row[0]) if row else None


def _head(connection: sqlite3.Connection) -> Entry | None:
    row = connection.execute("SELECT body FROM entries ORDER BY epoch DESC LIMIT 1").fetchone()
    return from_text(row[0]) if row else None


def _items(connection: sqlite3.Connection, source: str, first: int, last: int, limit: int) -> list[Item]:
    query = (
        "SELECT position, body FROM items WHERE source = ? AND position >= ? AND position < ? ORDER BY position LIMIT ?"
    )
    rows = connection.execute(query, (source, first, last, limit))
    return [Item(source, position, json.loads(body)) for position, body in rows]
