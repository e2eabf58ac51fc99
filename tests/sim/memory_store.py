"""The store as a model: a few dictionaries that keep the rules of ``lockstep.store.protocols``.

It is simple enough to be believed by reading it. Some seeds run over the real SQLite store instead, with the same
promises checked, so that the two cannot drift apart unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lockstep.clock import Clock
from lockstep.errors import StoreError
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Item, Progress, Published


class MemoryStore:
    """What supervisor and replicas ask of a store. Every method is one atomic act."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[int, Entry] = {}
        self._live: dict[str, tuple[int, bool]] = {}
        self._progress: dict[str, Progress] = {}
        self._digests: dict[int, list[Digest]] = {}
        self._observed: dict[int, dict[str, int | None]] = {}
        self._divergences: list[Divergence] = []
        self._published: dict[int, Published] = {}
        self._events: list[tuple[int, int, str, str, str]] = []

    def head(self) -> Entry | None:
        return self._entries[max(self._entries)] if self._entries else None

    def entry(self, epoch: int) -> Entry | None:
        return self._entries.get(epoch)

    def seal(self, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:
        self._refuse_the_retired(holder)
        held = self._entries.get(proposal.epoch)
        if held is not None:
            return held
        head = self.head()
        following = head.epoch + 1 if head else 0
        if proposal.epoch != following:
            raise StoreError("LS0406" if proposal.epoch > following else "LS0408", f"the next epoch is {following}")
        return self._put(proposal, holder)

    def _refuse_the_retired(self, holder: Holder) -> None:
        if not self.is_live(holder):
            raise StoreError("LS0405", f"{holder} may not seal")

    def _put(self, proposal: Entry, holder: Holder) -> Entry:
        sealed = replace(proposal, sealed_by=str(holder))
        self._entries[proposal.epoch] = sealed
        return sealed

    def floor(self) -> int:
        return min(self._entries, default=0)

    def trim(self, floor: int) -> None:
        lowest = min(floor, max(self._entries, default=0))
        for kept in (self._entries, self._digests, self._observed):
            for epoch in [epoch for epoch in kept if epoch < lowest]:
                del kept[epoch]

    def begin(self, replica: str, pid: int) -> Holder:
        incarnation = self._live.get(replica, (0, False))[0] + 1
        self._live[replica] = (incarnation, True)
        return Holder(replica, incarnation)

    def is_live(self, holder: Holder) -> bool:
        return self._live.get(holder.replica) == (holder.incarnation, True)

    def retire(self, replica: str) -> None:
        if replica in self._live:
            self._live[replica] = (self._live[replica][0], False)

    def report(self, progress: Progress) -> None:
        if self._live.get(progress.replica, (0, False))[0] == progress.incarnation:
            self._progress[progress.replica] = progress

    def progress(self) -> list[Progress]:
        return [self._progress[name] for name in sorted(self._progress)]

    def add_digests(self, digests: Sequence[Digest]) -> None:
        for one in digests:
            kept = self._digests.setdefault(one.epoch, [])
            if one not in kept:
                kept.append(one)

    def digests(self, epoch: int) -> list[Digest]:
        kept = self._digests.get(epoch, [])
        return sorted(kept, key=lambda one: (one.sink, one.replica, one.incarnation))

    def add_published(self, published: Published) -> None:
        self._published.setdefault(published.epoch, published)

    def add_divergence(self, divergence: Divergence) -> None:
        key = (divergence.epoch, divergence.sink, divergence.replica, divergence.incarnation)
        if key not in [(one.epoch, one.sink, one.replica, one.incarnation) for one in self._divergences]:
            self._divergences.append(divergence)

    def divergences(self) -> list[Divergence]:
        return list(self._divergences)

    def judge(self, epoch: int, sink: str, replica: str, verdict: str) -> None:
        self._divergences = [
            replace(one, verdict=verdict) if (one.epoch, one.sink, one.replica) == (epoch, sink, replica) else one
            for one in self._divergences
        ]

    def add_observed(self, epoch: int, newest_us: Mapping[str, int | None]) -> None:
        self._observed.setdefault(epoch, dict(newest_us))

    def observed(self, epoch: int) -> dict[str, int | None]:
        return dict(self._observed.get(epoch, {}))

    def add_event(self, kind: str, text: str, replica: str = "") -> None:
        self._events.append((len(self._events) + 1, self._clock(), kind, replica, text))

    def events(self, after_id: int = 0, limit: int = 1000) -> list[tuple[int, int, str, str, str]]:
        return self._events[after_id : after_id + limit]

    def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        return True

    def release(self, name: str, holder: str) -> None:
        return None

    def close(self) -> None:
        return None
