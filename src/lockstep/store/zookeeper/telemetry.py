"""Telemetry in ZooKeeper: one node for each replica's progress, each epoch's digests and each publication; a ring of
events. Written late, by the thread of :mod:`lockstep.store.zookeeper.outbox`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial

from lockstep.clock import Clock, wall_us
from lockstep.credentials import without_secrets
from lockstep.observe.histogram import Histogram
from lockstep.store import record
from lockstep.store.protocols import Digest, Progress, Published
from lockstep.store.zookeeper.address import Address
from lockstep.store.zookeeper.client import Call, Node, Operation, change, check, create
from lockstep.store.zookeeper.leases import ZookeeperLeases
from lockstep.store.zookeeper.nodes import node_name, packed, unpacked
from lockstep.store.zookeeper.outbox import Outbox
from lockstep.store.zookeeper.replicas import incarnation_of

PUBLISHED_MAX = 5_000
EVENTS_MAX = 2_000
"""An ensemble keeps everything in memory, and copies it to whoever joins: fewer are kept than in a file."""
COMPARISON_INTERVAL_S = 30.0
"""How often clocks are compared. Hosts' clocks run apart slowly; they are set seldom."""
CLOCKS_APART_US = 2_000_000
"""A smaller difference is left: words are written a little later than they were stamped."""
PROGRESS, DIGESTS, PUBLISHED, EVENTS = "progress", "digests", "published", "events"


