"""Windows of so many records, in the order in which they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lockstep.keyed.operator import Arrival, Cell, Timer, Turn
from lockstep.keyed.windows.contents import Contents, Element
from lockstep.keyed.windows.open import OpenWindow
from lockstep.keyed.windows.results import Results


@dataclass(frozen=True)
class CountOperator:
    """A result over the last ``size`` records of a key after every ``every`` of them: over fewer at the beginning.

    With ``every`` equal to ``size`` each record is in one window, which is added up as records come; else the last
    records are kept. The state is [records since the last result, what is kept].
    """

    size: int
    every: int
    contents: Contents
    results: Results

    @property
    def outputs(self) -> Sequence[pa.Schema]:
        """The results."""
        return self.results.outputs

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Count, and give a result whenever the count is reached."""
        since, kept = cell.data or (0, None)
        overlapping = self.every < self.size
        for record in records:
            since += 1
            kept = self._last(kept, record) if overlapping else self.contents.add(kept, record)
            if since == self.every:
                whole = self._added(kept) if overlapping else kept
                self.results.give(
                    OpenWindow(None, None, whole), self.contents, "on_time", turn, record.at_us, final=True
                )
                since, kept = 0, kept if overlapping else None
        cell.data = None if kept is None else [since, kept]
        cell.changed = True

    def _last(self, kept: list[Element] | None, record: Arrival) -> list[Element]:
        elements = kept or []
        elements.append((record.at_us, record.values, ()))
        if len(elements) > self.size:
            del elements[0]
        return elements

    def _added(self, elements: list[Element]) -> Any:
        whole = None
        for at_us, values, _ in elements:
            whole = self.contents.add(whole, Arrival(0, values, at_us))
        return whole

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:  # noqa: ARG002
        """Count windows set no timers."""
        raise AssertionError("count windows set no timers")

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:  # noqa: ARG002
        """Count windows have no broadcast input."""
        raise AssertionError("count windows have no broadcast input")
