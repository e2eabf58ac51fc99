"""A stream by window, as a user sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import explain_missing, one_function, python_schema, step_name
from lockstep.api.triggers import checked_trigger
from lockstep.api.windows import window_time_of
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.keyed.windows.custom import WindowAggregator, WindowAssigner, WindowFunction
from lockstep.plan.accumulated import accumulated, needs_lockstep
from lockstep.plan.columns import value_of
from lockstep.plan.event_times import distance_us, moved
from lockstep.plan.expression import Alias, Call, Expression, unaliased
from lockstep.plan.schema import Schema, unknown_column
from lockstep.plan.steps import WINDOW_COLUMNS, Aggregate, Named
from lockstep.plan.triggers import AT_WATERMARK, UPDATES, Firing, Trigger
from lockstep.plan.windowed import (
    Accumulation,
    Aggregation,
    Computation,
    Folding,
    Processing,
    Reduction,
    Top,
    WindowStep,
)
from lockstep.plan.windows import (
    Count,
    Custom,
    GlobalWindow,
    NativeWindow,
    Session,
    Sliding,
    Tumbling,
    Window,
    is_native,
)

if TYPE_CHECKING:
    from lockstep.api.stream import Stream

KEYED_SLIPS = {"": 'first say what to compute: .agg(n=F.count("*")); the result is a stream again.'}


@dataclass(frozen=True)
class _Options:
    """How a window gives results."""

    trigger: Trigger | None = None
    updates: bool = False
    lateness_us: int = 0
    late_to_side: bool = False
    distance_us: int = 0
    """How far the time that puts records into windows lies after their event time; results are moved by it."""

    @property
    def usual(self) -> bool:
        """One final result for each window, and nothing else."""
        return self.trigger in (None, AT_WATERMARK) and not self.lateness_us and not self.late_to_side


class WindowedStream:
    """A stream by window, and by key if it has one: say when there are results, and what to compute.

    >>> import lockstep as ls
    >>> hits = ls.Job("doc").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
    >>> slow = (
    ...     hits.event_time("at", out_of_order="5 seconds")
    ...     .key_by("page")
    ...     .window(ls.sliding("1 minute", every="10 seconds"))
    ...     .agg(slowest=ls.F.max("ms"))
    ... )
    >>> slow.columns
    ('page', 'window_start', 'window_end', 'slowest')
    """

    def __init__(self, stream: Stream, keys: Named, window: Window, options: _Options | None = None) -> None:
        self._stream = stream
        self._keys = keys
        self._window = window
        self._options = options or _Options()

    def trigger(self, trigger: Trigger | Firing, *, purge: bool = False) -> WindowedStream:
        """Say when a window gives results: ``trigger(ls.at_watermark(early=ls.every("10 seconds")))``.

        With ``purge`` the window is emptied whenever it has given one, so that each result is about new records only.
        """
        if self._options.updates or self._options.trigger is not None:
            raise _contradicting(".trigger(...) was called after " + (".updates()" if self._options.updates else "one"))
        return self._with(trigger=checked_trigger(trigger, purge=purge))

    def allowed_lateness(self, lateness: Duration) -> WindowedStream:
        """Keep a window for so long after its end: records that come until then give another, mended result."""
        return self._with(lateness_us=duration_us(lateness))

    def late_to_side(self) -> WindowedStream:
        """Put records that are too late for their windows aside: the result's ``.side("late")`` is a stream of them."""
        return self._with(late_to_side=True)

    def updates(self) -> WindowedStream:
        """Give results as updates: in each epoch one for every window it has changed, with what is known so far."""
        if self._options.trigger is not None:
            raise _contradicting(".updates() was called after .trigger(...)")
        if isinstance(self._window, Count):
            raise PlanError(
                "LS0162",
                ".updates() was called on a count window",
                why="it gives its result when it is full.",
                hint=".window(ls.global_()).updates() gives the newest result over all records of a key.",
            )
        return self._with(updates=True)

    def agg(self, *columns: Expression, name: str | None = None, exact_floats: bool = True, **named: Any) -> Stream:
        """One record for each key and window when the window closes: keys, window_start, window_end, aggregates.

        All aggregates can be used that ``key_by(...).agg`` knows. Those that are about the order of records
        (``F.first``, ``F.max_by``, ...) keep the records of a window until it closes.
        """
        values = self._stream._values("agg", columns, named)
        return self._aggregated(values, name, exact_floats=exact_floats)

    def _aggregated(self, values: Named, name: str | None, *, exact_floats: bool = True) -> Stream:
        if self._is_native(values):
            made = aggregate(
                self._stream,
                name,
                self._keys,
                values,
                window=self._window,
                exact_floats=exact_floats,
                updates=self._options.updates,
            )
            return self._moved(made)
        step_id = self._stream._id("agg", step_name(name, self._stream.columns, "agg"))
        where = f'step "{step_id}"'
        parts = tuple(accumulated(value, column, where) for column, value in values)
        return self._step(step_id, Aggregation(values, parts))

    def count(self, *, as_: str = "count", name: str | None = None) -> Stream:
        """The number of records of each key and window, in a column called count."""
        return self.agg(Alias(Call("count", ("*",)), as_), name=name)

    def sum(self, *columns: Any, name: str | None = None, **named: Any) -> Stream:
        """The sums of columns, under their names: ``sum("ms")``; or of expressions: ``sum(total="price * pieces")``.

        >>> import lockstep as ls
        >>> sold = ls.Job("doc").source("sold", ls.journal("sold", schema="shop string, cents bigint, at timestamp"))
        >>> hours = sold.event_time("at").key_by("shop").window(ls.tumbling("1 hour"))
        >>> hours.sum("cents").columns, hours.max_by("cents").columns
        (('shop', 'window_start', 'window_end', 'cents'), ('shop', 'window_start', 'window_end', 'cents', 'at'))
        """
        return self._of_each("sum", columns, named, name)

    def min(self, *columns: Any, name: str | None = None, **named: Any) -> Stream:
        """The smallest values of columns, under their names: ``min("ms")``. The whole record: ``min_by("ms")``."""
        return self._of_each("min", columns, named, name)

    def max(self, *columns: Any, name: str | None = None, **named: Any) -> Stream:
        """The largest values of columns, under their names: ``max("ms")``. The whole record: ``max_by("ms")``."""
        return self._of_each("max", columns, named, name)

    def _of_each(self, function: str, columns: tuple[Any, ...], named: dict[str, Any], name: str | None) -> Stream:
        return self._aggregated(one_function(function, columns, named, self._stream.columns), name)

    def min_by(self, value: str | Expression, *, name: str | None = None) -> Stream:
        """The whole record with the smallest value of each key and window; among equals the first, as in :meth:`top`.

        A record whose value is null is never the smallest. Runs in Python: ``min("ms")`` is native, and faster.
        """
        return self._extreme("min_by", value, name)

    def max_by(self, value: str | Expression, *, name: str | None = None) -> Stream:
        """The whole record with the largest value of each key and window; among equals the first, as in :meth:`top`."""
        return self._extreme("max_by", value, name)

    def _extreme(self, kind: str, by: str | Expression, name: str | None) -> Stream:
        value = unaliased(value_of(by, self._stream.columns))
        return self._step(self._id(kind, name), Top(1, value, kind == "min_by", None))

    def top(
        self,
        number: int,
        *,
        by: str | Expression,
        ascending: bool = False,
        as_: str = "rank",
        name: str | None = None,
    ) -> Stream:
        """The records with the largest values of each key and window, whole, with their rank: 1 is the largest.

        >>> import lockstep as ls
        >>> schema = "day string, delay int, at timestamp"
        >>> flights = ls.Job("doc").source("flights", ls.journal("flights", schema=schema))
        >>> flights.event_time("at").key_by("day").window(ls.tumbling("1 hour")).top(3, by="delay").columns
        ('day', 'window_start', 'window_end', 'rank', 'delay', 'at')

        With ``ascending`` those with the smallest. Among equal values the record with the earlier event time comes
        first, then the one with the earlier position, so every replica ranks them alike. A record whose value is null
        has no rank. Each key and window keeps ``number`` records (1000 at most). The top of all time, as it changes:
        ``.window(ls.global_()).updates().top(3, by="delay")``, into a sink with ``key=`` the keys and ``rank``.
        """
        value = unaliased(value_of(by, self._stream.columns))
        return self._step(self._id("top", name), Top(number, value, ascending, as_))

    def reduce(self, function: Callable[[Any, Any], Any], *, name: str | None = None) -> Stream:
        """One record for each key and window, put together by a Python function of two records.

        >>> import lockstep as ls
        >>> hits = ls.Job("doc").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
        >>> hits.event_time("at").key_by("page").window(ls.tumbling("1 minute")).reduce(
        ...     lambda a, b: a if a.ms >= b.ms else b
        ... ).columns
        ('page', 'window_start', 'window_end', 'ms', 'at')

        The order of records should not matter to it: what comes in different epochs is put together epoch by epoch.
        """
        return self._step(self._id("reduce", name), Reduction(function))

    def fold(
        self,
        initial: Any,
        function: Callable[[Any, Any], Any],
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
    ) -> Stream:
        """A value for each key and window: ``initial``, changed by a Python function of (value, record).

        >>> import lockstep as ls
        >>> hits = ls.Job("doc").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
        >>> hits.event_time("at").key_by("page").window(ls.tumbling("1 minute")).fold(
        ...     0, lambda total, hit: total + hit.ms, schema="total bigint"
        ... ).columns
        ('page', 'window_start', 'window_end', 'total')

        The value is a dict with the schema's fields, or with one field its value. It is kept between epochs, so it is
        plain data. Records come epoch by epoch, those of an epoch in order of time.
        """
        made = python_schema(schema, "fold")
        return self._step(self._id("fold", name), Folding(initial, function, made))

    def aggregate(
        self, aggregator: WindowAggregator, *, schema: str | Schema | None = None, name: str | None = None
    ) -> Stream:
        """A result for each key and window, by a class of yours: an accumulator that records change, and its end.

        >>> import lockstep as ls
        >>> class Spread(ls.WindowAggregator):
        ...     def create(self):
        ...         return []
        ...     def add(self, accumulator, record):
        ...         values = [*accumulator, record.ms]
        ...         return [min(values), max(values)]
        ...     def finish(self, accumulator):
        ...         return accumulator[1] - accumulator[0]
        >>> hits = ls.Job("doc").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
        >>> hits.event_time("at").key_by("page").window(ls.tumbling("1 minute")).aggregate(
        ...     Spread(), schema="spread bigint"
        ... ).columns
        ('page', 'window_start', 'window_end', 'spread')

        The accumulator has any form, where that of :meth:`fold` is the result itself; and a window keeps nothing else,
        where :meth:`process` has all its records.
        """
        made, checked = python_schema(schema, "aggregate"), _checked_aggregator(aggregator)
        merges = isinstance(self._window, Session) and type(checked).merge is not WindowAggregator.merge
        return self._step(self._id("aggregate", name), Accumulation(checked, made, merges))

    def process(
        self,
        function: Callable[[Any, Any], Any] | WindowFunction,
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
    ) -> Stream:
        """Any number of records for each key and window, by a Python function of (records, window).

        >>> import lockstep as ls
        >>> def spread(records, window):
        ...     times = [record.ms for record in records]
        ...     yield {"spread": max(times) - min(times), "final": window.is_final}
        >>> hits = ls.Job("doc").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
        >>> hits.event_time("at").key_by("page").window(ls.session("5 minutes")).process(
        ...     spread, schema="spread bigint, final boolean"
        ... ).columns
        ('page', 'window_start', 'window_end', 'spread', 'final')

        ``records`` are all records of the window, in order of time. ``window`` has key, start, end, watermark,
        epoch_time, pane (0 for the window's first result), timing ("early", "on_time", "late") and is_final.
        """
        made = python_schema(schema, "process")
        called = function.process if isinstance(function, WindowFunction) else function
        return self._step(self._id("process", name), Processing(called, made))

    def _with(self, **changed: Any) -> WindowedStream:
        return WindowedStream(self._stream, self._keys, self._window, replace(self._options, **changed))

    def _id(self, kind: str, name: str | None) -> str:
        return self._stream._id(kind, name)

    def _is_native(self, values: Named) -> bool:
        """Whether Spark can do it by itself: its windows, its results, its aggregates."""
        if not is_native(self._window) or not self._options.usual:
            return False
        if self._options.updates and isinstance(self._window, Session):
            return False
        return not needs_lockstep(values)

    def _step(self, step_id: str, computation: Computation) -> Stream:
        options = self._options
        trigger = UPDATES if options.updates else options.trigger or AT_WATERMARK
        step = WindowStep(
            step_id,
            (self._stream._step,),
            (self._keys,),
            self._window,
            trigger,
            computation,
            options.lateness_us,
            options.late_to_side,
        )
        if options.distance_us and (options.late_to_side or isinstance(computation, Processing)):
            raise PlanError(
                "LS0162",
                f"{step.where} has over=, with .late_to_side() or .process(...)",
                why="results of windows are never late; and a function would see bounds of event time, not of over=.",
                hint="leave over= out: the windows are then those of the last instants of the windows before.",
            )
        return self._moved(self._stream._then(step))

    def _moved(self, results: Stream) -> Stream:
        """Results with their bounds in the time that put the records into the windows."""
        by_us = self._options.distance_us
        if not by_us:
            return results
        return results.with_columns(*(moved(name, by_us).alias(name) for name in WINDOW_COLUMNS))

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, asked: str) -> NoReturn:
            explain_missing(self, asked, KEYED_SLIPS)