class ZookeeperTelemetry(ZookeeperLeases):
    """Implements :class:`lockstep.store.protocols.Telemetry`; its thread also gives back leases that expired."""

    def __init__(self, address: Address, job: str, clock: Clock) -> None:
        super().__init__(address, job, clock)
        self._outbox = Outbox(self._see_to_leases)
        self._states: dict[str, tuple[int, str]] = {}
        self._ahead_of_ensemble_us = 0
        self._next_comparison_s = 0.0

    def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew a lease; from then on a thread sees to it that it ends in time."""
        self._outbox.begin()
        return super().acquire(name, holder, ttl_s)

    def report(self, progress: Progress) -> None:
        """Replace what ``progress.replica`` said last. Ignored if it is not the newest incarnation.

        A new state is written at once: whoever takes the job over finds out from it which replicas there are.
        """
        state = (progress.incarnation, progress.state)
        if self._states.get(progress.replica) == state:
            self._outbox.put(PROGRESS, partial(self._report, progress), progress.replica)
            return
        self._outbox.wait(PROGRESS)  # an older word must not come after it
        self._report(progress)
        self._states[progress.replica] = state

    def progress(self) -> list[Progress]:
        """The newest word of every replica, by name."""
        self._outbox.wait(PROGRESS)
        call = self._call()
        paths = [self._at("progress", name) for name in call.children(self._at("progress"))]
        # A clock that is moved by hand, in a test, says nothing about the ensemble's.
        ahead_us = self._ahead_us(call) if self._clock is wall_us else None
        said = [_by_this_clock(node, ahead_us) for node in call.look_all(paths) if node is not None]
        return sorted(said, key=lambda one: one.replica)

    def _ahead_us(self, call: Call) -> int:
        """How far this host's clock is ahead of the ensemble's; found out by a write, now and then."""
        if time.monotonic() >= self._next_comparison_s:
            path = self._at("clock")
            call.make(path)
            while not call.put(change(path, b"", -1)).done:
                call.again()
            self._ahead_of_ensemble_us = self._clock() - call.value(path).modified_us
            self._next_comparison_s = time.monotonic() + COMPARISON_INTERVAL_S
        return self._ahead_of_ensemble_us

    def add_digests(self, digests: Sequence[Digest]) -> None:
        """Keep these digests, those of an epoch at once."""
        for epoch in sorted({one.epoch for one in digests}):
            some = [one for one in digests if one.epoch == epoch]
            self._outbox.put(DIGESTS, partial(self._add_digests, epoch, some))

    def digests(self, epoch: int) -> list[Digest]:
        """Everything reported for ``epoch``."""
        self._outbox.wait(DIGESTS)
        return _digests(self._call().look(self._at("digests", epoch)))

    def digest_mismatches(self) -> list[tuple[int, str]]:
        """(epoch, sink) for which kept digests of one version differ. Whoever added the second noted it then."""
        self._outbox.wait(DIGESTS)
        call = self._call()
        epochs = sorted(map(int, call.children(self._at("mismatches"))))
        found = call.look_all([self._at("mismatches", epoch) for epoch in epochs])
        pairs = zip(epochs, found, strict=True)
        return [(epoch, sink) for epoch, node in pairs if node is not None for sink in unpacked(node.value)]

    def add_published(self, published: Published) -> None:
        """Keep it once per epoch (the first wins) and add its latency to the job's histogram."""
        self._outbox.put(PUBLISHED, partial(self._add_published, published))

    def published(self, first: int, last: int) -> list[Published]:
        """The publications of the epochs from ``first`` to ``last`` inclusive, in order."""
        self._outbox.wait(PUBLISHED)
        call = self._call()
        if last - first < PUBLISHED_MAX:
            epochs = list(range(first, last + 1))
        else:
            epochs = sorted(e for e in map(int, call.children(self._at("published"))) if first <= e <= last)
        found = call.look_all([self._at("published", epoch) for epoch in epochs])
        return [Published(*unpacked(node.value)) for node in found if node is not None]

    def latency_ms(self) -> dict[str, float]:
        """p50, p90, p99, max and count of the job's histogram: age of an epoch's oldest record at its publishing."""
        self._outbox.wait(PUBLISHED)
        return _histogram(self._call().value(self._at("latency"))).summary_ms()

    def add_event(self, kind: str, text: str, replica: str = "") -> None:
        """A line for people: replica died, was seeded, records set aside. The newest 2,000 are kept."""
        event = _Event((self._clock(), kind, replica, without_secrets(text)))
        self._outbox.put(EVENTS, partial(self._add_event, event))

    def events(self, after_id: int = 0, limit: int = 1000) -> list[tuple[int, int, str, str, str]]:
        """(id, at_us, kind, replica, text), oldest first."""
        self._outbox.wait(EVENTS)
        call = self._call()
        ids = sorted(number for number in map(int, call.children(self._at("events"))) if number > after_id)[:limit]
        found = zip(ids, call.look_all([self._at("events", number) for number in ids]), strict=True)
        return [(number, *_event(node)) for number, node in found if node is not None]

    def newest_event(self) -> int:
        """The id of the newest event that is written, 0 if there is none."""
        return int(self._call().value(self._at("events")).value)

    def close(self) -> None:
        """Write what is left, if that is possible at once, and give the connection back."""
        self._outbox.end()
        self._leave()

    def _see_to_leases(self) -> None:
        if self.expired():
            self.give_back_expired(self._call())
        if dropped := self._outbox.dropped:
            self._outbox.dropped -= dropped
            self.add_event("telemetry-dropped", f"{dropped} words that waited too long")

    def _report(self, progress: Progress) -> None:
        call = self._call()
        replica, path = (self._at(folder, node_name(progress.replica)) for folder in ("replicas", "progress"))
        while True:
            registered, said = call.look_all([replica, path])
            if registered is None or incarnation_of(registered) != progress.incarnation:
                return
            body = packed(vars(progress))
            act = create(path, body) if said is None else change(path, body, said.version)
            if call.put(check(replica, registered.version), act).done:
                return
            call.again()

    def _add_digests(self, epoch: int, added: Sequence[Digest]) -> None:
        call, path, note = self._call(), self._at("digests", epoch), self._at("mismatches", epoch)
        while True:
            found, noted = call.look_all([path, note])
            held = _digests(found)
            known = {_key(one) for one in held}
            new = {_key(one): one for one in added if _key(one) not in known}
            if not new:
                return
            after = sorted([*held, *new.values()], key=_key)
            acts = [_put(path, found, packed([astuple(one) for one in after]))]
            if differing := _differing(after):
                acts.append(_put(note, noted, packed(differing)))
            if call.put(*acts).done:
                return
            call.again()

    def _add_published(self, published: Published) -> None:
        call, path = self._call(), self._at("published", published.epoch)
        kept = min(PUBLISHED_MAX, record.PUBLISHED_MAX)
        while True:
            found, latency = call.look_all([path, self._at("latency")])
            if found is not None or latency is None:
                return
            acts = [create(path, packed(astuple(published)))]
            if published.ingested_oldest_us is not None:
                waited_ms = (published.published_us - published.ingested_oldest_us) / 1000
                histogram = _histogram(latency).add(waited_ms)
                acts.append(change(self._at("latency"), histogram.to_json().encode(), latency.version))
            if call.put(*acts).done:
                break
            call.again()
        call.forget([self._at("published", published.epoch - kept)])

    def _add_event(self, event: _Event) -> None:
        call, path = self._call(), self._at("events")
        kept = min(EVENTS_MAX, record.EVENTS_MAX)
        while True:
            newest = call.value(path)
            number = int(newest.value) + 1
            if event.tried is not None and self._is_told(call, event, range(event.tried, number)):
                return
            body = packed([*event.words, event.mark])
            # Noted before it is tried: if the answer is lost, and this call ends, the next one knows where to look.
            event.tried = number if event.tried is None else event.tried
            if call.put(change(path, str(number).encode(), newest.version), create(f"{path}/{number}", body)).done:
                break
            call.again()
        if number > kept:
            call.forget([f"{path}/{number - kept}"])

    def _is_told(self, call: Call, event: _Event, numbers: range) -> bool:
        found = call.look_all([self._at("events", number) for number in numbers])
        return any(node is not None and unpacked(node.value)[-1] == event.mark for node in found)


