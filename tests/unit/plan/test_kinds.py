"""What the rows of a stream are: said by the plan, drawn, and checked where a step would take them for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.errors import PlanError
from lockstep.plan.draw import draw, to_json
from lockstep.plan.kinds import kind_of
from lockstep.plan.stages import takes_back

SCHEMA = "user string, city string, ms bigint, at timestamp"
Made = Callable[[Any], Any]


def _events() -> Any:
    return ls.Job("kinds").source("a", ls.journal("a", schema=SCHEMA)).event_time("at")


def _counts(events: Any) -> Any:
    return events.key_by("user", "city").agg(n=F.count("*"), mean=F.avg("ms"))


def _latest(events: Any) -> Any:
    return _counts(events).latest()


def _sessions(events: Any) -> Any:
    return events.key_by("user").window(ls.session("1 m")).updates().agg(n=F.count("*"))


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda events: events.filter("ms > 5"), "append"),
        (lambda events: events.key_by("user").count(per_record=True), "append"),
        (lambda events: events.key_by("user").window(ls.tumbling("1 m")).agg(n=F.count("*")), "append"),
        (_counts, "updates by user, city"),
        (lambda events: events.key_by("user").max_by("ms"), "updates by user"),
        (lambda events: events.key_by("user").top(3, by="ms"), "updates by user, rank"),
        (lambda events: events.key_by("user").top(3, by="ms").latest(), "changes by user, rank"),
        (lambda events: _counts(events).filter("mean > 5").rename(user="who"), "updates by who, city"),
        (lambda events: _counts(events).select("city", "n"), "updates"),
        (lambda events: _counts(events).union(_counts(events)), "updates"),
        (
            lambda events: events.key_by("user").window(ls.tumbling("1 m")).updates().agg(n=F.count("*")),
            "updates by user, window_start, window_end",
        ),
        # Sessions grow together: their bounds do not find the row that a new one replaces.
        (_sessions, "updates"),
        (lambda events: _counts(events).as_events(), "append"),
        (_latest, "changes by user, city"),
        (lambda events: _latest(events).filter("mean > 5").with_columns(n="n + 1"), "changes by user, city"),
        (lambda events: _latest(events).select("n"), "changes"),
        (lambda events: _latest(events).explode(word="split(user, ' ')"), "changes"),
        (lambda events: _latest(events).union(_latest(events)), "changes"),
        (lambda events: _latest(events).key_by("city").agg(n=F.sum("n")), "changes by city"),
        (lambda events: _latest(events).key_by("city").agg(n=F.sum("n")).as_events(), "append"),
    ],
)
def test_the_plan_knows_what_rows_are(made: Made, kind: str) -> None:
    assert str(kind_of(made(_events())._step)) == kind


@pytest.mark.parametrize(
    "made",
    [
        lambda events: _latest(events).map(lambda record: record, schema="user string"),
        lambda events: _latest(events).key_by("user").max_by("n"),
        lambda events: _latest(events).key_by("user").agg(last=F.last("n")),
        lambda events: _latest(events).key_by("user").count(per_record=True),
        lambda events: _latest(events).distinct("user", within="1 m"),
        lambda events: _latest(events).with_columns(seen=ls.epoch_time()),
        lambda events: _latest(events).union(_counts(events)),
        lambda events: _latest(events).iterate(lambda rows: (rows.filter("n > 1"), rows)),
    ],
)
def test_a_step_that_cannot_take_a_row_back_does_not_read_changes(made: Made) -> None:
    events = _events()
    with pytest.raises(PlanError) as caught:
        made(events).to(ls.files("out"))
        ls.Job.graph(_job_of(events))
    assert caught.value.code == "LS0128"


def _job_of(stream: Any) -> ls.Job:
    job = ls.Job("kinds")
    job._registry = stream._registry
    return job


@pytest.mark.parametrize(
    "made",
    [
        lambda events: events.latest(),
        lambda events: _latest(events).latest(),
        lambda events: _counts(events).select("n").latest(),
        lambda events: _sessions(events).latest(),
        lambda events: events.as_events(),
        lambda events: _counts(events).as_events().as_events(),
    ],
)
def test_what_is_asked_for_has_to_be_there(made: Made) -> None:
    with pytest.raises(PlanError) as caught:
        made(_events())
    assert caught.value.code == "LS0129"


def test_the_two_ways_to_say_what_is_meant_are_accepted() -> None:
    for made in (_latest, lambda events: _counts(events).as_events()):
        events = _events()
        rows = made(events)
        rows.key_by("city").agg(n=F.sum("n")).to(ls.files("sums"))
        rows.filter("mean > 5").to(ls.sqlite("out.db", table="high", key=("user", "city")))
        _job_of(events).graph()


def _methods() -> ls.Job:
    job = ls.Job("methods")
    events = job.source("a", ls.journal("a", schema=SCHEMA))
    counts = events.key_by("user", "city").agg(n=F.count("*"))
    sums = counts.latest().key_by("city").agg(total=F.sum("n")).filter("total < 9")
    sums.to(ls.sqlite("out.db", table="sums", key="city"), name="kept")
    sums.to(ls.files("out"), name="told")
    return job


def test_lockstep_plan_draws_where_rows_become_something_else() -> None:
    drawn = draw(_methods().graph(), 200)
    assert "n = count(*) [updates by user, city]" in drawn
    assert "latest  the newest row by user, city [changes by user, city]" in drawn
    assert "filter total < 9\n" in drawn
    assert "  3  changes: stage-latest -> kept, told" in drawn
    kinds = {step["id"]: step["kind"] for step in to_json(_methods().graph())["steps"]}
    changes = dict.fromkeys(("latest", "agg_2", "filter", "kept", "told"), "changes")
    assert kinds == {"a": "append", "agg": "updates", **changes}


def test_only_a_sink_with_a_key_is_told_what_is_taken_back() -> None:
    graph = _methods().graph()
    assert [(sink.id, takes_back(sink)) for sink in graph.sinks] == [("kept", True), ("told", False)]
    # So they do not share their rows.
    assert [[sink.id for sink in sinks] for sinks in graph.stages[-1].branches] == [["kept"], ["told"]]


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        (ls.sqlite("out.db", table="t", key="user"), "told apart by city, user; the key is: user"),
        (ls.delta("out", key=("user", "city")), "cannot delete a row yet"),
    ],
)
def test_a_row_is_taken_back_only_where_the_sink_finds_it(sink: Any, says: str) -> None:
    events = _events()
    _latest(events).filter("mean > 5").to(sink)
    with pytest.raises(PlanError, match=says) as caught:
        _job_of(events).graph()
    assert caught.value.code == "LS0127"


@pytest.mark.parametrize("name", ["lockstep_change", "Lockstep_Event_Time"])
def test_columns_have_no_names_that_travel_between_stages(name: str) -> None:
    job = ls.Job("kinds")
    events = job.source("a", ls.journal("a", schema=SCHEMA))
    events.with_columns(**{name: "ms"}).to(ls.files("out"))
    with pytest.raises(PlanError) as caught:
        job.graph()
    assert caught.value.code == "LS0106" and name in caught.value.fact
