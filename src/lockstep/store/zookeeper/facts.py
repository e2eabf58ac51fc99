"""Facts in ZooKeeper: one node for each, changed from the version that was read.

A swap whose answer was lost may have been carried out, and the fact changed again since: each node keeps the marks of
the newest few swaps, by which whoever swapped knows its own.
"""

from __future__ import annotations

import secrets

from lockstep.store.zookeeper.client import Node, change, create
from lockstep.store.zookeeper.nodes import node_name, packed, unpacked
from lockstep.store.zookeeper.part import Part

SWAPS_KEPT = 16
"""So many others may swap the same fact while one waits for its connection."""


class ZookeeperFacts(Part):
    """Implements :class:`lockstep.store.protocols.Facts`."""

    def put_fact_if_absent(self, key: str, value: str) -> str:
        """Return the value that holds now."""
        call, path = self._call(), self._at("facts", node_name(key))
        while (found := call.look(path)) is None:
            call.put(create(path, packed({"value": value, "swaps": []})))
            call.again()
        return _value(found)

    def set_fact(self, key: str, value: str) -> None:
        """Put ``value``, whatever was there."""
        self._swap(key, value, whatever=True)

    def swap_fact(self, key: str, before: str | None, after: str) -> bool:
        """Put ``after`` if the value is still ``before`` (None: absent); whether it was."""
        return self._swap(key, after, before)

    def fact(self, key: str) -> str | None:
        """The value of ``key``, or None."""
        found = self._call().look(self._at("facts", node_name(key)))
        return None if found is None else _value(found)

    def _swap(self, key: str, after: str, before: str | None = None, *, whatever: bool = False) -> bool:
        call, path, mine = self._call(), self._at("facts", node_name(key)), secrets.token_hex(8)
        while True:
            found = call.look(path)
            swaps = unpacked(found.value)["swaps"] if found is not None else []
            if mine in swaps:
                return True
            if not whatever and (None if found is None else _value(found)) != before:
                return False
            body = packed({"value": after, "swaps": [*swaps, mine][-SWAPS_KEPT:]})
            if call.put(create(path, body) if found is None else change(path, body, found.version)).done:
                return True
            call.again()


def _value(node: Node) -> str:
    return str(unpacked(node.value)["value"])