@dataclass
class _Event:
    """A line for people on its way."""

    words: tuple[int, str, str, str]
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    """By which it is known again."""
    tried: int | None = None
    """The first number under which it may have been written."""


def _by_this_clock(node: Node, ahead_us: int | None) -> Progress:
    """What a replica said, with stamps as this host's clock would have set them: those of hosts may differ by minutes.

    It was stamped when it was written, and the ensemble knows when that was.
    """
    said = Progress(**unpacked(node.value))
    apart_us = 0 if ahead_us is None else node.modified_us - said.updated_us + ahead_us
    if abs(apart_us) < CLOCKS_APART_US:
        return said
    stamps = {name: getattr(said, name) for name in ("updated_us", "moved_us", "active_us", "begun_us")}
    return replace(said, **{name: stamp + apart_us for name, stamp in stamps.items() if stamp})


def _put(path: str, found: Node | None, body: bytes) -> Operation:
    return create(path, body) if found is None else change(path, body, found.version)


def _key(one: Digest) -> tuple[str, str, int, str, str]:
    return (one.sink, one.replica, one.incarnation, one.version, one.digest)


def _digests(node: Node | None) -> list[Digest]:
    return [] if node is None else [Digest(*row) for row in unpacked(node.value)]


def _differing(digests: Sequence[Digest]) -> list[str]:
    """The sinks for which digests of one version differ."""
    answers: dict[tuple[str, str], set[str]] = {}
    for one in digests:
        answers.setdefault((one.sink, one.version), set()).add(one.digest)
    return sorted({sink for (sink, _), given in answers.items() if len(given) > 1})


def _histogram(node: Node) -> Histogram:
    return Histogram.from_json(node.value.decode()) if node.value else Histogram()


def _event(node: Node) -> tuple[int, str, str, str]:
    at_us, kind, replica, text, _ = unpacked(node.value)
    return at_us, kind, replica, text
