"""Which state a replica takes digests of, and when: pure functions, so that all of them choose the same epochs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SHARE_MAX = 0.02
"""Of a replica's time that may go into digests of its state."""
FIRST_EPOCH = 10
"""The first state that is compared. The first time that a process reads its state takes longest, and with one core the
epochs wait for it; this soon after the start they are slow anyway."""
_DOUBLINGS_MAX = 16


@dataclass(frozen=True)
class Joined:
    """Where an incarnation of a replica took up its work: for each stage the epoch of the state it began with."""

    incarnation: int
    epochs: Mapping[int, int]

    def to_text(self) -> str:
        """As it is kept in the store."""
        return json.dumps({"incarnation": self.incarnation, "epochs": self.epochs})

    @staticmethod
    def from_text(text: str | None) -> Joined | None:
        """As it was kept.

        >>> Joined.from_text(Joined(3, {1: 417}).to_text())
        Joined(incarnation=3, epochs={1: 417})
        """
        if text is None:
            return None
        held = json.loads(text)
        return Joined(held["incarnation"], {int(stage): epoch for stage, epoch in held["epochs"].items()})


def joined_key(replica: str) -> str:
    """The fact with a replica's newest :class:`Joined`."""
    return f"joined:{replica}"


def wanted_epochs(since: int, committed: int, joined: Iterable[int], every_epochs: int, retained: int) -> list[int]:
    """The epochs whose state is to be compared and is there, oldest first: where somebody joined, and every so many.

    ``since`` is where this replica joined (a seed has nothing older), ``committed`` the newest epoch that Spark has
    committed for certain, ``retained`` how many it keeps.

    >>> wanted_epochs(990, 1010, joined=[997, 700, 1020, -1], every_epochs=500, retained=100)
    [997, 1000]

    Whoever began with no state has some a few epochs later.

    >>> wanted_epochs(-1, 40, joined=[-1, -1], every_epochs=500, retained=100)
    [10]
    """
    oldest = max(0, since, committed - retained + 1)
    periodic = committed // every_epochs * every_epochs
    first = (epoch if epoch >= 0 else FIRST_EPOCH for epoch in joined)
    wanted = {*first, *([periodic] if periodic else [])}
    return sorted(epoch for epoch in wanted if oldest <= epoch <= committed)


def is_urgent(epoch: int, committed: int, retained: int) -> bool:
    """Whether Spark removes the state of this epoch soon: until half the time is over, a gap between epochs may come.

    >>> is_urgent(400, 410, 100), is_urgent(400, 460, 100)
    (False, True)
    """
    return committed - epoch >= retained // 2


def stretched(every_epochs: int, took_s: float, epoch_s: float) -> int:
    """How many epochs to leave between two digests, where one took so long: doubled until it is a small share.

    Doubled and not chosen freely: replicas that differ in speed still meet, at the multiples of the slower one.

    >>> stretched(500, 0.5, 0.2), stretched(500, 3.0, 0.2), stretched(500, 100.0, 0.2)
    (500, 1000, 32000)
    """
    every = every_epochs
    for _ in range(_DOUBLINGS_MAX):
        if took_s <= SHARE_MAX * every * epoch_s:
            break
        every *= 2
    return every
