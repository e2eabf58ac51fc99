"""The same sequence of operations on several stores, whose answers have to be the same. A seed makes the sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lockstep.errors import StoreError
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Item, Progress, Published

REPLICAS = ("r0", "r1", "r2")
NAMES = ("leader", "a/b")
SINKS = ("out", "state of stage 1, operator 0 x")


class HandClock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def __call__(self) -> int:
        return self.now_us


@dataclass
class Sequence:
    """Draws operations that make sense after those before, and some that do not."""

    draw: Random
    clock: HandClock
    epoch: int = 0
    """The next epoch to seal."""
    begun: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REPLICAS, 0))

    def next(self) -> tuple[str, tuple[Any, ...]]:
        """The name of an operation and what it is given."""
        makers: list[Callable[[], tuple[str, tuple[Any, ...]]]] = [
            *[self._seal] * 6,
            *[self._begin] * 2,
            self._end,
            *[self._lease] * 3,
            *[self._word] * 3,
            *[self._dispute] * 2,
            *[self._read] * 6,
            self._trim,
            self._fact,
        ]
        self.clock.now_us += self.draw.randrange(0, 400_000)
        return self.draw.choice(makers)()

    def _holder(self) -> Holder:
        replica = self.draw.choice(REPLICAS)
        # Mostly the newest incarnation, which may have been retired; now and then an old one, or one to come.
        return Holder(replica, max(0, self.begun[replica] + self.draw.choice((0, 0, 0, 0, -1, 1))))

    def _seal(self) -> tuple[str, tuple[Any, ...]]:
        epoch = max(0, self.epoch + self.draw.choice((0, 0, 0, 0, 0, 1, -1, -3)))
        entry = Entry(epoch, epoch * 100, {"in": {"0": epoch}}, {"time": epoch or None}, records=self.draw.randrange(9))
        return "seal", (entry, self._holder(), [Item("files", epoch, {"path": f"f{epoch}"})])

    def _begin(self) -> tuple[str, tuple[Any, ...]]:
        replica = self.draw.choice(REPLICAS)
        self.begun[replica] += 1
        return "begin", (replica, self.draw.randrange(1, 99))

    def _end(self) -> tuple[str, tuple[Any, ...]]:
        return "retire", (self.draw.choice(REPLICAS),)

    def _lease(self) -> tuple[str, tuple[Any, ...]]:
        name, holder = self.draw.choice(NAMES), self.draw.choice(("a", "b"))
        if self.draw.random() < 0.3:
            return self.draw.choice((("release", (name, holder)), ("holder", (name,))))
        return "acquire", (name, holder, self.draw.choice((0.5, 2.0)))

    def _word(self) -> tuple[str, tuple[Any, ...]]:
        holder, epoch = self._holder(), max(0, self.epoch - self.draw.randrange(3))
        state = self.draw.choice(("starting", "running"))
        digest = Digest(epoch, self.draw.choice(SINKS), holder.replica, holder.incarnation, "aa", 3, "v1")
        if self.draw.random() < 0.2:
            digest = Digest(epoch, digest.sink, digest.replica, digest.incarnation, "bb", 3, self.draw.choice("vw"))
        published = Published(epoch, holder.replica, self.clock.now_us, 5, self.draw.choice((None, 1_000)), 1_500, 0.1)
        return self.draw.choice(
            (
                ("report", (Progress(holder.replica, holder.incarnation, 1, state, epoch, updated_us=self.clock()),)),
                ("add_digests", ([digest],)),
                ("add_published", (published,)),
                ("add_event", ("note", f"line {self.draw.randrange(99)}", holder.replica)),
            )
        )

    def _dispute(self) -> tuple[str, tuple[Any, ...]]:
        holder, epoch = self._holder(), max(0, self.epoch - 1)
        divergence = Divergence(epoch, "out", holder.replica, holder.incarnation, "r0.1", "b", "a", "x", self.clock())
        return self.draw.choice(
            (
                ("add_divergence", (divergence,)),
                ("judge", (epoch, "out", holder.replica, self.draw.choice(("reseed", "go-on")))),
                ("add_observed", (epoch, {self.draw.choice("xyz"): self.draw.choice((None, 5, 6))})),
            )
        )

    def _read(self) -> tuple[str, tuple[Any, ...]]:
        epoch = max(0, self.epoch - self.draw.randrange(4))
        reads: tuple[tuple[str, tuple[Any, ...]], ...] = (
            ("head", ()),
            ("entry", (epoch,)),
            ("entries", (0, 2**62)),
            ("floor", ()),
            ("is_live", (self._holder(),)),
            ("progress", ()),
            ("digests", (epoch,)),
            ("digest_mismatches", ()),
            ("published", (0, 10**6)),
            ("divergences", ()),
            ("observed", (epoch,)),
            ("events", (self.draw.randrange(20), 5)),
            ("items", ("files", 0, epoch)),
            ("last_item", ("files",)),
            ("latency_ms", ()),
        )
        return self.draw.choice(reads)

    def _trim(self) -> tuple[str, tuple[Any, ...]]:
        return "trim", (max(0, self.epoch - self.draw.randrange(6)),)

    def _fact(self) -> tuple[str, tuple[Any, ...]]:
        values = ("1", "2", "3")
        return self.draw.choice(
            (
                ("swap_fact", ("k/1", self.draw.choice((None, *values)), self.draw.choice(values))),
                ("put_fact_if_absent", ("k/1", self.draw.choice(values))),
            )
        )


def answer(store: object, operation: str, given: tuple[Any, ...]) -> object:
    """What a store answers; the code of its refusal."""
    try:
        return getattr(store, operation)(*given)
    except StoreError as error:
        return error.code


def assert_same_answers(stores: Mapping[str, object], clock: HandClock, seed: int, operations: int) -> int:
    """Run one sequence; how many answers were compared. A store that has no such operation is left out of it."""
    sequence = Sequence(Random(seed), clock)
    compared = 0
    for number in range(operations):
        operation, given = sequence.next()
        able = {name: store for name, store in stores.items() if hasattr(store, operation)}
        answers = {name: answer(store, operation, given) for name, store in able.items()}
        first = next(iter(answers.values()))
        assert all(one == first for one in answers.values()), f"seed {seed}, {number}: {operation}{given}: {answers}"
        compared += len(answers) - 1
        if operation == "seal" and isinstance(first, Entry):
            sequence.epoch = max(sequence.epoch, first.epoch + 1)
    return compared
