from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.errors import PlanError
from lockstep.plan.draw import draw, to_json, words
from lockstep.plan.encode import step_json
from lockstep.plan.expression import Column, Sql, call
from lockstep.plan.graph import Graph, differences
from lockstep.plan.schema import parse_schema
from lockstep.plan.steps import Aggregate, EventTime, Filter, Map, Sink, Step, Union
from lockstep.plan.windows import Sliding, Tumbling, Window
from tests.unit.plan.fakes_for_plan import COUNT, MINUTE_US, FakeSink, counted, one_of_each, sink, source, timed

MINUTE = Tumbling(MINUTE_US)


def alerts_graph() -> Graph:
    a, b = source("logins"), source("more")
    united = timed(Union("union", (a, b)))
    failed = Filter("filter", united, ~Column("ok"))
    shaped = Map("shape", failed, dict, parse_schema("user string"))
    per_user = counted(failed, window=Sliding(MINUTE_US, 10_000_000))
    return Graph("alerts", (sink(shaped, "raw"), sink(Filter("filter_2", per_user, Sql("failures >= 5")), "alerts")))


def refused_with(code: str, make: Callable[[], object]) -> None:
    with pytest.raises(PlanError) as caught:
        make()
    assert caught.value.code == code


@pytest.mark.parametrize("step", one_of_each(), ids=lambda step: type(step).__name__)
def test_every_kind_of_step_can_be_drawn_and_written_as_json(step: Step) -> None:
    assert words(step)
    data = json.loads(json.dumps(step_json(step)))
    assert data["id"] == step.id
    assert data["inputs"] == [before.id for before in step.inputs]


def test_every_stateful_step_is_in_the_fingerprint() -> None:
    for step in one_of_each():
        end = step if isinstance(step, Sink) else sink(step)
        recorded = [entry["id"] for entry in Graph("job", (end,)).fingerprint()["stateful"]]
        assert recorded == [before.id for before in Graph("job", (end,)).steps if before.stateful]


def test_steps_come_after_their_inputs_in_order_of_creation() -> None:
    graph = alerts_graph()
    ids = [step.id for step in graph.steps]
    assert ids == ["logins", "more", "union", "event_time", "filter", "shape", "agg", "raw", "filter_2", "alerts"]
    assert [step.id for step in graph.python_steps] == ["shape"]
    assert [step.id for step in graph.sources] == ["logins", "more"]


def test_the_drawing_shows_where_streams_meet_and_part() -> None:
    assert draw(alerts_graph(), 100) == "\n".join(
        [
            "job alerts  (append)",
            "",
            "●    logins      fake logins: user string, ok boolean, at timestamp, n bigint",
            "│ ●  more        fake more: user string, ok boolean, at timestamp, n bigint",
            "├─╯",
            "○    union       union of logins, more",
            "○    event_time  event time at, out of order by 5 seconds, idle after 30 seconds",
            "○    filter      filter NOT ok",
            "├─╮",
            "λ │  shape       map dict: user string",
            "│ ◆  agg         aggregate by user, sliding 1 minute every 10 seconds: failures = count(*)",
            "■ │  raw         to fake out/raw, exactly-once",
            "  ○  filter_2    filter failures >= 5",
            "  ■  alerts      to fake out/alerts, exactly-once",
            "",
            "● source   ○ native Spark   ◆ native Spark, keeps state   λ runs Python   ■ sink",
        ]
    )


def test_a_narrow_drawing_wraps_and_keeps_its_lanes() -> None:
    lines = draw(alerts_graph(), 60).splitlines()
    assert max(len(line) for line in lines[:-1]) <= 60
    wrapped = next(index for index, line in enumerate(lines) if "agg " in line)
    assert lines[wrapped + 1].startswith("│ │  ")


def test_lanes_cross_when_a_passing_stream_is_between() -> None:
    a, b, c = source("a"), source("b"), source("c")
    both = Union("both", (a, c))
    drawn = draw(Graph("job", (sink(both, "x"), sink(b, "y")))).splitlines()
    assert drawn[5] == "├─┼─╯"


def test_the_json_of_a_graph_marks_python_and_state() -> None:
    data = json.loads(json.dumps(to_json(alerts_graph())))
    marks = {step["id"]: (step["stateful"], step["python"]) for step in data["steps"]}
    assert marks["agg"] == (True, False)
    assert marks["shape"] == (False, True)
    assert marks["filter"] == (False, False)


