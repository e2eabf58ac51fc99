"""How long ago others said and did something new, by one's own steady clock.

A clock may be set, and those of two hosts differ. So nobody measures the age of another's word by the stamp in it: what
counts is when the stamp changed, seen from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lockstep.clock import US_PER_S
from lockstep.store.protocols import Progress

TOLERANCE_US = 1_000
"""A stamp that is right to the millisecond is left as it is."""


class LastSeen:
    """One observer's memory of what it saw last."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, int, float]] = {}
        self._looked_s: float | None = None

    def aged(self, progress: Iterable[Progress], now_us: int, elapsed_s: float) -> list[Progress]:
        """The same words, with stamps as far before ``now_us`` as they are old.

        >>> last_seen, word = LastSeen(), Progress("r1", 1, 1, "running", updated_us=7_000_000)
        >>> [one.updated_us for one in last_seen.aged([word], now_us=9_000_000, elapsed_s=100.0)]
        [7000000]
        >>> [one.updated_us for one in last_seen.aged([word], now_us=3_000_000, elapsed_s=101.0)]  # the clock was set
        [0]
        """
        found = []
        for one in progress:
            said_us = now_us - self._age_us(one, "said", one.updated_us, now_us, elapsed_s)
            moved_us = now_us - self._age_us(one, "moved", one.moved_us, now_us, elapsed_s)
            active_us = now_us - self._age_us(one, "active", one.active_us, now_us, elapsed_s) if one.active_us else 0
            stamps = ((said_us, one.updated_us), (moved_us, one.moved_us), (active_us, one.active_us))
            is_right = all(abs(ours - theirs) < TOLERANCE_US for ours, theirs in stamps)
            found.append(one if is_right else replace(one, updated_us=said_us, moved_us=moved_us, active_us=active_us))
        self._looked_s = elapsed_s
        return found

    def _age_us(self, one: Progress, what: str, stamp_us: int, now_us: int, elapsed_s: float) -> int:
        key = (one.replica, what)
        held = self._seen.get(key)
        if held is None or held[:2] != (one.incarnation, stamp_us):
            # The stamp tells how old it is, if that can be true: it is new since the last look.
            age_s = max(0.0, (now_us - stamp_us) / US_PER_S)
            if self._looked_s is not None and age_s > elapsed_s - self._looked_s:
                age_s = 0.0
            held = self._seen[key] = (one.incarnation, stamp_us, elapsed_s - age_s)
        return round((elapsed_s - held[2]) * US_PER_S)
