"""Feeding the journals of a job, at a rate that actions may change; and remembering what was acknowledged.

It is a thread of the chaos process, which no action hurts: what it remembers is what a client was told is safe.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lockstep.chaos.records import Making, malformed_lines
from lockstep.clock import US_PER_S, wall_us
from lockstep.errors import StoreError
from lockstep.plan.schema import Schema
from lockstep.store.arrow import batch_from_json_lines, batch_from_pylist
from lockstep.store.journal import SqliteJournal, open_journal

TICK_S = 0.02
RECORDS_PER_APPEND_MAX = 2_000
"""After a stall the backlog is given up beyond this: a rate is what is asked for, not a debt."""
HOUR_US = 3600 * US_PER_S
_PASSING = ("LS0404", "LS0413")
"""Disk full, locked: a client tries again with what it has then."""


@dataclass(frozen=True)
class Fed:
    """One journal to feed: the source that reads it, and who makes its records."""

    source: str
    journal: str
    schema: Schema
    partitions: int
    making: Making
    time_fields: tuple[str, ...] = ()
    """Columns that an ``event_time`` step reads."""


@dataclass
class _Open:
    fed: Fed
    journal: SqliteJournal
    draw: Random
    acknowledged: list[pa.RecordBatch] = field(default_factory=list)


class Feeder(threading.Thread):
    """Feeds all journals until told to end."""

    def __init__(self, store: Path, feds: Mapping[str, Fed], rate: float, seed: int) -> None:
        super().__init__(name="feeder", daemon=True)
        self._rate = rate
        self._factor = 1.0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._open = {
            name: _Open(
                fed,
                open_journal(store, fed.journal, fed.schema, fed.partitions),
                Random(f"{seed}/feed/{name}"),  # noqa: S311  (repeatable on purpose)
            )
            for name, fed in feds.items()
        }
        self._draw = Random(f"{seed}/malformed")  # noqa: S311
        self.failure: Exception | None = None
        self.refused = 0
        """Records that the journals could not take."""

    @property
    def feeds(self) -> bool:
        """Whether there is anything to feed."""
        return bool(self._open)

    @property
    def has_event_time(self) -> bool:
        """Whether a record that it feeds can be late."""
        return any(one.fed.time_fields for one in self._open.values())

    def set_rate(self, factor: float) -> None:
        """Multiply the rate by this from now on."""
        self._factor = factor

    def run(self) -> None:
        """Append what is due, again and again."""
        due, before_us = 0.0, wall_us()
        try:
            while not self._end.wait(TICK_S):
                now_us = wall_us()
                due += (now_us - before_us) / US_PER_S * self._rate * self._factor
                before_us = now_us
                count, due = min(int(due), RECORDS_PER_APPEND_MAX), due % 1
                for one in self._open.values():
                    self._append(one, count, 0)
        except Exception as error:
            # Raised again by whoever asks: a feeder that died quietly would look like a quiet source.
            self.failure = error

    def late(self, records: int) -> int:
        """Feed records whose times are an hour old."""
        timed = [one for one in self._open.values() if one.fed.time_fields]
        return sum(self._append(one, records, -HOUR_US) for one in timed)

    def malformed(self, records: int) -> int:
        """Offer lines that break the schema, one by one; how many were accepted."""
        accepted = 0
        for one in self._open.values():
            for line in malformed_lines(one.journal.schema, self._draw, records):
                try:
                    batch = batch_from_json_lines([line], one.journal.schema)
                except StoreError:
                    continue
                accepted += batch.num_rows
        return accepted

    def close_time(self) -> None:
        """One last record an hour ahead for each journal with event time: it closes every window but its own."""
        for one in self._open.values():
            if one.fed.time_fields:
                self._append(one, 1, HOUR_US)

    def acknowledged(self) -> dict[str, int]:
        """How many records of each source are safe."""
        self.check()
        return {name: sum(batch.num_rows for batch in one.acknowledged) for name, one in self._open.items()}

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Everything that was acknowledged, by source, in the order in which it was."""
        return {
            name: [record for batch in one.acknowledged for record in batch.to_pylist()]
            for name, one in self._open.items()
        }

    def held(self) -> dict[str, int]:
        """How many records the journals themselves say they hold, by source."""
        return {name: sum(one.journal.ends().values()) for name, one in self._open.items()}

    def check(self) -> None:
        """Raise what ended it."""
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        """Feed no more; what was begun is finished."""
        self._end.set()
        if self.is_alive():
            self.join()

    def close(self) -> None:
        """End, and give the journals back."""
        self.end()
        for one in self._open.values():
            one.journal.close()

    def _append(self, one: _Open, count: int, shift_us: int) -> int:
        if count <= 0:
            return 0
        # The runner appends late records from its own thread: numbers and chance must not be drawn by two at once.
        with self._lock:
            now_us = wall_us() + shift_us
            records = [one.fed.making.record(one.draw, now_us) for _ in range(count)]
            batch = batch_from_pylist(records, one.journal.schema)
            try:
                one.journal.append(batch)
            except StoreError as error:
                # A full disk: nothing was acknowledged, so nothing is remembered, and nothing of it may ever be seen.
                if error.code not in _PASSING:
                    raise
                self.refused += count
                return 0
            one.acknowledged.append(batch)
        return count
