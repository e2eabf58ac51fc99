"""What those who seal are told: whether to seal at all, and which generation of the job publishes from now on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from lockstep.store.protocols import Entry, Facts

STEERING = "steering"
"""Fact: the newest :class:`Steering`."""


@dataclass(frozen=True)
class Steering:
    """One order to all who seal. ``turn`` grows with every change of the generation, back or forth."""

    generation: int = 1
    turn: int = 0
    paused: bool = False
    """Whether the job is deactivated: its replicas stay, and no epoch is sealed."""
    beside: int = 0
    """The other generation that computes too while results change; 0: there is none."""

    def is_shadowed_by(self, entry: Entry, results_of: int) -> bool:
        """Whether others than those with these results publish an epoch. If nobody else is there, these do.

        >>> epoch = Entry(4, 0, {}, generation=1)
        >>> Steering(generation=1, beside=2).is_shadowed_by(epoch, 2), Steering(generation=2).is_shadowed_by(epoch, 2)
        (True, False)
        """
        return entry.generation != results_of and entry.generation in (self.generation, self.beside)

    def for_entry(self, previous: Entry | None) -> tuple[int, int]:
        """The generation that publishes the next epoch, and the turn that says so.

        Whoever has not heard of a turn yet does not undo it: the entry before counts if its turn is newer.

        >>> Steering(generation=2, turn=1).for_entry(Entry(4, 0, {}, generation=1, turn=0))
        (2, 1)
        >>> Steering(generation=1, turn=0).for_entry(Entry(5, 0, {}, generation=2, turn=1))
        (2, 1)
        """
        if previous is not None and previous.turn > self.turn:
            return previous.generation, previous.turn
        return self.generation, self.turn


def steering(store: Facts) -> Steering:
    """What holds now."""
    return _parsed(store.fact(STEERING))


def steer(store: Facts, change: Callable[[Steering], Steering]) -> Steering:
    """Change what holds; ``change`` may be called again if somebody else changed it meanwhile."""
    while True:
        held = store.fact(STEERING)
        before = _parsed(held)
        after = change(before)
        if after == before or store.swap_fact(STEERING, held, json.dumps(asdict(after), sort_keys=True)):
            return after


def pause(store: Facts) -> Steering:
    """Have nobody seal any more; epochs that are sealed are computed and published."""
    return steer(store, lambda held: replace(held, paused=True))


def resume(store: Facts) -> Steering:
    """Go on sealing."""
    return steer(store, lambda held: replace(held, paused=False))


def publish_from(store: Facts, generation: int, beside: int = 0) -> Steering:
    """From the next entry on, this generation publishes; beside it, another one may compute."""

    def change(held: Steering) -> Steering:
        turn = held.turn + (held.generation != generation)
        return replace(held, generation=generation, turn=turn, beside=beside)

    return steer(store, change)


def _parsed(text: str | None) -> Steering:
    return Steering(**json.loads(text)) if text else Steering()
