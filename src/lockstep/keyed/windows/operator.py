"""Windows for one key: records go into their windows, timers end them, triggers give results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lockstep.keyed.operator import Arrival, Cell, TimeKind, Timer, Turn
from lockstep.keyed.windows.assigners import Assigner, Bounds
from lockstep.keyed.windows.contents import Contents, Kept
from lockstep.keyed.windows.open import OpenWindow, OpenWindows, bounds_of, tag_of
from lockstep.keyed.windows.panes import Timing
from lockstep.keyed.windows.results import Results
from lockstep.plan.triggers import Firing, Trigger


@dataclass(frozen=True)
class WindowOperator:
    """Any assigner with any trigger. ``clock`` says which time puts records into windows and ends these.

    A window ends when its clock has reached its end, and is forgotten ``lateness_us`` after that. A record is late for
    a window that is forgotten; one that is late for all its windows goes to the side output, if there is one.
    """

    assigner: Assigner
    trigger: Trigger
    lateness_us: int
    clock: TimeKind
    contents: Contents
    results: Results

    @property
    def outputs(self) -> Sequence[pa.Schema]:
        """The results, then the late records if they are wanted."""
        return self.results.outputs

    @property
    def wants_positions(self) -> bool:
        """Records that are kept are put in the order of time, then position."""
        return isinstance(self.contents, Kept)

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Put records into their windows, and give the results that this calls for."""
        visit = _Visit(self, OpenWindows(cell.data), turn)
        for record in records:
            visit.place(record)
        visit.fire_changed()
        visit.leave(cell)

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        """A window's end, the time to forget it, or an interval of its trigger has come."""
        visit = _Visit(self, OpenWindows(cell.data), turn)
        what, bounds = bounds_of(timer.tag)
        window = visit.windows.get(bounds)
        if window is None:
            return  # It has grown into another since the timer was set.
        if what == "end":
            visit.end(window)
        elif what == "forget":
            visit.forget(window)
        else:
            visit.interval(window, what)
        visit.leave(cell)

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:  # noqa: ARG002
        """Windows have no broadcast input."""
        raise AssertionError("windows have no broadcast input")


