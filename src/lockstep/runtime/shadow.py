"""What replicas in the shadow found: whether new results are those that were published, epoch by epoch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from lockstep.errors import StoreError
from lockstep.store.protocols import Facts

SAMPLES_MAX = 5
"""Differences that are kept in words; all are counted."""
TEXT_MAX = 2_000
NOTE_INTERVAL_S = 0.5
SHADOWED = "shadowed"
"""Fact: the generation whose results are compared now, or were last."""


def shadow_fact(results_of: int) -> str:
    """The fact with what was found about the results of a generation.

    >>> shadow_fact(2)
    'shadow-2'
    """
    return f"shadow-{results_of}"


def shadowed(store: Facts) -> int:
    """The generation whose results are compared now, or were last."""
    return int(store.fact(SHADOWED) or 0)


@dataclass(frozen=True)
class Sample:
    """One difference, in words."""

    epoch: int
    sink: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """New results beside those published, since the replica that compares joined."""

    replica: str = ""
    first_epoch: int = -1
    last_epoch: int = -1
    epochs: int = 0
    telling: int = 0
    """Of these, epochs with rows in one copy or the other: two empty ones are equal whatever the code is."""
    differing: int = 0
    samples: tuple[Sample, ...] = ()

    def with_epoch(self, epoch: int, found: dict[str, str], *, has_rows: bool) -> Comparison:
        """One epoch more; ``found`` has the differences by sink.

        >>> one = Comparison().with_epoch(7, {}, has_rows=False)
        >>> one = one.with_epoch(8, {"alerts": "1 row differs"}, has_rows=True)
        >>> one.epochs, one.telling, one.differing
        (2, 1, 1)
        """
        samples = [*self.samples, *(Sample(epoch, sink, text[:TEXT_MAX]) for sink, text in found.items())]
        return replace(
            self,
            first_epoch=epoch if self.first_epoch < 0 else self.first_epoch,
            last_epoch=epoch,
            epochs=self.epochs + 1,
            telling=self.telling + (has_rows or bool(found)),
            differing=self.differing + bool(found),
            samples=tuple(samples[:SAMPLES_MAX]),
        )


def comparison(store: Facts, results_of: int) -> Comparison:
    """What was found so far about the results of a generation."""
    kept: dict[str, Any] | None = json.loads(store.fact(shadow_fact(results_of)) or "null")
    if kept is None:
        return Comparison()
    return Comparison(**{**kept, "samples": tuple(Sample(**one) for one in kept["samples"])})


class ShadowNotes:
    """Keeps the comparison of one replica, and tells the store now and then: no epoch waits for it."""

    def __init__(
        self, store: Facts, replica: str, results_of: int, elapsed_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._results_of, self._elapsed_s = store, results_of, elapsed_s
        self._held = Comparison(replica)
        self._found: dict[str, str] = {}
        self._told_s = float("-inf")

    def differs(self, sink: str, text: str) -> None:
        """The epoch under way differs there."""
        self._found[sink] = text

    def epoch_done(self, epoch: int, *, has_rows: bool) -> None:
        """The epoch under way was compared in all its sinks."""
        self._held, self._found = self._held.with_epoch(epoch, self._found, has_rows=has_rows), {}
        if self._elapsed_s() < self._told_s + NOTE_INTERVAL_S:
            return
        self._told_s = self._elapsed_s()
        try:
            self._store.set_fact(shadow_fact(self._results_of), json.dumps(asdict(self._held), sort_keys=True))
        except StoreError:
            return  # told with the next epoch
