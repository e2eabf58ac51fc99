"""From a window to records of results: keys, window_start, window_end, then values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lockstep.keyed.codec import utc_time
from lockstep.keyed.operator import Arrival, Turn
from lockstep.keyed.records import Record
from lockstep.keyed.windows.contents import Contents
from lockstep.keyed.windows.open import OpenWindow
from lockstep.keyed.windows.panes import Pane, Timing

TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Results:
    """Sends results out, and late records aside if they are wanted."""

    keys: pa.Schema
    values: pa.Schema
    late_columns: pa.Schema | None = None

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        """The schema of the results, then that of the late records."""
        window = [pa.field("window_start", TIME), pa.field("window_end", TIME)]
        results = pa.schema([*self.keys, *window, *self.values])
        return (results,) if self.late_columns is None else (results, self.late_columns)

    def give(
        self, window: OpenWindow, contents: Contents, timing: Timing, turn: Turn, at_us: int | None, *, final: bool
    ) -> None:
        """The results of a window as it is now; its records are not all gone."""
        pane = Pane(
            key=Record(dict(zip(self.keys.names, turn.key, strict=True))),
            start=_time(window.start_us),
            end=_time(window.end_us),
            watermark=_time(turn.watermark_us),
            epoch_time=utc_time(turn.epoch_time_us),
            pane=window.panes,
            timing=timing,
            is_final=final,
        )
        for values in contents.results(window.kept, pane):
            turn.emit((*turn.key, pane.start, pane.end, *values), at_us)

    def late(self, record: Arrival, turn: Turn) -> None:
        """Put a late record aside, as it came."""
        if self.late_columns is not None:
            turn.emit(record.values[: len(self.late_columns)], record.at_us, output=1)


def _time(at_us: int | None) -> Any:
    return None if at_us is None else utc_time(at_us)