def windowed(stream: Stream, keys: Named, window: Any, over: str | None) -> WindowedStream:
    """The stream by window; ``over`` is the column that puts records into windows, if it is not the event time."""
    checked = checked_window(window)
    if over is None:
        return WindowedStream(stream, keys, checked)
    if over not in stream.columns:
        raise unknown_column(over, stream.columns)
    distance = distance_us(over, stream._step)
    if distance is None:
        raise PlanError(
            "LS0166",
            f'.window(..., over="{over}"): the column does not follow the event time of the stream',
            why="a window closes when event time has passed its end, so its time is the event time, or at a fixed "
            "distance from it: window_end of an earlier window, or window_start if that has a fixed length.",
            hint=f'.event_time("{over}", out_of_order=...) declares another event time for the results of a window.',
        )
    if not distance:
        return WindowedStream(stream, keys, checked)
    if not is_native(checked):
        raise PlanError(
            "LS0162",
            f'{checked} has no time for over="{over}"',
            why="windows of event time do: tumbling, sliding and session windows.",
            hint="leave over= out.",
        )
    return WindowedStream(stream, keys, _in_event_time(checked, distance), _Options(distance_us=distance))


def _in_event_time(window: NativeWindow, by_us: int) -> NativeWindow:
    """The window whose bounds are ``by_us`` earlier: a session has none of its own."""
    if isinstance(window, Session):
        return window
    every_us = window.every_us if isinstance(window, Sliding) else window.size_us
    return replace(window, offset_us=(window.offset_us - by_us) % every_us)


