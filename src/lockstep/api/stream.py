"""Streams as a user sees them: thin handles that turn arguments into steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import (
    explain_missing,
    listed_values,
    name_is_the_step,
    named_values,
    python_schema,
    sink_spec,
    step_name,
)
from lockstep.api.connected import BroadcastStream, ConnectedStream, connect, side
from lockstep.api.joins import Between, On, join
from lockstep.api.keyed import KEYED_SLIPS, KeyedStream
from lockstep.api.registry import Registry
from lockstep.api.rolling import as_events, distinct, latest
from lockstep.api.splitting import Branches, explode, split
from lockstep.api.windowed import WindowedStream, windowed
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.keyed.windows.custom import WindowAssigner
from lockstep.plan.columns import Condition, value_of
from lockstep.plan.columns import condition as as_condition
from lockstep.plan.distinct import Keep
from lockstep.plan.expression import Expression, unaliased
from lockstep.plan.joins import JoinKind, JoinWindow
from lockstep.plan.loops import LoopHead, loop_end
from lockstep.plan.schema import Schema
from lockstep.plan.specs import Guarantee, SinkSpec, TableSpec
from lockstep.plan.steps import (
    Drop,
    EventTime,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Named,
    OnError,
    Rename,
    Select,
    Sink,
    Step,
    Union,
    WithColumns,
)
from lockstep.plan.windows import Window

_STREAM_SLIPS = {
    "where": "it is called .filter(...) here.",
    "withColumn": ".with_columns(name=expression)",
    "withColumns": ".with_columns(name=expression)",
    "withColumnRenamed": ".rename(old='new')",
    "withWatermark": '.event_time("at", out_of_order="5 seconds")',
    "groupBy": ".key_by(...)",
    "group_by": ".key_by(...)",
    "groupby": ".key_by(...)",
    "agg": '.key_by("user").agg(n=F.count("*")), or .window(ls.tumbling("1 minute")).agg(...) over all records.',
    "unionByName": ".union(other)",
    "writeStream": '.to(ls.files("out/result"))',
    "write": '.to(ls.files("out/result"))',
    "flatMap": ".flat_map(function, schema=...)",
    "dropDuplicates": '.distinct("id", within="10 minutes")',
    "drop_duplicates": '.distinct("id", within="10 minutes")',
    "dropDuplicatesWithinWatermark": '.distinct("id", within="10 minutes")',
    "limit": "a stream has no end: which records were the first depends on timing.",
    "sort": "a stream has no end, so it cannot be sorted: sort what you read from the sink.",
    "orderBy": "a stream has no end, so it cannot be sorted: sort what you read from the sink.",
}


class Stream:
    """A stream of records. Every method returns a new handle and leaves this one as it is.

    >>> from lockstep.api.job import Job
    >>> import lockstep as ls
    >>> logins = Job("doc").source("logins", ls.journal("logins", schema="user string, ok boolean, at timestamp"))
    >>> logins.filter("NOT ok").select("user").columns
    ('user',)
    """

    def __init__(self, registry: Registry, step: Step) -> None:
        self._registry = registry
        self._step = step

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the records' columns."""
        return self._step.columns

    def filter(self, condition: Condition, *, name: str | None = None) -> Stream:
        """Keep the records for which the condition holds: an expression, a text in SQL, or a lambda over columns."""
        expression = as_condition(condition, self.columns)
        return self._then(Filter(self._id("filter", name), self._step, expression))

    def select(self, *columns: str | Expression, name: str | None = None, **named: Any) -> Stream:
        """Records of these columns only, ``"*"`` for all there are: ``select("user", day="date(at)")``."""
        step_id = self._id("select", step_name(name, self.columns, "select"))
        return self._then(Select(step_id, self._step, self._values("select", columns, named)))

    def with_columns(self, *columns: Expression, name: str | None = None, **named: Any) -> Stream:
        """Records with columns added or replaced: ``with_columns(total="price * pieces")``. All see the old record."""
        step_id = self._id("with_columns", step_name(name, self.columns, "with_columns"))
        return self._then(WithColumns(step_id, self._step, self._values("with_columns", columns, named)))

    def drop(self, *names: str, name: str | None = None) -> Stream:
        """Records without these columns."""
        return self._then(Drop(self._id("drop", name), self._step, names))

    def rename(self, mapping: Mapping[str, str] | None = None, /, *, name: str | None = None, **renames: str) -> Stream:
        """Records with columns under other names: ``rename(usr="user")`` or ``rename({"usr": "user"})``."""
        if mapping is None and name is not None and "name" in self.columns:
            raise name_is_the_step(name, "rename")
        pairs = tuple({**(mapping or {}), **renames}.items())
        return self._then(Rename(self._id("rename", name), self._step, pairs))

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """The records of this stream and the others in one; columns are matched by name."""
        for other in others:
            self._check_united(other)
        steps = (self._step, *(other._step for other in others))
        return self._then(Union(self._id("union", name), steps))

    def join(
        self,
        other: Stream | TableSpec,
        *,
        on: On | None = None,
        between: Between | None = None,
        window: JoinWindow | None = None,
        how: JoinKind = "inner",
        suffixes: tuple[str, str] | None = None,
        name: str | None = None,
    ) -> Stream:
        """Pairs of records with equal keys: of two streams within a time bound, or of this stream and a table.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> job = Job("doc")
        >>> orders = job.source("orders", ls.journal("orders", schema="order_id bigint, item string, at timestamp"))
        >>> paid = job.source("paid", ls.journal("paid", schema="order_id bigint, cents bigint, paid_at timestamp"))
        >>> orders.event_time("at").join(
        ...     paid.event_time("paid_at"), on="order_id", between=("0 seconds", "10 minutes")
        ... ).columns
        ('order_id', 'item', 'at', 'cents', 'paid_at')

        ``on`` is a column, several, or a dict from left to right names. With ``between=(lower, upper)`` the right
        record happened between ``lower`` and ``upper`` after the left one, both included; with ``window=`` both are in
        the same window. ``how`` is "inner", "left", "right" or "full": outer joins also give the records that found no
        partner, once none can come any more. A null key has no partner. Columns: the keys once, window_start and
        window_end with ``window=``, the left one's, the right one's; ``suffixes=("_left", "_right")`` is for names that
        both have. With ``ls.table(...)`` instead of a stream there is no time bound, and ``how`` is "inner" or "left".
        """
        return join(self, other, on, how, between, window, suffixes, name)

    def iterate(
        self, body: Callable[[Stream], tuple[Stream, Stream]], *, rounds: int = 100, name: str | None = None
    ) -> Stream:
        """A feedback loop: ``body`` gets the stream and returns what goes round again, and what leaves.

        What goes round comes in again in the next epoch, through a journal: it is part of every snapshot and survives
        any crash. The column ``round`` counts how often. A record that is still going after ``rounds`` rounds is set
        aside, and an event says so.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> def halve(numbers):
        ...     halved = numbers.with_columns(n="n div 2")
        ...     return halved.filter("n > 1"), halved.filter("n <= 1")
        >>> numbers = Job("doc").source("numbers", ls.journal("numbers", schema="n bigint"))
        >>> numbers.iterate(halve, rounds=64).columns
        ('n', 'round')
        """
        head = LoopHead(self._id("iterate", name), self._step, rounds)
        made = body(self._then(head))
        if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(one, Stream) for one in made)):
            raise PlanError(
                "LS0143",
                f'the body of the loop "{head.id}" returned {made!r}',
                hint="return two streams: what goes round again, and what leaves.",
            )
        back, leaves = made
        self._registry.add(loop_end(head, back._step))
        return leaves

    def split(
        self, conditions: Mapping[str, Condition] | None = None, /, *, name: str | None = None, **named: Condition
    ) -> Branches:
        """Named branches: each record goes to the first one whose condition holds, else to ``rest``.

        ``calls.split(fast="ms < 100", slow="ms < 1000")`` has the streams ``.fast``, ``.slow`` and ``.rest``, also as
        items (``["fast"]``). A condition that is null does not hold. Branches are native filters.
        """
        return split(self, {**(conditions or {}), **named}, name)

    def explode(
        self,
        value: str | Expression | None = None,
        *,
        as_: str | tuple[str, str] | None = None,
        outer: bool = False,
        name: str | None = None,
        **named: Any,
    ) -> Stream:
        """A record for each element of an array: ``explode("items", as_="item")`` or ``explode(item="items")``.

        Elements take the place of a column, or follow the columns if the array is computed:
        ``explode(word="split(text, ' ')")``. For a map give two names: ``explode("tags", as_=("tag", "value"))``. A
        record without elements is left out; ``outer=True`` keeps it, with null.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> orders = Job("doc").source("orders", ls.journal("orders", schema="id bigint, items array<string>"))
        >>> orders.explode("items", as_="item").columns
        ('id', 'item')
        """
        return explode(self, value, as_, named, name, outer=outer)

    def distinct(self, *columns: str | Expression, within: Duration | None = None, name: str | None = None) -> Stream:
        """The first of several records with equal ``columns`` (or with everything equal, if none are given).

        A record is dropped if one with the same key was let through whose time is less than ``within`` away, earlier
        or later. Time is event time, and records come in its order within an epoch; a record further than ``within``
        behind the watermark is dropped too, since nobody remembers what was before. In a stream without event time it
        is the time of the record's epoch. A key is forgotten when no record can come near it any more.

        Spark's ``dropDuplicates`` keeps whichever record its shuffle brings first, so replicas would disagree.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> paid = Job("doc").source("paid", ls.journal("paid", schema="id string, cents bigint, at timestamp"))
        >>> paid.event_time("at").distinct("id", within="10 minutes").columns
        ('id', 'cents', 'at')
        """
        return distinct(self, "distinct", columns, within, name, "first")

    def dedup(
        self,
        *columns: str | Expression,
        keep: Keep = "first",
        within: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """One of several records with equal ``columns``: the first, as :meth:`distinct` gives it, or the last.

        With ``keep="last"`` a record is held back until none with the same key can come any more that is less than
        ``within`` later, by event time and, of one time, by position. If records follow each other without such a
        pause, only the last of all comes out. It comes at ``within`` after its time, and that is its event time then;
        ``.window(..., over="at")`` after it goes by the column.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> saved = Job("doc").source("saved", ls.journal("saved", schema="page string, text string, at timestamp"))
        >>> saved.event_time("at").dedup("page", keep="last", within="1 minute").columns
        ('page', 'text', 'at')
        """
        return distinct(self, "dedup", columns, within, name, keep)

    def latest(self, *, name: str | None = None) -> Stream:
        """The row that each key has now, where results replace each other: of rolling results, or updated windows.

        A new row takes back the one that it replaces. So a condition that a row no longer meets has a sink with a key
        delete it, and an aggregation after it counts each key once, with the row it has now.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, host string, ms bigint"))
        >>> by_path = calls.key_by("path", "host").agg(mean=ls.F.avg("ms"))
        >>> by_path.latest().filter("mean > 100").key_by("host").agg(slow_paths=ls.F.count("*")).columns
        ('host', 'slow_paths')

        .filter, .select, .with_columns, .drop, .rename, .union, .explode, joins with a table, .key_by(...).agg(...) and
        sinks may follow. Without a key a sink takes every row that begins to hold, and does not see any taken back.
        """
        return latest(self, name)

    def as_events(self, *, name: str | None = None) -> Stream:
        """Every result as a record of its own, whether or not another one replaces it later.

        >>> from lockstep.api.job import Job
        >>> import lockstep as ls
        >>> calls = Job("doc").source("calls", ls.journal("calls", schema="path string, ms bigint"))
        >>> changed = calls.key_by("path").count().as_events()
        >>> changed.key_by("path").agg(changes=ls.F.count("*")).columns
        ('path', 'changes')
        """
        return as_events(self, name)

    def event_time(
        self,
        time: str | Expression,
        *,
        out_of_order: Duration = "0 seconds",
        idle_after: Duration | None = "30 seconds",
        name: str | None = None,
    ) -> Stream:
        """Say when a record happened, and by how much records may be out of order: windows need to know.

        A record later than ``out_of_order`` may find its window closed. A source that is quiet for ``idle_after`` stops
        holding time back; None means that windows wait for it for ever. For a Kafka topic the same holds for each of
        its partitions, and the slowest counts.
        """
        expression = value_of(time, self.columns)
        idle_us = None if idle_after is None else duration_us(idle_after)
        step_id = self._id("event_time", name)
        return self._then(EventTime(step_id, self._step, unaliased(expression), duration_us(out_of_order), idle_us))

    def broadcast(self) -> BroadcastStream:
        """This stream for all keys of another: ``events.key_by("user").connect(rules.broadcast()).process(...)``."""
        return BroadcastStream(self)

    def connect(self, other: BroadcastStream) -> ConnectedStream:
        """This stream, without a key, and a broadcast that all its records see: ``connect(rules.broadcast())``."""
        return connect(self, None, other)

    def side(self, output: str) -> Stream:
        """A side output of the process function or window that made this stream: ``results.side("late")``."""
        return side(self, output)

    def key_by(self, *columns: str | Expression, **named: Any) -> KeyedStream:
        """The stream by key: ``key_by("user")``, ``key_by(day="date(at)")``. Continue with .agg or .window."""
        if not columns and not named:
            raise PlanError("LS0132", ".key_by() was given nothing", hint='.key_by("user")')
        return KeyedStream(self, self._values("key_by", columns, named))

    def window(self, window: Window | WindowAssigner, *, over: str | None = None) -> WindowedStream:
        """Windows over all records: ``window(ls.tumbling("1 minute")).agg(...)``; ``over`` as in ``key_by``'s.

        >>> import lockstep as ls
        >>> hits = ls.Job("doc").source("hits", ls.journal("hits", schema="ms bigint, at timestamp"))
        >>> minutes = hits.event_time("at").window(ls.tumbling("1 minute")).agg(hits=ls.F.count("*"))
        >>> minutes.window(ls.tumbling("1 hour"), over="window_end").agg(busiest=ls.F.max("hits")).columns
        ('window_start', 'window_end', 'busiest')
        """
        return windowed(self, (), window, over)

    def map(
        self,
        function: Callable[[dict[str, Any]], Mapping[str, Any]],
        *,
        schema: str | Schema | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream:
        """One record for each, made by a Python function from a dict to a dict.

        ``on_error="skip"`` puts a record for which the function raises into the dead-letter journal and goes on.
        """
        made = python_schema(schema, "map")
        return self._then(Map(self._id("map", name), self._step, function, made, on_error))

    def flat_map(
        self,
        function: Callable[[dict[str, Any]], Any],
        *,
        schema: str | Schema | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream:
        """Any number of records for each, from a Python function that returns or yields dicts."""
        made = python_schema(schema, "flat_map")
        return self._then(FlatMap(self._id("flat_map", name), self._step, function, made, on_error))

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        schema: str | Schema | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream:
        """A table for each table of records, as Arrow: the fast way to use Python. Batches differ between replicas.

        So each row has to depend on its own record only. More or fewer rows may come out than went in, unless a later
        step needs the order of records (LS0305): ``flat_map`` keeps it.
        """
        made = python_schema(schema, "map_batches")
        return self._then(MapBatches(self._id("map_batches", name), self._step, function, made, on_error))

    def to(self, spec: SinkSpec, *, name: str | None = None, guarantee: Guarantee | None = None) -> Stream:
        """Publish the records in a sink. Returns this stream, so that it can go to another sink too.

        ``guarantee`` is "exactly-once", "at-least-once" (an epoch may come again after a crash) or "at-most-once" (one
        may be missing); without it, the best that the sink can do. What a sink cannot do is refused, and one that can
        do more does more; `lockstep check` shows it.
        """
        checked = sink_spec(spec)
        step_id = self._id(checked.kind, name)
        self._registry.add(Sink(step_id, self._step, checked, guarantee or checked.guarantee))
        return self

    def _then(self, step: Step) -> Stream:
        self._registry.add(step)
        return Stream(self._registry, step)

    def _id(self, kind: str, name: str | None) -> str:
        return self._registry.new_id(kind, name)

    def _values(self, method: str, listed: tuple[Any, ...], named: Mapping[str, Any]) -> Named:
        return (*listed_values(listed, self.columns, method), *named_values(named, self.columns))

    def _check_united(self, other: Any) -> None:
        if not isinstance(other, Stream):
            hint = KEYED_SLIPS[""] if isinstance(other, (KeyedStream, WindowedStream)) else "a.union(b)"
            raise PlanError("LS0108", f".union(...) was given a {type(other).__name__}, not a stream", hint=hint)
        if other._registry is not self._registry:
            raise PlanError(
                "LS0136",
                f'the streams belong to different jobs: "{self._registry.job}" and "{other._registry.job}"',
                hint="make both from the same Job.",
            )

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, asked: str) -> NoReturn:
            explain_missing(self, asked, _STREAM_SLIPS)

    def __repr__(self) -> str:
        return f"<stream {self._step.id}: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """The steps that lead to this stream, for notebooks."""
        from lockstep.plan.html import stream_html

        return stream_html(self._step, f"stream {self._step.id}: {', '.join(self.columns)}")
