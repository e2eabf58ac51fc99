"""Where a job is cut into stages, and what runs in each."""

from __future__ import annotations

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.plan.draw import draw
from lockstep.plan.graph import Graph
from lockstep.plan.stages import Stage


def _events(job: ls.Job, name: str = "events") -> Stream:
    spec = ls.journal(name, schema="user string, n bigint, at timestamp")
    return job.source(name, spec).event_time("at", name=f"{name}_time")


def _windows(stream: Stream, name: str) -> Stream:
    return stream.key_by("user").window(ls.tumbling("1 minute")).agg(n=F.count("*"), name=name)


def _stages(graph: Graph) -> list[tuple[str, tuple[str, ...], list[str]]]:
    return [(stage.output_mode, stage.sources, [sink.id for sink in stage.sinks]) for stage in graph.stages]


def _steps(stage: Stage) -> list[str]:
    return [step.id for step in stage.steps]


def test_a_job_with_one_aggregation_is_one_stage() -> None:
    job = ls.Job("one")
    events = _events(job)
    _windows(events, "windows").filter("n > 1").to(ls.files("a"), name="a")
    events.filter("n > 5").to(ls.files("b"), name="b")
    assert _stages(job.graph()) == [("append", ("events",), ["a", "b"])]
    assert job.graph().boundaries == ()


def test_rolling_and_final_results_are_two_queries_over_the_same_source_without_a_journal() -> None:
    job = ls.Job("two")
    events = _events(job)
    _windows(events, "windows").to(ls.files("final"), name="final")
    events.key_by("user").agg(n=F.count("*"), name="rolling").to(ls.files("rolling"), name="updates")
    assert _stages(job.graph()) == [("append", ("events",), ["final"]), ("update", ("events",), ["updates"])]
    assert job.graph().boundaries == ()


def test_an_aggregation_of_an_aggregation_reads_a_journal_that_all_its_readers_share() -> None:
    job = ls.Job("chain")
    windows = _windows(_events(job), "windows").filter("n > 1", name="many")
    windows.key_by("user").agg(n=F.count("*"), name="rolling").to(ls.files("a"), name="a")
    windows.window(ls.tumbling("1 hour")).agg(n=F.count("*"), name="hours").to(ls.files("b"), name="b")
    graph = job.graph()
    assert _stages(graph) == [
        ("append", ("events",), ["stage-many"]),
        ("append", ("stage-many",), ["b"]),
        ("update", ("stage-many",), ["a"]),
    ]
    assert [(one.name, [time.id for time in one.follows]) for one in graph.boundaries] == [
        ("stage-many", ["events_time"])
    ]
    assert _steps(graph.stages[1]) == ["hours", "b"]
    text = draw(graph)
    assert "(3 stages)" in text and 'cut after "many", before hours, rolling: stage-many' in text


def test_updates_and_final_results_meet_only_through_journals() -> None:
    job = ls.Job("meeting")
    events = _events(job)
    final = _windows(events, "windows").select("user", "n")
    rolling = events.key_by("user").agg(n=F.count("*"), name="rolling").select("user", "n")
    final.union(rolling).to(ls.files("both"), name="both")
    assert _stages(job.graph()) == [
        ("append", ("events",), ["stage-select"]),
        ("update", ("events",), ["stage-select_2"]),
        ("append", ("stage-select", "stage-select_2"), ["both"]),
    ]


def test_an_event_time_may_be_declared_anew_after_an_aggregation() -> None:
    job = ls.Job("anew")
    rolling = _events(job).key_by("user").agg(last=F.max("at"), name="rolling")
    events = rolling.as_events().event_time("last")
    joined = events.join(_events(job, "others"), on="user", between=("-1 second", "1 second"))
    joined.to(ls.files("a"), name="a")
    graph = job.graph()
    assert _stages(graph) == [
        ("update", ("events",), ["stage-as_events"]),
        ("append", ("others", "stage-as_events"), ["a"]),
    ]
    assert graph.boundaries[0].follows == ()


def test_a_loop_stays_in_its_stage() -> None:
    job = ls.Job("loop")
    numbers = job.source("numbers", ls.journal("numbers", schema="n bigint"))
    small = numbers.iterate(lambda s: (s.filter("n > 1"), s.filter("n <= 1")), name="halving")
    small.to(ls.files("a"), name="a")
    assert _stages(job.graph()) == [("append", ("numbers", "loop-halving"), ["loop-halving", "a"])]


def test_the_fingerprint_tells_a_step_that_moved_to_another_stage() -> None:
    def job(*, chained: bool) -> Graph:
        made = ls.Job("moved")
        events = _events(made)
        before = _windows(events, "windows") if chained else events
        before.key_by("user").agg(n=F.count("*"), name="rolling").to(ls.files("a"))
        _windows(events, "others").to(ls.files("b"))
        return made.graph()

    assert job(chained=True).fingerprint()["operators"] == ["others", "windows", "rolling in stage 2"]
    assert job(chained=False).fingerprint()["operators"] == ["others", "rolling in stage 2"]
