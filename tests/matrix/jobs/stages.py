"""Jobs of several queries: results of results, loops; topologies; SQL."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

import lockstep as ls
from lockstep import F
from tests.matrix.case import Case, Expected, Given, Rows
from tests.matrix.clock import epoch_time_us
from tests.matrix.inputs import SCHEMA, events
from tests.matrix.jobs.processes import ENDING
from tests.matrix.jobs.windows import native_expected as windows_expected
from tests.matrix.jobs.windows import timed

ROUNDS = 8
TICK_S = 2
WINDOW = timedelta(seconds=3)
REPLAYS = 2


FIRST = """
    SELECT place, k, window_start, n, total
    FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end
                                       ORDER BY total DESC, n DESC, k DESC) AS place FROM windows)
    WHERE place <= 2
"""


def of_windows(_: Given) -> ls.Job:
    """Totals of windows, rolling and by larger windows: Spark refuses both in one query."""
    job = ls.Job("of-windows")
    small = timed(job).key_by("k").window(ls.tumbling("10 seconds", offset="3 seconds"))
    windows = small.agg(n=F.count("*"), total=F.sum("n"))
    windows.to(ls.files("out/windows"), name="windows")
    windows.key_by("k").agg(windows=F.count("*"), most=F.max("n")).to(
        ls.sqlite("out/rolling.db", table="rolling", key="k"), name="rolling"
    )
    windows.window(ls.tumbling("1 hour")).agg(total=F.sum("total"), n=F.sum("n")).to(
        ls.files("out/hours"), name="hours"
    )
    job.sql(FIRST, windows=windows).to(ls.files("out/first"), name="first")
    return job


def of_windows_expected(given: Given) -> Expected:
    """The same over what the small windows have to be: each of them happens at its last instant."""
    small = [(key, start, end, n, total) for _, key, start, end, n, total, *_ in windows_expected(given)["tumbled"]]
    by_key: dict[Any, list[int]] = defaultdict(list)
    hours: dict[Any, list[tuple[int, int | None]]] = defaultdict(list)
    for key, _, end, n, total in small:
        by_key[key].append(n)
        hours[(end - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)].append((n, total))
    return {
        "windows": [(0, *row) for row in small],
        "rolling": [(0, key, len(counts), max(counts)) for key, counts in by_key.items()],
        "hours": [(0, hour, hour.replace(hour=hour.hour + 1), _sum([t for _, t in rows]), sum(n for n, _ in rows))
                  for hour, rows in hours.items()],
        "first": _first(small),
    }  # fmt: skip


def _first(small: list[tuple[Any, ...]]) -> Rows:
    """DuckDB answers the same query over what the small windows have to be."""
    columns = dict(zip(("k", "window_start", "window_end", "n", "total"), zip(*small, strict=True), strict=False))
    table = pa.table({name: pa.array(values, WINDOWS.field(name).type) for name, values in columns.items()})
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("windows", table if columns else WINDOWS.empty_table())
        return [(0, *row) for row in database.execute(FIRST).fetchall()]


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def arrivals(_: Given) -> ls.Job:
    """Windows by when records came in, and what a later stage knows of that."""
    job = ls.Job("arrivals")
    source = job.source("events", ls.journal("events", schema=SCHEMA, partitions=2, timestamp_column="arrived"))
    source.select("k", "n", "arrived").to(ls.files("out/all"), name="all")
    small = source.event_time("arrived", idle_after=None).key_by("k").window(ls.tumbling("3 seconds"))
    windows = small.agg(n=F.count("*"), newest=F.max("arrived"))
    windows.to(ls.files("out/windows"), name="windows")
    windows.key_by("k").agg(n=F.sum("n"), newest=F.max("newest")).to(
        ls.sqlite("out/rolling.db", table="rolling", key="k"), name="rolling"
    )
    return job


def arrivals_expected(given: Given) -> Expected:
    """The records of an epoch came in when the one before it was sealed."""
    windows: dict[Any, list[datetime]] = defaultdict(list)
    by_key: dict[Any, list[datetime]] = defaultdict(list)
    for epoch, row in given.records():
        came = _time(epoch_time_us(epoch - 1))
        windows[row["k"], came - (came - _time(0)) % WINDOW].append(came)
        by_key[row["k"]].append(came)
    return {
        "all": [(0, row["k"], row["n"], _time(epoch_time_us(epoch - 1))) for epoch, row in given.records()],
        "windows": [(0, key, begin, begin + WINDOW, len(came), max(came)) for (key, begin), came in windows.items()],
        "rolling": [(0, key, len(came), max(came)) for key, came in by_key.items()],
    }


def _time(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def loop(_: Given) -> ls.Job:
    """Numbers are halved until nothing is left; each round is an epoch."""
    job = ls.Job("loop")
    source = (
        job.source("events", ls.journal("events", schema=SCHEMA)).filter("n IS NOT NULL").select("k", "n", begin="n")
    )

    def halve(numbers: ls.Stream) -> tuple[ls.Stream, ls.Stream]:
        halved = numbers.with_columns(n="n div 2")
        return halved.filter("n <> 0"), halved.filter("n = 0")

    source.iterate(halve, rounds=ROUNDS).to(ls.files("out/halved"), name="halved")
    return job


def loop_expected(given: Given) -> Expected:
    """How often each can be halved."""
    rows: Rows = []
    for _, row in given.records():
        if row["n"] is not None:
            rounds, left = 0, abs(row["n"]) // 2
            while left:
                rounds, left = rounds + 1, left // 2
            rows.append((0, row["k"], 0, row["n"], rounds))
    return {"halved": rows}


class Split(ls.Bolt):
    """The letters of a key, and its number to the side."""

    def execute(self, tuple: Any, collector: Any) -> None:
        for letter in tuple.k or "":
            collector.emit([letter, tuple.n])
        collector.emit([tuple.n], stream="numbers")


class Ticking(ls.Bolt):
    """How many tuples there were, told at ticks; it does not take a nine."""

    def execute(self, tuple: Any, collector: Any) -> None:
        if tuple.n == 9:
            raise ValueError("nine")
        self.state["count"] = self.state.get("count", 0) + 1
        self.state["new"] = 1

    def tick(self, collector: Any) -> None:
        if self.state.get("new", 0):
            self.state["new"] = 0
            collector.emit([self.state["count"]])


class Tickets(ls.Bolt):
    """A nine brings two tickets, a one takes a ticket or waits for it; a twelve is never taken."""

    def execute(self, tuple: Any, collector: Any) -> None:
        left = self.state.get("left", 0)
        if tuple.n == 12 or (tuple.n == 1 and not left):
            collector.fail(tuple, "no ticket")
            return
        left = self.state["left"] = left + {9: 2, 1: -1}.get(tuple.n, 0)
        collector.emit([tuple.n, left])


class Count(ls.Bolt):
    """How often each letter came so far."""

    def execute(self, tuple: Any, collector: Any) -> None:
        n = self.state[tuple.letter] = self.state.get(tuple.letter, 0) + 1
        collector.emit({"letter": tuple.letter, "n": n})


class Sum(ls.Bolt):
    """The sum of all numbers so far, in one place: the order of tuples from several tasks is not promised."""

    def execute(self, tuple: Any, collector: Any) -> None:
        self.state["sum"] = self.state.get("sum", 0) + (tuple.n or 0)
        collector.emit(["all", self.state["sum"]])


def topology(_: Given) -> ls.Job:
    """Bolts that split, count and sum."""
    t = ls.Topology("letters")
    t.spout("events", ls.journal("events", schema=SCHEMA))
    t.bolt("split", Split(), fields="letter string, n bigint", streams={"numbers": "n bigint"}).shuffle("events")
    t.bolt("count", Count(), fields="letter string, n bigint", tasks=3).fields("split", "letter")
    t.bolt("sum", Sum(), fields="what string, total bigint").global_("split", stream="numbers")
    t.sink("count", ls.files("out/counted"), name="counted")
    t.sink("count", ls.sqlite("out/counted.db", table="counted", key="letter"), name="newest")
    ticking = t.bolt("ticking", Ticking(), fields="n bigint", tick_every=f"{TICK_S} seconds", on_error="skip")
    ticking.global_("events")
    t.sink("ticking", ls.files("out/ticked"), name="ticked")
    t.bolt("tickets", Tickets(), fields="n bigint, left bigint", retries=REPLAYS).global_("events")
    t.sink("tickets", ls.files("out/tickets"), name="taken")
    t.sink("sum", ls.sqlite("out/counted.db", table="summed", key="what"), name="summed")
    return t.job()


def topology_expected(given: Given) -> Expected:
    """One tuple after the other."""
    counts: dict[str, int] = defaultdict(int)
    counted: Rows = []
    total = 0
    for epoch, row in given.records():
        for letter in row["k"] or "":
            counts[letter] += 1
            counted.append((epoch, letter, counts[letter]))
        total += row["n"] or 0
    return {
        "counted": counted,
        "newest": [(given.end, letter, n) for letter, n in counts.items()],
        "summed": [(given.end, "all", total)],
        "ticked": _ticked(given),
        "taken": _taken(given),
    }


def _taken(given: Given) -> Rows:
    """Round by round: who was not taken comes again after the others of the epoch, and in the end not at all."""
    left, found = 0, []
    for epoch, records in enumerate(given.inputs["events"]):
        numbers = [row["n"] for row in records]
        for _ in range(1 + REPLAYS):
            again = []
            for n in numbers:
                if n == 12 or (n == 1 and left == 0):
                    again.append(n)
                    continue
                left += 2 if n == 9 else -1 if n == 1 else 0
                found.append((epoch, n, left))
            numbers = again
    return found


def _ticked(given: Given) -> Rows:
    """A tick comes at every second full second after a tuple; it has nothing to tell if nothing is new."""
    due_us, count, told = None, 0, 0
    found: Rows = []
    for epoch in range(given.end + ENDING):
        now_us = epoch_time_us(epoch)
        if due_us is not None and due_us <= now_us:
            found += [(epoch, count)] if count > told else []
            told, due_us = count, _next_tick(now_us)
        records = given.inputs["events"][epoch] if epoch < given.end else []
        if records:
            count += sum(row["n"] != 9 for row in records)
            due_us = _next_tick(now_us)
    return found


def _next_tick(now_us: int) -> int:
    return (now_us // (TICK_S * 1_000_000) + 1) * TICK_S * 1_000_000


WINDOWS = pa.schema(
    [
        ("k", pa.string()),
        *((name, pa.timestamp("us", "UTC")) for name in ("window_start", "window_end")),
        *((name, pa.int64()) for name in ("n", "total")),
    ]
)
ARROW = pa.schema(
    [("k", pa.string()), ("n", pa.int64()), ("big", pa.int64()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
)
PLAIN = """
    SELECT upper(k) AS who, coalesce(n, 0) % 7 AS rest, CASE WHEN n > 9 THEN 'many' END AS word
    FROM events WHERE big > 0
