"""The ledger in ZooKeeper: an entry is made in one act with the check that its sealer lives and the head's change.

``head`` holds the newest epoch's number. A seal changes it from the version that was read, so that of two proposals
one is carried out, no epoch is left out, and nothing that was read before holds after another's seal. ``floor`` is
changed in one act with the entries that go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.store.protocols import Entry, Holder, Item
from lockstep.store.sealing_rules import check_beginning, check_follows, from_json, may_not_seal, not_onward, to_json
from lockstep.store.zookeeper.client import Call, Node, change, check, create, delete
from lockstep.store.zookeeper.nodes import node_name, packed, unpacked
from lockstep.store.zookeeper.part import Part
from lockstep.store.zookeeper.replicas import is_live
from lockstep.store.zookeeper.telemetry import PUBLISHED_MAX

TRIMMED_AT_ONCE = 100
TRIMS_MAX = 20
"""One call trims at most 2,000 epochs, in well below a second; what is left goes with the next."""


class ZookeeperLedger(Part):
    """Implements :class:`lockstep.store.protocols.Ledger`. The first epoch is 0."""

    _newest: Entry | None = None
    """The head as it was last seen here."""

    def head(self) -> Entry | None:
        """The newest entry, or None if nothing was sealed yet."""
        return self._head(self._call())[0]

    def entry(self, epoch: int) -> Entry | None:
        """The entry of ``epoch``, or None if it is not sealed (or was trimmed)."""
        return _entry(self._call().look(self._at("entries", epoch)))

    def entries(self, first: int, last: int) -> list[Entry]:
        """The entries from ``first`` to ``last`` inclusive, in order."""
        call = self._call()
        floor, head = (int(call.value(self._at(name)).value) for name in ("floor", "head"))
        epochs = range(max(first, floor), min(last, head) + 1)
        found = call.look_all([self._at("entries", epoch) for epoch in epochs])
        return [entry for node in found if (entry := _entry(node)) is not None]

    def seal(self, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:
        """Put ``proposal`` (and its items) unless its epoch is taken; return whatever holds now.

        If the connection is lost meanwhile, what the ledger has then decides: this entry, another's, or none yet.
        """
        call = self._call()
        sealed = replace(proposal, sealed_by=str(holder))
        replica, path = self._at("replicas", node_name(holder.replica)), self._at("entries", proposal.epoch)
        made = [create(self._item(item.source, item.position), packed(item.body)) for item in items]
        while True:
            # The head first: an entry that is not there although it is below the head was trimmed, not just sealed.
            newest, registered, held = call.look_all([self._at("head"), replica, path])
            if registered is None or not is_live(registered, holder):
                raise may_not_seal(holder)
            if (entry := _entry(held)) is not None:
                return entry
            head, head_version = self._head(call, newest)
            check_follows(head, proposal)
            acts = [
                check(replica, registered.version),
                change(self._at("head"), str(proposal.epoch).encode(), head_version),
                create(path, packed(to_json(sealed))),
            ]
            outcome = call.put(*acts, *made)
            if outcome.done:
                entry = self._newest = from_json(unpacked(packed(to_json(sealed))))
                return entry
            if outcome.at >= len(acts):
                self._refused_item(call, proposal.epoch, items[outcome.at - len(acts)], outcome.reason)
            call.again()

    def begin_at(self, entries: Sequence[Entry], items: Sequence[Item]) -> None:
        """Begin an empty ledger with these entries; the items come before, where nobody looks for them yet."""
        call = self._call()
        for source in {item.source for item in items}:
            call.make(self._at("items", node_name(source)))
        for item in items:
            call.make(self._item(item.source, item.position), packed(item.body))
        while True:
            head, version = self._head(call)
            if head is not None and head.epoch == entries[-1].epoch and self.floor() == entries[0].epoch:
                return  # the answer of an earlier try was lost
            check_beginning(head, entries)
            floor = call.value(self._at("floor"))
            acts = [
                change(self._at("head"), str(entries[-1].epoch).encode(), version),
                change(self._at("floor"), str(entries[0].epoch).encode(), floor.version),
                *(create(self._at("entries", entry.epoch), packed(vars(entry))) for entry in entries),
            ]
            if call.put(*acts).done:
                return
            call.again()

    def wait(self, epoch: int, timeout_s: float) -> Entry | None:
        """Block until ``epoch`` is sealed, at most ``timeout_s`` (and an answer's time). Woken by a watch."""
        return self.entry(epoch) if self._wait(self._at("entries", epoch), timeout_s, there=True) else None

    def items(self, source: str, first: int, last: int) -> list[Item]:
        """The items of ``source`` at positions ``first <= p < last``, in order."""
        call = self._call()
        return self._read_items(call, source, [p for p in self._positions(call, source) if first <= p < last])

    def last_item(self, source: str) -> Item | None:
        """The newest item of ``source``."""
        call = self._call()
        found = self._read_items(call, source, self._positions(call, source)[-1:])
        return found[0] if found else None

    def item_bodies(self, source: str) -> Iterator[Mapping[str, Any]]:
        """All bodies of ``source``'s items still kept, in order."""
        positions = self._positions(self._call(), source)
        for first in range(0, len(positions), 1_000):
            yield from (item.body for item in self._read_items(self._call(), source, positions[first : first + 1_000]))

    def floor(self) -> int:
        """The lowest epoch that is still kept (0 if nothing was trimmed)."""
        return int(self._call().value(self._at("floor")).value)

    def trim(self, floor: int) -> None:
        """Forget what is kept per epoch below ``floor``; the head always stays: the next epoch begins at its cut."""
        call = self._call()
        for _ in range(TRIMS_MAX):
            head, kept = call.value(self._at("head")), call.value(self._at("floor"))
            begin, lowest = int(kept.value), min(floor, int(head.value))
            if begin >= lowest:
                break
            until = min(lowest, begin + TRIMMED_AT_ONCE)
            gone = [delete(self._at("entries", epoch)) for epoch in range(begin, until)]
            call.put(change(self._at("floor"), str(until).encode(), kept.version), *gone)
            call.again()
        head_epoch = int(call.value(self._at("head")).value)
        lowests = dict.fromkeys(("observed", "digests", "mismatches"), min(floor, head_epoch))
        # Whoever notes a publication removes an old one; what was left by one that was never noted goes here.
        lowests["published"] = head_epoch - PUBLISHED_MAX
        for folder, lowest in lowests.items():
            below = sorted(epoch for epoch in map(int, call.children(self._at(folder))) if epoch < lowest)
            call.forget([self._at(folder, epoch) for epoch in below[: TRIMMED_AT_ONCE * TRIMS_MAX]])

    def drop_items(self, source: str, positions: Sequence[int]) -> None:
        """Forget these items: their source no longer needs them to recognise what it has read."""
        self._call().forget([self._item(source, position) for position in positions])

    def _head(self, call: Call, newest: Node | None = None) -> tuple[Entry | None, int]:
        """The newest entry, and the version of the node that says so; that node may have been read already."""
        while True:
            newest = newest or call.value(self._at("head"))
            epoch = int(newest.value)
            if epoch < 0:
                return None, newest.version
            entry = self._newest
            if entry is None or entry.epoch != epoch:  # one that is known never changes
                entry = self._newest = _entry(call.look(self._at("entries", epoch)))
            if entry is not None:
                return entry, newest.version
            newest = None
            call.again()  # it was the head when it was read, and trimmed since

    def _item(self, source: str, position: int) -> str:
        return self._at("items", node_name(source), position)

    def _positions(self, call: Call, source: str) -> list[int]:
        return sorted(map(int, call.children(self._at("items", node_name(source)))))

    def _read_items(self, call: Call, source: str, positions: Sequence[int]) -> list[Item]:
        found = call.look_all([self._item(source, position) for position in positions])
        pairs = zip(positions, found, strict=True)
        return [Item(source, position, unpacked(node.value)) for position, node in pairs if node is not None]

    def _refused_item(self, call: Call, epoch: int, item: Item, reason: str) -> None:
        """An item could not be made: nobody has made the source's folder yet, or its position is taken."""
        if reason != "NoNodeError":
            raise not_onward(epoch, "one of its items is at a position that another item has")
        call.make(self._at("items", node_name(item.source)))


def _entry(node: Node | None) -> Entry | None:
    return None if node is None else from_json(unpacked(node.value))
