"""Every Nexmark query against DuckDB, over the same events, in two jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lockstep as ls
from benchmarks.nexmark.generator import Model, events
from benchmarks.nexmark.queries import QUERIES, site
from lockstep.testing import HEARTBEAT, Result, at, run
from tests.spark.nexmark_reference import ANSWERS, Reference, sentinel

MODEL = Model(seed=7, events_per_s=50, out_of_order=30)
COUNT = 3000
CUTS = [0, 737, 2044, COUNT]
START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: Mapping[str, Sequence[str]] = {
    "q4": ["category"],
    "q17": ["auction", "day"],
    "q18": ["bidder", "auction"],
    "q19": ["auction", "place"],
}
"""Queries that give updates: the newest row for these columns holds."""
LATER = {"q4", "q5", "q6", "q7", "q8", "q19", "q20"}
"""Those with stages, and those with the kinds of state that q3 and q18 have, too."""
SLICE = {"q1", "q3", "q18"}
"""A computation, a join and an update by key. The others are for `make test-long`; every kind of step that they use
has tests of its own in this folder."""
Epochs = list[tuple[datetime, list[dict[str, Any]]]]


def _epochs() -> Epochs:
    made = events(MODEL, 0, COUNT)
    cut = [made[begin:end] for begin, end in pairwise(CUTS)]
    cut[-1].append(sentinel(max(event["at"] for event in made)))
    return [(START + timedelta(seconds=9 * number), each) for number, each in enumerate(cut)]


@pytest.fixture(scope="module")
def epochs() -> Epochs:
    return _epochs()


def _run(spark: SparkSession, queries: Mapping[str, Any], epochs: Epochs, heartbeats: int) -> Result:
    job = ls.Job("nexmark")
    streams = site(job)
    for name, query in queries.items():
        query(streams).to(ls.files(f"out/{name}"), name=name)
    timeline: list[Any] = []
    for time, records in epochs:
        timeline += [at(time), records]
    timeline += [at(START + timedelta(seconds=60)), *[HEARTBEAT] * heartbeats]
    # One replica: that replicas of other shapes agree is shown for every operator by itself, in less time.
    return run(job, timeline, spark=spark, replicas=1)


def _plain(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A row as something that can be sorted and compared: times without a zone, floats to twelve digits."""
    plain = {
        name: value.replace(tzinfo=None)
        if isinstance(value, datetime)
        else float(f"{value:.12g}")
        if isinstance(value, float)
        else value
        for name, value in row.items()
    }
    return tuple(sorted(plain.items()))


@pytest.mark.parametrize(
    ("queries", "heartbeats"),
    # A mark is what was seen before an epoch, and event time takes three epochs from one stage to the next: queries
    # with stages need more epochs until everything is through, and are a job of their own.
    # Those take long; what is special about them is in `test_stages.py`.
    [
        pytest.param(sorted(SLICE), 2, id="slice"),
        pytest.param(sorted(set(ANSWERS) - LATER - SLICE), 2, id="one-stage", marks=pytest.mark.long),
        pytest.param(sorted(LATER), 5, id="several-stages", marks=pytest.mark.long),
    ],
)
def test_queries_give_what_duckdb_gives(
    queries: list[str], heartbeats: int, lockstep_spark: SparkSession, epochs: Epochs
) -> None:
    result = _run(lockstep_spark, {name: QUERIES[name] for name in queries}, epochs, heartbeats)
    watermark = epochs[-1][1][-1]["at"] - timedelta(seconds=4)
    reference = Reference([*epochs, (START + timedelta(seconds=62), [])], watermark)
    for query in queries:
        expected = sorted(_plain(row) for row in reference.answer(query))
        rows = result.latest(query, by=KEYS[query]) if query in KEYS else result.sink(query)
        found = sorted(_plain({name: row[name] for name, _ in expected[0]}) for row in rows)
        assert found == expected, query
    reference.close()


def test_the_events_have_what_the_queries_look_for(epochs: Epochs) -> None:
    """Otherwise the tests above could pass with empty results, or by the luck of an order."""
    made = [event for _, records in epochs for event in records]
    times = [event["at"] for event in made]
    assert times != sorted(times)
    reference = Reference(epochs, times[-1])
    assert min(len(reference.answer(query)) for query in ANSWERS) >= 3
    ends = [(event["auction"]["seller"], event["auction"]["expires"]) for event in made if event["auction"]]
    assert len(set(ends)) == len(ends), "no seller's auctions end together: q6 has one answer"
    reference.close()