"""
ROLLING = "SELECT k, count(*) AS n, sum(n) AS total, max(big) AS most FROM events WHERE k IS NOT NULL GROUP BY k"


def sql(_: Given) -> ls.Job:
    """Queries instead of calls."""
    job = ls.Job("sql")
    job.source("events", ls.journal("events", schema=SCHEMA))
    job.sql(PLAIN).to(ls.files("out/plain"), name="plain")
    job.sql(ROLLING).to(ls.sqlite("out/rolling.db", table="rolling", key="k"), name="rolling")
    return job


def sql_expected(given: Given) -> Expected:
    """DuckDB answers the same queries."""
    with duckdb.connect() as database:
        database.register("events", pa.Table.from_pylist([row for _, row in given.records()], ARROW))
        plain, rolling = (database.execute(query).fetchall() for query in (PLAIN, ROLLING))
    return {"plain": [(0, *row) for row in plain], "rolling": [(0, *row) for row in rolling]}


CASES = [
    Case("results of windows", "stages", of_windows, events, of_windows_expected, by_epoch=False),
    Case("arrival times", "stages", arrivals, events, arrivals_expected, by_epoch=False),
    Case("loop", "stages", loop, events, loop_expected, by_epoch=False),
    Case("topology", "stages", topology, events, topology_expected, by_epoch=False),
    Case("SQL", "stages", sql, events, sql_expected, by_epoch=False),
]
