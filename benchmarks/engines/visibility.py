"""How long records waited, told from rows as a reader saw them: the same rule for every engine."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Protocol

from benchmarks.engines.contract import CLOSING_MS, Records, Row, SeenRow, Visibility, Wait

__all__ = ["Each", "Final", "Updates", "Visibility"]

Key = tuple[object, ...]


class Each:
    """One row per record: it waited until its row was first seen."""

    def __init__(self, records: Records) -> None:
        self._sent = {(source, row["seq"]): row["sent_us"] for source, rows in records.items() for row in rows}
        self._only = next(iter(records)) if len(records) == 1 else None

    def waits_ms(self, seen_rows: Sequence[SeenRow]) -> list[Wait]:
        """A wait for every record whose row was seen."""
        waits, done = [], set()
        for seen in seen_rows:
            source = seen.row.get("source", self._only)
            known = (source, seen.row.get("seq"))
            if known in self._sent and known not in done:
                done.add(known)
                waits.append(Wait(str(source), self._sent[known], seen.seen_us))
        return waits


class Updates:
    """Rows of a key replace each other: a record waited until a row of its key with its ``seq`` or a later was seen."""

    def __init__(
        self, records: Records, keys_of: Callable[[str, Row], Iterable[Key]], columns: tuple[str, ...]
    ) -> None:
        self._columns = columns
        self._waiting: dict[Key, list[tuple[int, int, str]]] = defaultdict(list)
        for source, rows in records.items():
            for row in rows:
                for key in set(keys_of(source, row)):
                    self._waiting[key].append((row["seq"], row["sent_us"], source))

    def waits_ms(self, seen_rows: Sequence[SeenRow]) -> list[Wait]:
        """A wait for every record and key that a row covered."""
        waits = []
        next_of: dict[Key, int] = defaultdict(int)
        for seen in seen_rows:
            key = tuple(seen.row[name] for name in self._columns)
            waiting = self._waiting.get(key, [])
            at = next_of[key]
            while at < len(waiting) and waiting[at][0] <= seen.row["seq"]:
                _, sent_us, source = waiting[at]
                waits.append(Wait(source, sent_us, seen.seen_us))
                at += 1
            next_of[key] = at
        return waits


class Windowed(Protocol):
    """What has to be known of a workload with windows."""

    @property
    def key(self) -> tuple[str, ...]:
        """What names a result."""

    @property
    def window_ms(self) -> int:
        """How long its windows are."""

    @property
    def out_of_order_ms(self) -> int:
        """How long event time is held back."""


class Final:
    """One row per key and window: it waited since the record was sent with which event time had passed the window.

    With several inputs that is the first of them that had passed it: what an engine waits for the others, because they
    are slow or quiet, is part of its wait. Windows that only the closing records close are not counted: nothing
    followed that could have closed them sooner.
    """

    def __init__(self, workload: Windowed, records: Records) -> None:
        self._workload = workload
        rows = {source: [row for row in found if row["at_ms"] < CLOSING_MS] for source, found in records.items()}
        self._progress = {source: _Progress(found) for source, found in rows.items()}

    def waits_ms(self, seen_rows: Sequence[SeenRow]) -> list[Wait]:
        """A wait for the first row of every key and window."""
        waits, done = [], set()
        final: dict[int, tuple[int, str] | None] = {}
        for seen in seen_rows:
            key = tuple(seen.row[name] for name in self._workload.key)
            if key in done:
                continue
            done.add(key)
            start_ms = seen.row["window_start_ms"]
            if start_ms not in final:
                final[start_ms] = self._passed(start_ms + self._workload.window_ms + self._workload.out_of_order_ms)
            passed = final[start_ms]
            if passed is not None:
                waits.append(Wait(passed[1], passed[0], seen.seen_us))
        return waits

    def _passed(self, needed_ms: int) -> tuple[int, str] | None:
        """When event time had come so far, and in which input first; None if only the closing did it."""
        found = ((one.passed_us(needed_ms), source) for source, one in self._progress.items())
        return min(((at_us, source) for at_us, source in found if at_us is not None), default=None)


class _Progress:
    """How event time went on in one source."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._highest_ms = list(accumulate((row["at_ms"] for row in rows), max))
        self._sent_us = [row["sent_us"] for row in rows]

    def passed_us(self, needed_ms: int) -> int | None:
        at = bisect_left(self._highest_ms, needed_ms)
        return self._sent_us[at] if at < len(self._sent_us) else None