def test_a_job_needs_a_sink() -> None:
    refused_with("LS0115", lambda: Graph("job", ()))


def test_ids_and_targets_are_unique() -> None:
    refused_with("LS0116", lambda: Graph("job", (sink(source("a"), "a"),)))
    first, start = FakeSink("out/x"), source()
    refused_with(
        "LS0135",
        lambda: Graph(
            "job", (Sink("x", start, first, "exactly-once"), Sink("y", start, FakeSink("out//x/"), "exactly-once"))
        ),
    )


def test_streams_that_no_sink_reads_are_listed_by_their_last_step() -> None:
    start = source()
    used, idle = Filter("used", start, Column("ok")), Filter("idle", start, Column("ok"))
    last = Filter("last", idle, Column("ok"))
    graph = Graph("job", (sink(used),), {}, (start, used, idle, last))
    assert graph.unused == ("last",)
    assert 'no sink reads "last".' in draw(graph)


def job(
    *,
    schema: str = "user string, ok boolean, at timestamp, n bigint",
    window: Window | None = MINUTE,
    out_of_order_us: int = 5_000_000,
    key: str = "user",
    condition: str = "ok",
    agg_id: str = "agg",
    aggregate: Any = COUNT,
) -> Graph:
    start = EventTime("event_time", source(schema=schema), Column("at"), out_of_order_us, None)
    kept = Filter("filter", start, Column(condition))
    return Graph("job", (sink(Aggregate(agg_id, kept, (("key", Column(key)),), window, (("n", aggregate),))),))


@pytest.mark.parametrize(
    ("changed", "words_expected"),
    [
        ({}, []),
        ({"condition": "n"}, []),
        ({"schema": "user string, ok boolean, at timestamp, n bigint, extra int"}, []),
        ({"window": Tumbling(2 * MINUTE_US)}, ['"agg": window was tumbling 1 minute, is tumbling 2 minutes']),
        ({"key": "n"}, ['"agg": keys was [key = user], is [key = n]']),
        ({"aggregate": call("sum", "n")}, ['"agg": aggregates was [n = count(*)], is [n = sum(n)]']),
        (
            {"out_of_order_us": 0},
            [
                '"agg": event times was [at, out of order by 5 seconds, never idle], '
                "is [at, out of order by 0 ms, never idle]"
            ],
        ),
        ({"agg_id": "other"}, ["the steps with state were: agg; they are: other"]),
        (
            {"schema": "user string, ok boolean, at timestamp, n int"},
            ['"agg": column "n" of the source "logins" was bigint, is int'],
        ),
        (
            {"window": None},
            [
                '"agg": window was tumbling 1 minute, is none',
                "results were given in append mode, they are given in update mode",
            ],
        ),
    ],
)
def test_differences_are_told_in_plain_words_and_harmless_ones_are_none(
    changed: dict[str, Any], words_expected: list[str]
) -> None:
    old = json.loads(json.dumps(job().fingerprint()))
    assert differences(old, job(**changed).fingerprint()) == words_expected


def test_stateful_steps_in_another_order_are_a_difference() -> None:
    start = source()
    both = Graph("job", (sink(counted(start, "one"), "x"), sink(counted(start, "two"), "y"))).fingerprint()
    swapped = copy.deepcopy(both)
    swapped["stateful"].reverse()
    assert differences(both, swapped) == ["the steps with state were: one, two; they are: two, one"]


def test_one_more_sink_of_the_same_rows_shares_their_state_and_one_of_other_rows_does_not() -> None:
    rows = counted(source(), "one")
    alone = Graph("job", (sink(rows, "x"),))
    joined = Graph("job", (sink(rows, "x"), sink(rows, "y")))
    apart = Graph("job", (sink(rows, "x"), sink(Filter("few", rows, Sql("failures >= 5")), "y")))
    assert [len(graph.stages[0].branches) for graph in (alone, joined, apart)] == [1, 1, 2]
    assert differences(alone.fingerprint(), joined.fingerprint()) == []
    assert differences(alone.fingerprint(), apart.fingerprint()) == [
        "sinks needed the steps with state in the order: one; the order is: one, one "
        "(sinks of the same rows share a step's state, a sink of other rows has its own)"
    ]


def test_the_version_changes_with_the_plan_and_with_the_code_only() -> None:
    assert job().version("code") == job().version("code")
    assert len({job().version("code"), job().version("other"), job(condition="n").version("code")}) == 3
