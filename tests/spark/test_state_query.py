"""State asked from outside while a job runs, next to what plain Python says at the same epoch."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lockstep as ls
from lockstep import F
from lockstep.connect.put_back import SOURCES, sources_text
from lockstep.control.state import savepoints
from lockstep.control.state.savepoints import Place
from lockstep.control.state.state_query import QueryResult, StateQueries, Wanted
from lockstep.errors import ServiceError
from lockstep.keyed.key_hash import key_hash
from tests.spark.conftest import NewTrial

DAY = datetime(2026, 3, 1, tzinfo=UTC)
Record = dict[str, Any]


class Visits(ls.Process):
    """A value, a list and a map for each key."""

    total = ls.value_state("bigint")
    kinds = ls.list_state("string")
    counts = ls.map_state("string", "bigint")

    def on_record(self, record: Any, ctx: Any) -> None:
        """Keep a bit of everything."""
        self.total.set((self.total.get() or 0) + record.n)
        self.kinds.append(record.kind)
        self.counts[record.kind] = (self.counts.get(record.kind) or 0) + 1
        ctx.emit(user=record.user, total=self.total.get())


def _job() -> ls.Job:
    job = ls.Job("asked")
    schema = "user string, kind string, n bigint, x double, at timestamp"
    events = job.source("events", ls.journal("events", schema=schema)).event_time("at")
    by_user = events.key_by("user")
    by_user.agg(n=F.count("*"), total=F.sum("n"), top=F.max("n"), mean=F.avg("n"), sum_x=F.sum("x")).to(
        ls.files("rolling"), name="rolling_sink"
    )
    windows = events.key_by("user", "kind").window(ls.tumbling("10 seconds"))
    windows.agg(n=F.count("*"), total=F.sum("n"), name="windows").to(ls.files("windows"), name="windows_sink")
    by_user.process(Visits(), schema="user string, total bigint", name="visits").to(
        ls.files("visits"), name="visits_sink"
    )
    by_user.fold(0, lambda total, record: total + record.n, schema="total bigint", name="folded").to(
        ls.files("folded"), name="folded_sink"
    )
    events.key_by("kind").reduce(lambda a, b: b if b.n > a.n else a, name="reduced").to(
        ls.files("reduced"), name="reduced_sink"
    )
    return job


def _records(epoch: int) -> list[Record]:
    at = DAY + timedelta(seconds=epoch * 4)
    return [
        {"user": user, "kind": kind, "n": epoch * 10 + place, "x": place / 8, "at": at}
        for place, (user, kind) in enumerate([("ann", "a"), ("bob", "b"), ("cy", "a"), ("ann", "b"), (None, "c")])
    ]


def _by(records: list[Record], *names: str) -> dict[Any, list[Record]]:
    found: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        found[tuple(record[name] for name in names)].append(record)
    return found


def _expected(records: list[Record]) -> dict[str, list[Record]]:
    """All rows of each step after these records, in the order of keys, nulls first."""
    users = sorted(_by(records, "user").items(), key=lambda one: one[0][0] or "")
    newest = max(record["at"] for record in records[:-5])
    open_windows: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        start = record["at"] - timedelta(seconds=record["at"].second % 10)
        if start + timedelta(seconds=10) > newest:
            open_windows[record["user"] or "", record["kind"], start].append(record)
    return {
        "agg": [
            {
                "user": user,
                "n": len(own),
                "total": sum(one["n"] for one in own),
                "top": max(one["n"] for one in own),
                "mean": sum(one["n"] for one in own) / len(own),
                "sum_x": sum(one["x"] for one in own),
            }
            for (user,), own in users
        ],
        "windows": [
            {
                "user": user or None,
                "kind": kind,
                "window_start": start,
                "window_end": start + timedelta(seconds=10),
                "n": len(own),
                "total": sum(one["n"] for one in own),
            }
            for (user, kind, start), own in sorted(open_windows.items(), key=lambda one: one[0])
        ],
        "visits": [
            {
                "user": user,
                "total": sum(one["n"] for one in own),
                "kinds": [one["kind"] for one in own],
                "counts": Counter(one["kind"] for one in own),
            }
            for (user,), own in users
        ],
        "folded": [{"user": user, "total": sum(one["n"] for one in own)} for (user,), own in users],
        "reduced": [max(own, key=lambda one: one["n"]) for _, own in sorted(_by(records, "kind").items())],
    }


def _rows(found: QueryResult) -> list[Record]:
    return list(found.rows)


def test_the_state_of_each_kind_of_step_is_what_plain_python_says(trial: NewTrial, session: SparkSession) -> None:
    running = trial(_job())
    running.store.set_fact(SOURCES, sources_text((step.id, step.spec) for step in running.graph.sources))
    running.start("r0", partitions=2)
    place = Place.of(running.folder, "asked")
    seen: list[Record] = []
    kept = None
    with StateQueries(place) as queries:
        with pytest.raises(ServiceError, match="LS0734"):
            queries.ask("agg", Wanted())
        for epoch in range(6):
            seen += _records(epoch)
            running.epoch(events=_records(epoch))
            if epoch in (1, 4, 5):
                _check(queries, seen, epoch)
            if epoch == 4:
                kept = savepoints.take(place, "four").savepoint
        assert kept is not None
        old = [record for number in range(5) for record in _records(number)]
        _check(queries, old, 4, savepoint="four")
        assert _rows(queries.ask("visits", Wanted(key=("nobody",)))) == []
        ranged = queries.ask("folded", Wanted(first="b", last="cz", limit=1))
        assert ([row["user"] for row in ranged.rows], ranged.more) == (["bob"], True)
        with pytest.raises(ServiceError, match="agg, windows, visits, folded, reduced"):
            queries.ask("agregate", Wanted())
        with pytest.raises(ServiceError, match="LS0733"):
            queries.ask("windows", Wanted(key=("ann",)))
    assert not list((running.folder / ".lockstep" / "jobs" / "asked" / "query").glob("*.held"))
    _check_hashes(session)


def _check(queries: StateQueries, records: list[Record], epoch: int, savepoint: str | None = None) -> None:
    for step, expected in _expected(records).items():
        found = queries.ask(step, Wanted(), savepoint=savepoint)
        assert (found.epoch, _rows(found)) == (epoch, expected), step
    bob = queries.ask("agg", Wanted(key=("bob",)), savepoint=savepoint)
    assert _rows(bob) == [row for row in _expected(records)["agg"] if row["user"] == "bob"]
    visits = queries.ask("visits", Wanted(key=("ann",)), savepoint=savepoint)
    assert _rows(visits) == [row for row in _expected(records)["visits"] if row["user"] == "ann"]


def _check_hashes(session: SparkSession) -> None:
    """The hash of a key is Spark's own: texts short and long, numbers, times, nulls."""
    values = "'ann', repeat('long enough for lanes ', 5), '', cast(-5 as bigint), 7, true, date'2026-03-01', null"
    (row,) = session.sql(f"select xxhash64(0, {values}) as h, timestamp'2026-03-01 12:00:00' as at, {values}").collect()
    types = ["string", "string", "string", "bigint", "int", "boolean", "date", "string"]
    assert key_hash(list(row[2:]), types) == row["h"]