class _Visit:
    """One call of the operator: the key's open windows, and those that records have changed."""

    __slots__ = ("changed", "now_us", "opened", "operator", "turn", "windows")

    def __init__(self, operator: WindowOperator, windows: OpenWindows, turn: Turn) -> None:
        self.operator = operator
        self.windows = windows
        self.turn = turn
        self.now_us = turn.watermark_us if operator.clock == "event" else turn.epoch_time_us
        """How far the windows' clock has come."""
        self.changed: dict[Bounds, OpenWindow] = {}
        self.opened: dict[Bounds, OpenWindow] = {}
        """New windows. A session may grow with every record: its timers are set when it has stopped growing."""

    def leave(self, cell: Cell) -> None:
        """Write the windows back."""
        for window in self.opened.values():
            self._set_timers(window)
        cell.data = self.windows.data()
        cell.changed = True

    def place(self, record: Arrival) -> None:
        """Add the record to each of its windows that is not forgotten."""
        operator = self.operator
        at_us = record.at_us if operator.clock == "event" else self.turn.epoch_time_us
        placed = False
        for bounds in operator.assigner.windows(at_us, record.values):
            window = self._merged(bounds) if operator.assigner.merging else self._found(bounds)
            if window is not None:
                self._add(window, record)
                placed = True
        if not placed:
            operator.results.late(record, self.turn)

    def _found(self, bounds: Bounds) -> OpenWindow | None:
        window = self.windows.get(bounds)
        if window is None and not self._is_forgotten(bounds[1]):
            window = self.opened[bounds] = self.windows.open(bounds)
        return window

    def _merged(self, bounds: Bounds) -> OpenWindow | None:
        """The session that the bounds belong to, grown as far as needed; the sessions it has reached are part of it."""
        touched = self.windows.touching(bounds)
        start = min(edge for edge in (bounds[0], *(one.start_us for one in touched)) if edge is not None)
        end = max(edge for edge in (bounds[1], *(one.end_us for one in touched)) if edge is not None)
        if self._is_forgotten(end):
            return None
        if len(touched) == 1 and touched[0].bounds == (start, end):
            return touched[0]
        for one in touched:
            self.windows.close(one)
            self.changed.pop(one.bounds, None)
            if self.opened.pop(one.bounds, None) is None:
                self._cancel_timers(one)
        window = self.opened[start, end] = self.windows.open((start, end))
        for one in touched:
            window.take(one, self.operator.contents)
        return window

    def _is_forgotten(self, end_us: int | None) -> bool:
        now_us = self.now_us
        return end_us is not None and now_us is not None and end_us + self.operator.lateness_us <= now_us

    def _has_ended(self, window: OpenWindow) -> bool:
        now_us = self.now_us
        return window.end_us is not None and now_us is not None and window.end_us <= now_us

    def _set_timers(self, window: OpenWindow) -> None:
        for timer in self._timers(window):
            if timer.tag.startswith("forget") or not self._has_ended(window):
                self.turn.set_timer(timer)

    def _cancel_timers(self, window: OpenWindow) -> None:
        for timer in self._timers(window):
            self.turn.cancel_timer(timer)

    def _timers(self, window: OpenWindow) -> list[Timer]:
        end_us, operator = window.end_us, self.operator
        if end_us is None:
            return []
        timers = [Timer(operator.clock, end_us, tag_of("end", window.bounds))] if operator.trigger.at_end else []
        forget_us = end_us + operator.lateness_us
        if operator.lateness_us or not timers:
            timers.append(Timer(operator.clock, forget_us, tag_of("forget", window.bounds)))
        return timers

    def _add(self, window: OpenWindow, record: Arrival) -> None:
        window.add(record, self.operator.contents)
        ended = self._has_ended(window)
        firing = self.operator.trigger.late if ended else self.operator.trigger.early
        if firing is None:
            return
        if firing.each_epoch:
            self.changed[window.bounds] = window
        if firing.every_us is not None:
            self._set_interval(window, firing, record, ended=ended)
        if firing.count is not None and window.unfired >= firing.count:
            self.fire(window, "late" if ended else "early")

    def _set_interval(self, window: OpenWindow, firing: Firing, record: Arrival, *, ended: bool) -> None:
        """A timer at the next whole interval, so that all keys fire together; none if the window's end comes first."""
        assert firing.every_us is not None
        if firing.time == "processing":
            kind: TimeKind = "epoch"
            now_us = self.turn.epoch_time_us
        else:
            kind = "event"
            times = [at for at in (record.at_us, self.turn.watermark_us) if at is not None]
            if not times:
                return
            now_us = max(times)
        next_us = now_us - now_us % firing.every_us + firing.every_us
        ends_before = not ended and kind == self.operator.clock and window.end_us is not None
        if not (ends_before and window.end_us is not None and next_us >= window.end_us):
            self.turn.set_timer(Timer(kind, next_us, tag_of("late" if ended else "early", window.bounds)))

    def fire_changed(self) -> None:
        """Give the results of the windows that fire once in every epoch."""
        for window in sorted(self.changed.values(), key=lambda one: (one.start_us or 0, one.end_us or 0)):
            if window.unfired:
                self.fire(window, "late" if self._has_ended(window) else "early")

    def end(self, window: OpenWindow) -> None:
        """The result at the window's end: also if nothing has come since an early one, for it says that this is it."""
        if window.kept is not None and (window.unfired or not self.operator.trigger.purge):
            self.fire(window, "on_time")
        if not self.operator.lateness_us:
            self.windows.close(window)

    def forget(self, window: OpenWindow) -> None:
        """The end of the allowed lateness: what no result has told yet is told now."""
        if window.unfired and self.operator.trigger.at_end:
            self.fire(window, "late")
        self.windows.close(window)

    def interval(self, window: OpenWindow, what: str) -> None:
        """An interval of the trigger has passed. Before the end it fires only as long as the end has not come."""
        if window.unfired and (what == "late" or not self._has_ended(window)):
            self.fire(window, "late" if what == "late" else "early")

    def fire(self, window: OpenWindow, timing: Timing) -> None:
        """Give a result."""
        operator = self.operator
        final = timing == "on_time" and not operator.lateness_us
        at_us = window.end_us - 1 if window.end_us is not None and operator.clock == "event" else window.latest_us
        operator.results.give(window, operator.contents, timing, self.turn, at_us, final=final)
        window.unfired = 0
        window.panes += 1
        if operator.trigger.purge:
            window.kept = None
