"""Queries over results that replace each other: changes come where they are needed, and nothing else changes."""

from __future__ import annotations

import lockstep as ls

SCHEMA = "user string, city string, ms bigint"
COUNTS = "select user, city, count(*) as n from a group by user, city"


def test_changes_come_before_the_step_that_needs_them_and_every_level_after_it_has_them() -> None:
    job = ls.Job("nested")
    job.source("a", ls.journal("a", schema=SCHEMA))
    sums = f"select city, sum(n) as total from ({COUNTS}) group by city having total < 9"
    job.sql(f"select total, count(*) as cities from ({sums}) group by total").to(ls.files("out"))
    assert [(step.id, type(step).__name__) for step in job.graph().steps] == [
        ("a", "Source"),
        ("agg", "Aggregate"),
        ("agg_latest", "Latest"),
        ("agg_2", "AggregateOfChanges"),
        ("filter", "Filter"),
        ("agg_3", "AggregateOfChanges"),
        ("files", "Sink"),
    ]
    assert job.graph().unused == ()


def test_two_queries_share_the_rows_that_hold() -> None:
    job = ls.Job("shared")
    job.source("a", ls.journal("a", schema=SCHEMA))
    counts = job.sql(COUNTS, name="counts")
    job.sql("select city, sum(n) as total from counts group by city").to(ls.files("by_city"))
    job.sql("select user, sum(n) as total from counts group by user").to(ls.files("by_user"))
    counts.to(ls.files("counts"))
    steps = [step.id for step in job.graph().steps]
    assert steps.count("counts_latest") == 1 and len(steps) == len(set(steps))


def test_a_step_that_is_needed_in_both_ways_is_there_twice() -> None:
    job = ls.Job("twice")
    job.source("a", ls.journal("a", schema=SCHEMA))
    few = job.sql(f"select * from ({COUNTS}) where n < 5", name="few")
    few.to(ls.files("told"), name="told")
    few.to(ls.sqlite("out.db", table="few", key=("user", "city")), name="kept")
    graph = job.graph()
    assert [(sink.id, sink.input.id) for sink in graph.sinks] == [("told", "few"), ("kept", "few_latest")]
    assert [step.id for step in graph.steps if step.stateful] == ["agg", "agg_latest"]


def test_a_query_that_needs_no_changes_keeps_the_very_steps_it_had() -> None:
    job = ls.Job("plain")
    job.source("a", ls.journal("a", schema=SCHEMA))
    job.sql("select user, sum(ms) s from a group by user having s > 5").to(ls.files("out"))
    assert {id(step) for step in job.graph().steps} <= {id(one) for one in (*job._registry.steps, *job._registry.sinks)}


def test_latest_of_a_query_that_has_changes_already_changes_nothing() -> None:
    job = ls.Job("again")
    job.source("a", ls.journal("a", schema=SCHEMA))
    counts = "select user, city, count(*) as n from a group by user, city"
    sums = job.sql(f"select city, sum(n) as total from ({counts}) group by city")
    sums.latest().filter("total < 5").to(ls.sqlite("out.db", table="sums", key="city"))
    assert [step.id for step in job.graph().steps] == ["a", "agg", "agg_latest", "agg_2", "filter", "sqlite"]


def test_a_loop_before_a_query_stays_a_loop() -> None:
    job = ls.Job("loop")
    events = job.source("a", ls.journal("a", schema="user string, n bigint"))
    halved = events.iterate(lambda rows: (rows.filter("n > 1").with_columns(n="n div 2"), rows))
    counts = job.sql("select user, count(*) as c from rows group by user", rows=halved)
    job.sql("select c, count(*) as users from counts group by c", counts=counts).to(ls.files("out"))
    graph = job.graph()
    head, end = graph.loops[0], next(sink for sink in graph.sinks if sink.spec.kind == "stage")
    assert getattr(end, "head") is head  # noqa: B009
