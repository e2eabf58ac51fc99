"""The open windows of one key, as the operator works with them and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.keyed.operator import Arrival
from lockstep.keyed.windows.assigners import Bounds
from lockstep.keyed.windows.contents import Contents


@dataclass(slots=True)
class OpenWindow:
    """A window that holds records, or has held some since it began."""

    start_us: int | None
    end_us: int | None
    kept: Any = None
    unfired: int = 0
    """Records since the last result."""
    panes: int = 0
    """Results so far."""
    latest_us: int | None = None
    """The latest event time of its records."""

    @property
    def bounds(self) -> Bounds:
        """Start and end, which tell it from the others."""
        return self.start_us, self.end_us

    def add(self, record: Arrival, contents: Contents) -> None:
        """Take a record in."""
        self.kept = contents.add(self.kept, record)
        self.unfired += 1
        if record.at_us is not None and (self.latest_us is None or record.at_us > self.latest_us):
            self.latest_us = record.at_us

    def take(self, other: OpenWindow, contents: Contents) -> None:
        """Take all that a later window holds."""
        if self.kept is not None and other.kept is not None:
            self.kept = contents.merge(self.kept, other.kept)
        elif self.kept is None:
            self.kept = other.kept
        self.unfired += other.unfired
        self.panes = max(self.panes, other.panes)
        times = [at for at in (self.latest_us, other.latest_us) if at is not None]
        self.latest_us = max(times, default=None)


class OpenWindows:
    """All windows of a key. As data: a list of each window's fields, in order of opening."""

    def __init__(self, data: Any) -> None:
        self._windows = {(fields[0], fields[1]): OpenWindow(*fields) for fields in data or ()}

    def data(self) -> Any:
        """Plain data for the cell; None if no window is open."""
        kept = [
            [one.start_us, one.end_us, one.kept, one.unfired, one.panes, one.latest_us]
            for one in self._windows.values()
        ]
        return kept or None

    def get(self, bounds: Bounds) -> OpenWindow | None:
        """The window with these bounds, if it is open."""
        return self._windows.get(bounds)

    def open(self, bounds: Bounds) -> OpenWindow:
        """A new window."""
        window = self._windows[bounds] = OpenWindow(*bounds)
        return window

    def close(self, window: OpenWindow) -> None:
        """Forget a window."""
        del self._windows[window.bounds]

    def touching(self, bounds: Bounds) -> list[OpenWindow]:
        """The windows that overlap the bounds or meet them, earliest first."""
        start_us, end_us = bounds
        assert start_us is not None
        assert end_us is not None
        found = [one for one in self._windows.values() if one.start_us is not None and one.end_us is not None]
        return sorted(
            (one for one in found if one.start_us <= end_us and start_us <= one.end_us),  # type: ignore[operator]
            key=lambda one: one.start_us or 0,
        )


def tag_of(what: str, bounds: Bounds) -> str:
    """What a timer is for, and which window.

    >>> tag_of("end", (0, 60)), bounds_of("end 0 60"), bounds_of("early - -")
    ('end 0 60', ('end', (0, 60)), ('early', (None, None)))
    """
    start, end = ("-" if edge is None else str(edge) for edge in bounds)
    return f"{what} {start} {end}"


def bounds_of(tag: str) -> tuple[str, Bounds]:
    """What :func:`tag_of` was given."""
    what, start, end = tag.split(" ")
    return what, (None if start == "-" else int(start), None if end == "-" else int(end))
