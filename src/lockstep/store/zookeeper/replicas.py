"""Incarnations in ZooKeeper: one node for each replica. Every start and every end gives it a new version, so that a
seal that checks the version it knows is refused from then on."""

from __future__ import annotations

from lockstep.store.protocols import Holder
from lockstep.store.zookeeper.client import Node, change, create, delete
from lockstep.store.zookeeper.nodes import node_name, packed, unpacked
from lockstep.store.zookeeper.part import Part


class ZookeeperIncarnations(Part):
    """Implements :class:`lockstep.store.protocols.Incarnations`."""

    def begin(self, replica: str, pid: int) -> Holder:
        """Register a new start of ``replica``: a fresh incarnation, which alone may act for it from now on.

        One of which it is not known whether it was registered is left out: incarnations grow, not always by one.
        """
        call, path = self._call(), self._at("replicas", node_name(replica))
        while True:
            before = call.look(path)
            holder = Holder(replica, incarnation_of(before) + 1)
            body = packed({"incarnation": holder.incarnation, "live": True, "pid": pid, "begun_us": self._clock()})
            act = create(path, body) if before is None else change(path, body, before.version)
            if call.put(act).done:
                return holder
            call.again()

    def is_live(self, holder: Holder) -> bool:
        """Whether ``holder`` is the newest incarnation of its replica and was not retired."""
        return is_live(self._call().look(self._at("replicas", node_name(holder.replica))), holder)

    def retire(self, replica: str) -> None:
        """No incarnation of ``replica`` so far may act any more (before it is replaced or stopped)."""
        call, path = self._call(), self._at("replicas", node_name(replica))
        while (before := call.look(path)) is not None and unpacked(before.value)["live"]:
            call.put(change(path, packed({**unpacked(before.value), "live": False}), before.version))
            call.again()

    def remove(self, replica: str) -> None:
        """Forget ``replica``'s progress and retire it; its count of incarnations stays, since none is ever reused."""
        self.retire(replica)
        call, path = self._call(), self._at("progress", node_name(replica))
        while (said := call.look(path)) is not None:
            call.put(delete(path, said.version))
            call.again()


def incarnation_of(node: Node | None) -> int:
    """The newest incarnation that was registered; 0 if none was."""
    return int(unpacked(node.value)["incarnation"]) if node is not None else 0


def is_live(node: Node | None, holder: Holder) -> bool:
    """Whether ``holder`` may act, by what its replica's node says."""
    return node is not None and incarnation_of(node) == holder.incarnation and bool(unpacked(node.value)["live"])
