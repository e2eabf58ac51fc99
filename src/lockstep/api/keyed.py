"""A stream by key, as a user sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import explain_missing, one_function
from lockstep.api.connected import BroadcastStream, ConnectedStream, connect, process_of
from lockstep.api.joins import CoGrouped, co_group
from lockstep.api.rolling import extreme, fold, reduce, rolling_aggregate, top
from lockstep.api.windowed import KEYED_SLIPS, WindowedStream, windowed
from lockstep.keyed.process import Process
from lockstep.keyed.windows.custom import WindowAssigner
from lockstep.plan.expression import Expression, call
from lockstep.plan.schema import Schema
from lockstep.plan.steps import Named
from lockstep.plan.windows import Window

if TYPE_CHECKING:
    from lockstep.api.stream import Stream

__all__ = ["KEYED_SLIPS", "KeyedStream"]


class KeyedStream:
    """A stream by key: say what to compute for each key."""

    def __init__(self, stream: Stream, keys: Named) -> None:
        self._stream = stream
        self._keys = keys

    def window(self, window: Window | WindowAssigner, *, over: str | None = None) -> WindowedStream:
        """Compute for each key and window: ``window(ls.tumbling("1 minute")).agg(...)``.

        ``over`` names the column that puts records into windows: the event time if it is left out. Results of an
        earlier window have two more: ``over="window_end"``, and ``over="window_start"`` if that window has a fixed
        length. Without it they are taken at the last instant of their window, so that twelve windows of five minutes
        are in the hour that they are part of.
        """
        return windowed(self._stream, self._keys, window, over)

    def agg(
        self,
        *columns: Expression,
        name: str | None = None,
        exact_floats: bool = True,
        per_record: bool = False,
        **named: Any,
    ) -> Stream:
        """One record for each key, updated in every epoch that changes it: ``agg(n=F.count("*"))``.

        ``per_record=True`` gives a result after each record, in the order of the records (event time, then position).
        ``F.first``, ``F.last``, ``F.collect_list``, ``F.min_by`` and the like follow that order too, epoch by epoch.
        With one of them, or with ``F.stddev``, ``F.variance``, ``F.corr`` and their kin, the aggregation runs in
        Python. ``F.count_distinct``, ``F.collect_set``, ``F.median`` and ``F.percentile`` keep the distinct values of
        a key in the state, so they are for keys with few; ``F.approx_count_distinct`` is for many.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> from lockstep import F
        >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, user string, ms bigint"))
        >>> users, slow = F.count_distinct("user"), F.percentile("ms", 0.95)
        >>> calls.key_by("path").agg(users=users, slow=slow, spread=F.stddev("ms")).columns
        ('path', 'users', 'slow', 'spread')

        Sums and averages of floats are exact by default, so that replicas agree to the last digit;
        ``exact_floats=False`` adds in any order, faster (never in Python).
        """
        values = self._stream._values("agg", columns, named)
        return rolling_aggregate(
            self._stream, name, self._keys, values, exact_floats=exact_floats, per_record=per_record
        )

    def count(self, *, as_: str = "count", per_record: bool = False, name: str | None = None) -> Stream:
        """How many records each key has: columns are the keys and ``count``.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, ms bigint"))
        >>> calls.key_by("path").count().columns, calls.key_by("path").sum("ms").columns
        (('path', 'count'), ('path', 'ms'))
        """
        return self._rolling(((as_, call("count", "*")),), name, per_record=per_record)

    def sum(self, *columns: Any, per_record: bool = False, name: str | None = None, **named: Any) -> Stream:
        """The sums of columns, under their names: ``sum("ms")``; or of expressions: ``sum(total="price * pieces")``."""
        return self._rolling(one_function("sum", columns, named, self._stream.columns), name, per_record=per_record)

    def min(self, *columns: Any, per_record: bool = False, name: str | None = None, **named: Any) -> Stream:
        """The smallest values of columns, under their names: ``min("ms")``. The whole record: ``min_by("ms")``."""
        return self._rolling(one_function("min", columns, named, self._stream.columns), name, per_record=per_record)

    def max(self, *columns: Any, per_record: bool = False, name: str | None = None, **named: Any) -> Stream:
        """The largest values of columns, under their names: ``max("ms")``. The whole record: ``max_by("ms")``."""
        return self._rolling(one_function("max", columns, named, self._stream.columns), name, per_record=per_record)

    def min_by(self, value: str | Expression, *, per_record: bool = False, name: str | None = None) -> Stream:
        """The whole record with the smallest value; among equals the first (by event time, then by position).

        A record whose value is null is never the smallest. Runs in Python: ``min("ms")`` is native, and faster.
        """
        return extreme(self._stream, self._keys, value, name, largest=False, per_record=per_record)

    def max_by(self, value: str | Expression, *, per_record: bool = False, name: str | None = None) -> Stream:
        """The whole record with the largest value; among equals the first (by event time, then by position)."""
        return extreme(self._stream, self._keys, value, name, largest=True, per_record=per_record)

    def top(
        self,
        number: int,
        *,
        by: str | Expression,
        window: Window | WindowAssigner | None = None,
        ascending: bool = False,
        as_: str = "rank",
        name: str | None = None,
    ) -> Stream:
        """The records of each key, and of each window, with the largest values, whole, with their rank.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, ms bigint, at timestamp"))
        >>> slow = calls.event_time("at").key_by("path").top(3, by="ms", window=ls.tumbling("1 hour"))
        >>> slow.columns
        ('path', 'window_start', 'window_end', 'rank', 'ms', 'at')
        >>> calls.key_by("path").top(3, by="ms").columns
        ('path', 'rank', 'ms', 'at')

        With a window it is ``.window(window).top(...)``, which says more. Without one it is the top of all time: an
        update of all ranks of a key in each epoch that brings records of it, for a sink with ``key=`` the keys and
        ``rank``.
        """
        return top(self._stream, self._keys, number, by, window, as_, name, ascending=ascending)

    def reduce(
        self, function: Callable[[Any, Any], Any], *, per_record: bool = False, name: str | None = None
    ) -> Stream:
        """The records of a key put together, two by two: ``function(so_far, record)`` returns a record like them.

        The first record of a key stands for itself. Records come in the order of event time, then position; each epoch
        goes on with what the one before has left.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, ms bigint"))
        >>> calls.key_by("path").reduce(lambda a, b: {"path": a.path, "ms": a.ms + b.ms}).columns
        ('path', 'ms')
        """
        return reduce(self._stream, self._keys, function, name, per_record=per_record)

    def fold(
        self,
        initial: Any,
        function: Callable[[Any, Any], Any],
        *,
        schema: str | Schema | None = None,
        per_record: bool = False,
        name: str | None = None,
    ) -> Stream:
        """An accumulator for each key: ``function(accumulator, record)`` returns the new one, first from ``initial``.

        The accumulator is a dict (or tuple) of the fields in ``schema``, or, with one field, simply its value. Results
        have the keys and these fields.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, ms bigint"))
        >>> calls.key_by("path").fold(0, lambda total, call: total + call.ms, schema="total bigint").columns
        ('path', 'total')
        """
        return fold(self._stream, self._keys, initial, function, schema, name, per_record=per_record)

    def _rolling(self, values: Named, name: str | None, *, per_record: bool) -> Stream:
        return rolling_aggregate(self._stream, name, self._keys, values, exact_floats=True, per_record=per_record)

    def process(
        self,
        process: Process,
        *,
        schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None,
        ordered: bool = False,
        name: str | None = None,
    ) -> Stream:
        """Handle records and timers of each key with your own class, which keeps state.

        Within an epoch, first the timers of a key that are due, then its records in the order of event time and
        position, then timers that became due meanwhile. ``ordered=True`` holds each record back until event time has
        passed it, so that results do not depend on how the input was cut into epochs. Side outputs are named with
        their schemas, sent to with ``ctx.emit_to("late", ...)`` and read with ``.side("late")``.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> class Count(ls.Process):
        ...     seen = ls.value_state("bigint")
        ...     def on_record(self, record, ctx):
        ...         self.seen.set(self.seen.get(0) + 1)
        ...         ctx.emit(user=ctx.key.user, seen=self.seen.get())
        >>> logins = Job("doc").source("logins", ls.journal("logins", schema="user string, at timestamp"))
        >>> logins.key_by("user").process(Count(), schema="user string, seen bigint").columns
        ('user', 'seen')
        """
        keys = (self._keys,)
        return process_of((self._stream,), keys, ("record",), process, schema, side_outputs, name, ordered=ordered)

    def connect(self, other: KeyedStream | BroadcastStream) -> ConnectedStream:
        """This stream and another one by the same key, or a broadcast, for one process function with one state."""
        return connect(self._stream, self._keys, other)

    def co_group(self, other: KeyedStream) -> CoGrouped:
        """This stream and another one by the same key, looked at together in windows.

        ``a.key_by("k").co_group(b.key_by("k")).window(ls.tumbling("1 minute")).apply(function, schema=...)``
        """
        return co_group(self._stream, self._keys, other)

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, asked: str) -> NoReturn:
            explain_missing(self, asked, KEYED_SLIPS)
