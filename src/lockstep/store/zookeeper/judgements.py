"""Divergences and observed event times in ZooKeeper: what verdicts and marks rest on, on disk when a call returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.credentials import without_secrets
from lockstep.store import record
from lockstep.store.protocols import Divergence
from lockstep.store.zookeeper.client import Call, Node, change, create
from lockstep.store.zookeeper.nodes import node_name, packed, unpacked
from lockstep.store.zookeeper.part import Part


class ZookeeperJudgements(Part):
    """Implements ``Divergences`` and ``Observations`` of :mod:`lockstep.store.protocols`."""

    def add_divergence(self, divergence: Divergence) -> None:
        """Keep it once per epoch, sink and incarnation."""
        name = node_name(f"{divergence.epoch}:{divergence.sink}:{divergence.replica}.{divergence.incarnation}")
        call, path = self._call(), self._at("divergences", name)
        kept = replace(divergence, detail=without_secrets(divergence.detail))
        while call.look(path) is None:
            call.put(create(path, packed(vars(kept))))
            call.again()
        there = self._kept(call)
        call.forget([path for path, _ in there[: max(0, len(there) - record.DIVERGENCES_MAX)]])

    def divergences(self) -> list[Divergence]:
        """All that are kept, oldest first."""
        return [_divergence(node) for _, node in self._kept(self._call())]

    def judge(self, epoch: int, sink: str, replica: str, verdict: str) -> None:
        """Note what was decided about a divergence."""
        call = self._call()
        while True:
            about = [
                (path, node, one)
                for path, node in self._kept(call)
                if ((one := _divergence(node)).epoch, one.sink, one.replica) == (epoch, sink, replica)
                and one.verdict != verdict
            ]
            if not about:
                return
            for path, node, one in about:
                call.put(change(path, packed(vars(replace(one, verdict=verdict))), node.version))
            call.again()

    def add_observed(self, epoch: int, newest_us: Mapping[str, int | None]) -> None:
        """Keep the highest event time that an epoch's records had, per ``event_time`` step; the first wins."""
        if not newest_us:
            return  # a job without event time: that is what a reader finds anyway
        call, path = self._call(), self._at("observed", epoch)
        while True:
            found = call.look(path)
            held = unpacked(found.value) if found is not None else {}
            after = {**newest_us, **held}
            if found is not None and after == held:
                return
            act = create(path, packed(after)) if found is None else change(path, packed(after), found.version)
            if call.put(act).done:
                return
            call.again()

    def observed(self, epoch: int) -> dict[str, int | None]:
        """What was kept for ``epoch``; empty if nothing was."""
        found = self._call().look(self._at("observed", epoch))
        return dict(unpacked(found.value)) if found is not None else {}

    def _kept(self, call: Call) -> list[tuple[str, Node]]:
        paths = [self._at("divergences", name) for name in call.children(self._at("divergences"))]
        found = zip(paths, call.look_all(paths), strict=True)
        return sorted(((path, node) for path, node in found if node is not None), key=lambda one: one[1].created)


def _divergence(node: Node) -> Divergence:
    return Divergence(**unpacked(node.value))
