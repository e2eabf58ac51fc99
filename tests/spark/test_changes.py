"""Rolling results used further: after each epoch a keyed sink holds what a database says of all records so far."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lockstep as ls
from lockstep import F
from lockstep.plan.graph import Graph
from tests.spark.conftest import NewTrial
from tests.spark.nested_queries import EVENTS, Query, nested_query

Record = dict[str, Any]
Rows = list[tuple[Any, ...]]
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64())])
EPOCHS = 4
QUERIES = 3


def _epochs(chance: Random) -> list[list[Record]]:
    def record() -> Record:
        return {
            "a": chance.choice(["x", "y", "z", None]),
            "b": chance.choice("pq"),
            "n": chance.choice([None, *range(-3, 4)]),
        }

    return [[record() for _ in range(chance.choice([1, 3, 9]))] for _ in range(EPOCHS)]


def _answer(text: str, records: Sequence[Record]) -> Rows:
    with duckdb.connect() as database:
        database.register("events", pa.Table.from_pylist(list(records), SCHEMA))
        return _plain(database.execute(text).fetchall())


def _plain(rows: Sequence[tuple[Any, ...]]) -> Rows:
    """Averages of averages are exact here and rounded on the way there."""
    rounded = [tuple(round(one, 9) if isinstance(one, float) else one for one in row) for row in rows]
    return sorted(rounded, key=repr)


def _level(graph: Graph, sink: str) -> int:
    """How many epochs later a sink has what an epoch brought: one for each journal on the way."""
    return next(stage.level for stage in graph.stages for one in stage.sinks if one.id == sink)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_random_queries_of_queries_hold_what_duckdb_says_after_every_epoch(trial: NewTrial, seed: int) -> None:
    chance = Random(seed)
    queries: dict[str, Query] = {f"q{number}": nested_query(chance) for number in range(QUERIES)}
    job = ls.Job("nested")
    job.source("events", ls.journal("events", schema=EVENTS))
    for name, query in queries.items():
        job.sql(query.text).to(ls.sqlite("out.db", table=name, key=query.key), name=name)
    ran = trial(job)
    ran.start(partitions=2)
    epochs = [*_epochs(chance), *([[]] * (len(ran.graph.stages) - 1))]
    for number, records in enumerate(epochs):
        ran.epoch(events=records) if records else ran.run(1)
        for name, query in queries.items():
            arrived = max(0, number + 1 - _level(ran.graph, name))
            seen = [one for epoch in epochs[:arrived] for one in epoch]
            found = [tuple(row.values()) for row in ran.rows("out.db", table=name)]
            assert _plain(found) == _answer(query.text, seen), f"epoch {number}: {query.text}"


def _methods() -> ls.Job:
    """The same said with methods, and what the other way of saying it gives."""
    job = ls.Job("methods")
    events = job.source("events", ls.journal("events", schema=EVENTS, partitions=2))
    totals = events.key_by("a", "b").agg(n=F.count("*"), total=F.sum("n"))
    totals.as_events().key_by("b").agg(told=F.count("*")).to(_keyed("told", "b"), name="told")
    latest = totals.latest()
    latest.filter("total > 0").to(_keyed("positive", "a", "b"), name="positive")
    sizes = latest.key_by("n").agg(groups=F.count("*"), least=F.min("total"), mean=F.avg("total"))
    sizes.to(_keyed("sizes", "n"), name="sizes")
    sizes.select("n", "groups").to(ls.files("out"), name="every_size")
    return job


def _keyed(table: str, *key: str) -> Any:
    return ls.sqlite("out.db", table=table, key=key)


def test_rows_are_taken_back_in_every_shape_of_a_replica(trial: NewTrial) -> None:
    epochs = _epochs(Random(3))
    records = [one for epoch in epochs for one in epoch]
    totals = "(SELECT a, b, count(*) AS n, sum(n) AS total FROM events GROUP BY a, b)"
    found = []
    # Through the driver and alone; staged by executors, in three partitions.
    for partitions, tasks, settings in ((1, 1, {}), (3, 4, {"rows_through_driver_max": 0})):
        ran = trial(_methods(), f"project-{partitions}", **settings)
        ran.start(partitions=partitions, tasks=tasks)
        for epoch in epochs:
            ran.epoch(events=epoch)
        ran.run(len(ran.graph.stages) - 1)
        tables = {name: _plain([tuple(row.values()) for row in ran.rows("out.db", table=name)])
                  for name in ("told", "positive", "sizes")}  # fmt: skip
        every = [tuple(row.values()) for row in ran.rows("out")]
        digests = [{sink: digest for (_, sink), digest in ran.digests(epoch).items()} for epoch in range(len(epochs))]
        found.append((tables, sorted(every, key=repr), digests))
        ran.stop()
    assert found[0] == found[1]
    tables, every, _ = found[0]
    assert tables["positive"] == _answer(f"SELECT * FROM {totals} WHERE total > 0", records)
    sizes = f"SELECT n, count(*), min(total), avg(total) FROM {totals} GROUP BY n"
    assert tables["sizes"] == _answer(sizes, records)
    # Without a key a sink has had every size that ever held, among them those of now.
    assert {row[:2] for row in tables["sizes"]} <= set(every)
    told = {b: sum(len({row["a"] for row in epoch if row["b"] == b}) for epoch in epochs) for b in "pq"}
    assert tables["told"] == sorted(told.items())
