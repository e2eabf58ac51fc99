"""What a user writes for windows of their own, or for computing over a window's records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from lockstep.keyed.windows.panes import Pane


class WindowAssigner:
    """Windows of your own: a class whose ``assign`` says for each record which windows it is in.

    Pass an instance to ``.window(...)``. It is given nothing but the record, so that all replicas get the same answer.

    >>> import lockstep as ls
    >>> from datetime import timedelta
    >>> class Shifts(ls.WindowAssigner):
    ...     '''The early shift from six, the late one from fourteen, the night shift from twenty-two o'clock.'''
    ...     def assign(self, record):
    ...         shifted = record.at - timedelta(hours=6)
    ...         midnight = shifted.replace(hour=0, minute=0, second=0, microsecond=0)
    ...         start = midnight + timedelta(hours=6 + shifted.hour // 8 * 8)
    ...         return [(start, start + timedelta(hours=8))]
    """

    time: ClassVar[str] = "event"
    """Which time ends its windows: "event", or "processing" for the time of the epochs."""

    def assign(self, record: Any) -> Sequence[tuple[datetime, datetime]]:
        """The windows that the record is in, each a start and an end."""
        raise NotImplementedError(f"{type(self).__name__} has no assign(record)")


class WindowFunction:
    """Computes over all records of a window: subclass it, or pass a plain function of (records, window).

    The records are of the type :class:`lockstep.typing.Record`, the window is a :class:`lockstep.typing.Pane`.

    >>> import lockstep as ls
    >>> class Median(ls.WindowFunction):
    ...     def process(self, records, window):
    ...         values = sorted(record.ms for record in records)
    ...         return {"median": values[len(values) // 2], "final": window.is_final}
    """

    def process(self, records: list[Any], window: Pane) -> Any | Iterable[Any]:
        """One result (a dict), any number of them, or None; ``records`` are in order of time."""
        raise NotImplementedError(f"{type(self).__name__} has no process(records, window)")


class WindowAggregator:
    """An aggregate of your own: an accumulator that each record changes, and a result made of it at the end.

    Pass an instance to ``.window(...).aggregate(..., schema=...)``. The accumulator is plain data, and all that a
    window keeps; :meth:`finish` may be called several times, for results before the end and after it.

    >>> import lockstep as ls
    >>> class Mean(ls.WindowAggregator):
    ...     def create(self):
    ...         return (0, 0.0)
    ...     def add(self, accumulator, record):
    ...         count, total = accumulator
    ...         return (count + 1, total + record.ms)
    ...     def finish(self, accumulator):
    ...         count, total = accumulator
    ...         return {"mean": total / count}
    """

    def create(self) -> Any:
        """The accumulator of a new window."""
        raise NotImplementedError(f"{type(self).__name__} has no create()")

    def add(self, accumulator: Any, record: Any) -> Any:
        """The accumulator after one more record. Records come epoch by epoch, those of an epoch in order of time."""
        raise NotImplementedError(f"{type(self).__name__} has no add(accumulator, record)")

    def finish(self, accumulator: Any) -> Any:
        """The result: a dict (or tuple) of the schema's fields; with one field, also its value."""
        raise NotImplementedError(f"{type(self).__name__} has no finish(accumulator)")

    def merge(self, accumulator: Any, later: Any) -> Any:
        """The accumulator of two sessions that became one. Without it sessions keep their records until they end."""
        raise NotImplementedError(f"{type(self).__name__} has no merge(accumulator, later)")
