"""The store as a model: a few dictionaries that keep the rules of ``lockstep.store.protocols``.

It is simple enough to be believed by reading it. Some seeds run over the real SQLite store instead, with the same
promises checked, so that the two cannot drift apart unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lockstep.clock import US_PER_S, Clock
from lockstep.errors import StoreError
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Item, Progress, Published

Undo = Callable[[], object]


class MemoryStore:
    """What supervisor and replicas ask of a store. Every method is one atomic act.

    What production writes without waiting for the disk is *soon* durable: it may be lost, newest first, when the power
    fails before the next durable write.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[int, Entry] = {}
        self._newest = -1
        self._live: dict[str, tuple[int, bool]] = {}
        self._leases: dict[str, tuple[str, int]] = {}
        self._progress: dict[str, Progress] = {}
        self._digests: dict[int, list[Digest]] = {}
        self._observed: dict[int, dict[str, int | None]] = {}
        self._divergences: list[Divergence] = []
        self._published: dict[int, Published] = {}
        self._events: list[tuple[int, int, str, str, str]] = []
        self._facts: dict[str, str] = {}
        self._unsynced: list[Undo] = []
        self.on_fact: Callable[[str], None] = lambda _: None
        """Called when a fact has changed."""

    # The ledger.

    def head(self) -> Entry | None:
        """The newest entry."""
        return self._entries.get(self._newest)

    def entry(self, epoch: int) -> Entry | None:
        """The entry of an epoch."""
        return self._entries.get(epoch)

    def seal(self, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:  # noqa: ARG002
        """Put if absent, by a live incarnation, without a gap."""
        self.refuse_the_retired(holder)
        held = self._entries.get(proposal.epoch)
        if held is not None:
            return held
        self.refuse_what_does_not_follow(proposal)
        return self.put(proposal, holder)

    def refuse_the_retired(self, holder: Holder) -> None:
        """Only a live incarnation may seal."""
        if not self.is_live(holder):
            raise StoreError("LS0405", f"{holder} may not seal")

    def refuse_what_does_not_follow(self, proposal: Entry) -> None:
        """The ledger has no gaps."""
        following = self._newest + 1
        if proposal.epoch != following:
            raise StoreError("LS0406" if proposal.epoch > following else "LS0408", f"the next epoch is {following}")

    def put(self, proposal: Entry, holder: Holder) -> Entry:
        """Write an entry, whatever was there."""
        sealed = replace(proposal, sealed_by=str(holder))
        self._entries[proposal.epoch] = sealed
        self._newest = max(self._newest, proposal.epoch)
        self._unsynced.clear()
        return sealed

    def floor(self) -> int:
        """The lowest epoch that is kept."""
        return min(self._entries, default=0)

    def trim(self, floor: int) -> None:
        """Forget what lies below; the head stays."""
        lowest = min(floor, max(0, self._newest))
        for kept in (self._entries, self._digests, self._observed):
            for epoch in [epoch for epoch in kept if epoch < lowest]:
                del kept[epoch]
        self._unsynced.clear()

    # Leases.

    def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew a lease."""
        if self.holder(name) not in (None, holder):
            return False
        self._leases[name] = (holder, self._clock() + round(ttl_s * US_PER_S))
        self._unsynced.clear()
        return True

    def release(self, name: str, holder: str) -> None:
        """Give a lease back."""
        if self._leases.get(name, ("", 0))[0] == holder:
            del self._leases[name]

    def holder(self, name: str) -> str | None:
        """Who has a lease that has not expired."""
        holder, expires_us = self._leases.get(name, ("", 0))
        return holder if expires_us > self._clock() else None

    # Replicas.

    def begin(self, replica: str, pid: int) -> Holder:  # noqa: ARG002
        """A new incarnation."""
        incarnation = self._live.get(replica, (0, False))[0] + 1
        self._live[replica] = (incarnation, True)
        self._unsynced.clear()
        return Holder(replica, incarnation)

    def is_live(self, holder: Holder) -> bool:
        """Whether an incarnation is the newest and was not retired."""
        return self._live.get(holder.replica) == (holder.incarnation, True)

    def retire(self, replica: str) -> None:
        """No incarnation so far may act."""
        if replica in self._live:
            self._live[replica] = (self._live[replica][0], False)
        self._unsynced.clear()

    def remove(self, replica: str) -> None:
        """It left for good: it says nothing any more, and may not act."""
        self.retire(replica)
        self._progress.pop(replica, None)

    def report(self, progress: Progress) -> None:
        """The newest word of the newest incarnation."""
        if self._live.get(progress.replica, (-1, False))[0] == progress.incarnation:
            before = self._progress.get(progress.replica)
            self._progress[progress.replica] = progress
            if before is not None:
                said = before
                self._unsynced.append(lambda: self._progress.update({said.replica: said}))

    def progress(self) -> list[Progress]:
        """Everyone's newest word."""
        return [self._progress[name] for name in sorted(self._progress)]

    # The record.

    def add_digests(self, digests: Sequence[Digest]) -> None:
        """Keep digests."""
        for one in digests:
            kept = self._digests.setdefault(one.epoch, [])
            if one not in kept:
                kept.append(one)

    def digests(self, epoch: int) -> list[Digest]:
        """All digests of an epoch."""
        kept = self._digests.get(epoch, [])
        return sorted(kept, key=lambda one: (one.sink, one.replica, one.incarnation))

    def digest_mismatches(self) -> list[tuple[int, str]]:
        """(epoch, sink) for which digests of one version differ."""
        found: dict[tuple[int, str, str], str] = {}
        kept = (one for digests in self._digests.values() for one in digests)
        differing = [
            one for one in kept if found.setdefault((one.epoch, one.sink, one.version), one.digest) != one.digest
        ]
        return sorted({(one.epoch, one.sink) for one in differing})

    def add_published(self, published: Published) -> None:
        """Keep when an epoch was published."""
        self._published.setdefault(published.epoch, published)

    def published(self, first: int, last: int) -> list[Published]:
        """The publications of some epochs, in order."""
        return [self._published[epoch] for epoch in range(first, last + 1) if epoch in self._published]

    def add_divergence(self, divergence: Divergence) -> None:
        """Keep a disagreement, once."""
        key = (divergence.epoch, divergence.sink, divergence.replica, divergence.incarnation)
        if key not in [(one.epoch, one.sink, one.replica, one.incarnation) for one in self._divergences]:
            self._divergences.append(divergence)

    def divergences(self) -> list[Divergence]:
        """All disagreements."""
        return list(self._divergences)

    def judge(self, epoch: int, sink: str, replica: str, verdict: str) -> None:
        """Note a verdict."""
        self._divergences = [
            replace(one, verdict=verdict) if (one.epoch, one.sink, one.replica) == (epoch, sink, replica) else one
            for one in self._divergences
        ]

    def add_observed(self, epoch: int, newest_us: Mapping[str, int | None]) -> None:
        """Keep the highest event times of an epoch, once."""
        before = self._observed.get(epoch, {})
        after = {**newest_us, **before}
        if after != before:
            self._observed[epoch] = after
            self._unsynced.append(lambda: self._observed.update({epoch: before}))

    def observed(self, epoch: int) -> dict[str, int | None]:
        """The highest event times of an epoch."""
        return dict(self._observed.get(epoch, {}))

    def add_event(self, kind: str, text: str, replica: str = "") -> None:
        """A line for people."""
        self._events.append((len(self._events) + 1, self._clock(), kind, replica, text))

    def events(self, after_id: int = 0, limit: int = 1000) -> list[tuple[int, int, str, str, str]]:
        """The lines for people."""
        return self._events[after_id : after_id + limit]

    def newest_event(self) -> int:
        """The id of the newest line."""
        return len(self._events)

    def fact(self, key: str) -> str | None:
        """The value of ``key``, or None."""
        return self._facts.get(key)

    def put_fact_if_absent(self, key: str, value: str) -> str:
        """Return the value that holds now."""
        return self._facts.setdefault(key, value)

    def set_fact(self, key: str, value: str) -> None:
        """Put ``value``, whatever was there."""
        self._facts[key] = value
        self.on_fact(key)

    def swap_fact(self, key: str, before: str | None, after: str) -> bool:
        """Put ``after`` if the value is still ``before``; on disk at once."""
        if self._facts.get(key) != before:
            return False
        self._facts[key] = after
        self.on_fact(key)
        return True

    # The disk.

    def lose(self, writes: int) -> int:
        """The power fails: of what is not on disk yet, the newest ``writes`` are gone; how many went."""
        lost = self._unsynced[len(self._unsynced) - min(writes, len(self._unsynced)) :]
        for undo in reversed(lost):
            undo()
        self._unsynced.clear()
        return len(lost)

    def close(self) -> None:
        """Nothing is open."""