def checked_window(window: Any) -> Window:
    """``window`` if it is one, else what to write (LS0114)."""
    if isinstance(window, (Tumbling, Sliding, Session, GlobalWindow, Count, Custom)):
        return window
    if isinstance(window, WindowAssigner):
        return Custom(window, window_time_of(type(window).time))
    if isinstance(window, type) and issubclass(window, WindowAssigner):
        raise PlanError("LS0165", f"{window.__name__} is a class", hint=f".window({window.__name__}())")
    example = f'"{window}"' if isinstance(window, str) else '"1 minute"'
    raise PlanError(
        "LS0114",
        f".window(...) was given a {type(window).__name__}, not a window",
        hint=f".window(ls.tumbling({example}))",
    )


def aggregate(
    stream: Stream,
    name: str | None,
    keys: Named,
    aggregates: Named,
    *,
    exact_floats: bool,
    window: Window | None = None,
    updates: bool = False,
) -> Stream:
    """The stream of an aggregation by key, by window, or by both, as Spark does it."""
    step_id = stream._id("agg", step_name(name, stream.columns, "agg"))
    return stream._then(Aggregate(step_id, stream._step, keys, window, aggregates, exact_floats, updates))


def _checked_aggregator(aggregator: Any) -> WindowAggregator:
    kind = aggregator if isinstance(aggregator, type) else type(aggregator)
    lacks = [
        name for name in ("create", "add", "finish") if getattr(kind, name, None) is getattr(WindowAggregator, name)
    ]
    if isinstance(aggregator, WindowAggregator) and not lacks:
        return aggregator
    what = f"the class {kind.__name__}" if isinstance(aggregator, type) else f"a {kind.__name__}"
    raise PlanError(
        "LS0163",
        f".aggregate(...) was given {what}" + (f" without {', '.join(lacks)}" if lacks else ""),
        why="it takes an instance of a subclass of ls.WindowAggregator with create, add and finish.",
        hint=f"{kind.__name__}()" if isinstance(aggregator, type) else "class Mean(ls.WindowAggregator): ...",
    )


def _contradicting(fact: str) -> PlanError:
    return PlanError(
        "LS0164",
        fact,
        why="each of them says when the window gives results.",
        hint=".updates() for a result in every epoch that changes the window, .trigger(...) for anything else.",
    )
