"""A stream by window, as a user sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import explain_missing, python_schema, step_name
from lockstep.api.triggers import checked_trigger
from lockstep.api.windows import window_time_of
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.keyed.windows.custom import WindowAssigner, WindowFunction
from lockstep.plan.accumulated import accumulated
from lockstep.plan.determinism import refuse
from lockstep.plan.expression import Alias, Call, Expression
from lockstep.plan.schema import Schema
from lockstep.plan.steps import Aggregate, Named
from lockstep.plan.triggers import AT_WATERMARK, UPDATES, Firing, Trigger
from lockstep.plan.windowed import Aggregation, Computation, Folding, Processing, Reduction, WindowStep
from lockstep.plan.windows import Count, Custom, GlobalWindow, Session, Sliding, Tumbling, Window, is_native

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
        """One record for each key and window when the window closes: keys, window_start, window_end, aggregates."""
        values = self._stream._values("agg", columns, named)
        if self._is_native(values):
            return aggregate(
                self._stream,
                name,
                self._keys,
                values,
                window=self._window,
                exact_floats=exact_floats,
                updates=self._options.updates,
            )
        step_id = self._stream._id("agg", step_name(name, self._stream.columns, "agg"))
        where = f'step "{step_id}"'
        parts = tuple(accumulated(value, column, where) for column, value in values)
        return self._step(step_id, Aggregation(values, parts))

    def count(self, *, as_: str = "count", name: str | None = None) -> Stream:
        """The number of records of each key and window, in a column called count."""
        return self.agg(Alias(Call("count", ("*",)), as_), name=name)

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
        return spark_aggregates(values)

    def _step(self, step_id: str, computation: Computation) -> Stream:
        options = self._options
        trigger = UPDATES if options.updates else options.trigger or AT_WATERMARK
        return self._stream._then(
            WindowStep(
                step_id,
                (self._stream._step,),
                (self._keys,),
                self._window,
                trigger,
                computation,
                options.lateness_us,
                options.late_to_side,
            )
        )

    def __getattr__(self, asked: str) -> NoReturn:
        explain_missing(self, asked, KEYED_SLIPS)


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


def spark_aggregates(values: Named) -> bool:
    """Whether Spark is asked for the aggregates, which is faster: unless one of them minds the order of records (or
    Spark has none for streams) and all can be added up record by record, in order.
    """
    try:
        parts = [accumulated(value, name, "") for name, value in values]
    except PlanError:
        return True
    return all(refuse(part.function) is None for part in parts)


def _contradicting(fact: str) -> PlanError:
    return PlanError(
        "LS0164",
        fact,
        why="each of them says when the window gives results.",
        hint=".updates() for a result in every epoch that changes the window, .trigger(...) for anything else.",
    )
