"""The registry of hosts in ZooKeeper: a node for each, which goes with the session of whoever announced it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.store.zookeeper.address import Address
from lockstep.store.zookeeper.client import Call, change, create_ephemeral, delete, leave, shared
from lockstep.store.zookeeper.nodes import named, node_name, packed, unpacked


class ZookeeperHosts:
    """Implements :class:`lockstep.store.protocols.Hosts`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._root = f"{address.root}/hosts"
        self._mine: set[str] = set()

    def announce(self, host: str, body: Mapping[str, Any]) -> None:
        """``host`` lives, and has this to say of itself."""
        call, path, said = self._call(), f"{self._root}/{node_name(host)}", packed(body)
        call.make(self._root)
        self._mine.add(host)
        while True:
            found = call.look(path)
            if found is not None and found.session == call.client.session():
                if found.value == said or call.put(change(path, said, found.version)).done:
                    return
            elif call.put(*([delete(path, found.version)] if found else []), create_ephemeral(path, said)).done:
                return
            call.again()

    def withdraw(self, host: str) -> None:
        """``host`` leaves."""
        self._call().forget([f"{self._root}/{node_name(host)}"])
        self._mine.discard(host)

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The living ones by name, with what they said last."""
        call = self._call()
        names = sorted(call.children(self._root))
        found = zip(names, call.look_all([f"{self._root}/{name}" for name in names]), strict=True)
        return {named(name): unpacked(node.value) for name, node in found if node is not None}

    def close(self) -> None:
        """Withdraw what was announced here, and give the connection back."""
        for host in list(self._mine):
            self.withdraw(host)
        leave(self._address.hosts, id(self))

    def _call(self) -> Call:
        return Call(shared(self._address.hosts, id(self)))
