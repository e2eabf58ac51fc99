"""Two streams gathered by key and window: the user's function sees both lists when the window closes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lockstep.keyed.codec import utc_time
from lockstep.keyed.functions import Returned, explained
from lockstep.keyed.operator import Arrival, Cell, Timer, Turn
from lockstep.keyed.records import Record
from lockstep.keyed.windows.assigners import Regular
from lockstep.keyed.windows.contents import element_of, in_order
from lockstep.keyed.windows.panes import Pane

_MEND = "mend the function, or filter such records out before they are gathered."


@dataclass(frozen=True)
class CoGroupOperator:
    """Keeps the records of each open window as {window start: (left, right)}; a timer at its end closes it."""

    step: str
    function: Callable[..., Any]
    schema: pa.Schema
    windows: Regular
    key_names: tuple[str, ...]
    columns: tuple[tuple[str, ...], tuple[str, ...]]
    """The columns of the left and the right stream."""

    @property
    def outputs(self) -> Sequence[pa.Schema]:
        """One: what the function returns."""
        return (self.schema,)

    @property
    def wants_positions(self) -> bool:
        """The function sees the records in the order of time, then position."""
        return True

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Put each record into its windows; one whose window has closed is late and dropped."""
        opened = dict(cell.data or {})
        for record in records:
            for start_us, end_us in self.windows.windows(record.at_us, record.values):
                assert start_us is not None and end_us is not None, "regular windows have bounds"
                if turn.watermark_us is not None and end_us <= turn.watermark_us:
                    continue
                if start_us not in opened:
                    opened[start_us] = ([], [])
                    turn.set_timer(Timer("event", end_us))
                opened[start_us][record.input].append(element_of(record))
                cell.changed = True
        cell.data = opened or None

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        """The window is complete: call the function and forget the records."""
        opened = dict(cell.data)
        left, right = opened.pop(timer.at_us - self.windows.size_us)
        cell.data, cell.changed = opened or None, True
        for values in self._made(left, right, self._pane(timer.at_us, turn)):
            turn.emit(values, timer.at_us - 1)

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:  # noqa: ARG002
        """Both inputs have keys."""
        raise AssertionError("a co-group has no broadcast input")

    def _made(self, left: list[Any], right: list[Any], pane: Pane) -> list[tuple[Any, ...]]:
        sides = [
            [Record(dict(zip(names, values, strict=True))) for _, values, _ in in_order(kept)]
            for names, kept in zip(self.columns, (left, right), strict=True)
        ]
        returned = Returned(self.step, self.schema)
        try:
            return [returned.values(one) for one in _several(self.function(pane.key, *sides, pane))]
        except Exception as error:
            raise explained(self.step, error, f"{len(left)} and {len(right)} records of {pane}", _MEND) from None

    def _pane(self, end_us: int, turn: Turn) -> Pane:
        return Pane(
            key=Record(dict(zip(self.key_names, turn.key, strict=True))),
            start=utc_time(end_us - self.windows.size_us),
            end=utc_time(end_us),
            watermark=None if turn.watermark_us is None else utc_time(turn.watermark_us),
            epoch_time=utc_time(turn.epoch_time_us),
            pane=0,
            timing="on_time",
            is_final=True,
        )


def _several(made: Any) -> Iterable[Any]:
    """What the function returned, as any number of records."""
    if made is None:
        return ()
    return [made] if isinstance(made, Mapping | Record) else made
