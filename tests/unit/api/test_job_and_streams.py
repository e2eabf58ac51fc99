from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.errors import LockstepError
from lockstep.plan.schema import Schema, parse_schema
from lockstep.plan.specs import Guarantee


@dataclass(frozen=True)
class In:
    name: str
    schema: Schema
    kind: str = "in"

    def describe(self) -> str:
        return f"in {self.name}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class Out:
    path: str
    guarantee: Guarantee = "exactly-once"
    kind: str = "out"
    key: tuple[str, ...] = ()
    deletes: bool = False

    def describe(self) -> str:
        return f"out {self.path}"

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path}


def logins(job: ls.Job | None = None, name: str = "logins") -> ls.Stream:
    schema = parse_schema("user string, ok boolean, at timestamp, n bigint")
    return (job or ls.Job("test")).source(name, In(name, schema))


def refused_with(code: str, make: Callable[[], object]) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        make()
    assert caught.value.code == code
    return caught.value


def step_of(stream: ls.Stream) -> Any:
    return stream._step


def test_the_job_of_the_design_is_built_as_written() -> None:
    job = ls.Job("failed-logins")
    (
        logins(job)
        .event_time("at", out_of_order="5 seconds")
        .filter(~F.col("ok"))
        .key_by("user")
        .window(ls.sliding("1 minute", every="10 seconds"))
        .agg(failures=F.count("*"))
        .filter("failures >= 5")
        .to(Out("out/alerts"))
    )
    graph = job.graph()
    assert [step.id for step in graph.steps] == ["logins", "event_time", "filter", "agg", "filter_2", "out"]
    assert graph.steps[-1].columns == ("user", "window_start", "window_end", "failures")
    assert graph.event_times[0].out_of_order_us == 5_000_000
    assert graph.event_times[0].idle_after_us == 30_000_000
    assert graph.unused == ()


def test_the_three_ways_to_write_a_condition_give_the_same_condition() -> None:
    stream = logins()
    for condition in (~F.col("ok"), "NOT ok", lambda r: ~r.ok):
        assert str(step_of(stream.filter(condition)).condition) == "NOT ok"


def test_ids_are_numbered_in_order_of_creation_and_names_win() -> None:
    stream = logins()
    ids = [step_of(stream.filter("ok", name=name)).id for name in (None, "mine", None, None)]
    assert ids == ["filter", "mine", "filter_2", "filter_3"]
    refused_with("LS0116", lambda: stream.filter("ok", name="mine"))
    refused_with("LS0116", lambda: stream.filter("ok", name="logins"))


def test_a_step_that_is_refused_takes_no_id() -> None:
    stream = logins()
    refused_with("LS0204", lambda: stream.filter(F.rand() > 0.5))
    assert step_of(stream.filter("ok")).id == "filter"


def test_select_takes_names_the_star_and_named_values() -> None:
    chosen = logins().select("user", F.lower("user").alias("small"), F.col("n"), twice="n * 2", one=1)
    assert chosen.columns == ("user", "small", "n", "twice", "one")
    assert logins().select("*", day=F.to_date("at")).columns == ("user", "ok", "at", "n", "day")


def test_a_keyword_wins_over_an_alias() -> None:
    assert logins().select(small=F.lower("user").alias("other")).columns == ("small",)


def test_with_columns_drop_and_rename() -> None:
    stream = logins().with_columns(n=F.col("n") + 1, day="date(at)").drop("ok").rename(user="who").rename({"n": "name"})
    assert stream.columns == ("who", "at", "name", "day")


def test_a_column_called_name_is_not_taken_for_the_name_of_the_step() -> None:
    stream: Any = logins()
    refused_with("LS0134", lambda: stream.with_columns(name=F.upper("user")))
    refused_with("LS0134", lambda: stream.with_columns(day="date(at)", name="user"))
    refused_with("LS0134", lambda: stream.select("user", name=lambda r: r.user))
    named = stream.with_columns(F.upper("user").alias("name"))
    refused_with("LS0134", lambda: named.rename(name="full_name"))
    assert named.rename({"name": "full_name"}, name="renamed").columns[-1] == "full_name"


def test_union_takes_streams_of_the_same_job() -> None:
    job = ls.Job("test")
    united: Any = logins(job).union(logins(job, "more"), logins(job, "third"))
    assert [before.id for before in step_of(united).inputs] == ["logins", "more", "third"]
    refused_with("LS0136", lambda: united.union(logins()))
    refused_with("LS0108", lambda: united.union(united.key_by("user")))


def test_windows_without_a_key_and_keys_without_a_window() -> None:
    windowed = logins().event_time("at").window(ls.tumbling("1 minute")).agg(n=F.count("*"))
    assert windowed.columns == ("window_start", "window_end", "n")
    rolling = logins().key_by("user", day="date(at)").agg(F.sum("n").alias("total"), exact_floats=False)
    assert rolling.columns == ("user", "day", "total")
    assert step_of(rolling).exact_floats is False


def test_an_event_time_may_be_an_expression_and_wait_for_ever() -> None:
    step = step_of(logins().event_time(F.to_timestamp("at"), idle_after=None))
    assert str(step.time) == "to_timestamp(at)"
    assert (step.out_of_order_us, step.idle_after_us) == (0, None)


def test_python_steps_keep_function_schema_and_on_error() -> None:
    step = step_of(logins().map_batches(lambda table: table, schema="a int", on_error="skip"))
    assert step.schema == parse_schema("a int")
    assert step.on_error == "skip"


def test_a_stream_can_go_to_several_sinks() -> None:
    job = ls.Job("test")
    logins(job).to(Out("a")).to(Out("b")).to(Out("c"), name="third", guarantee="at-least-once")
    assert [(sink.id, sink.guarantee) for sink in job.graph().sinks] == [
        ("out", "exactly-once"),
        ("out_2", "exactly-once"),
        ("third", "at-least-once"),
    ]


def test_a_weak_sink_works_by_default_and_is_not_called_strong() -> None:
    job = ls.Job("test")
    weak = Out("screen", "at-least-once")
    logins(job).to(weak)
    assert job.graph().sinks[0].guarantee == "at-least-once"
    refused_with("LS0118", lambda: logins().to(weak, guarantee="exactly-once"))


def test_leftover_streams_are_listed() -> None:
    job = ls.Job("test")
    stream = logins(job)
    stream.filter("ok", name="forgotten")
    stream.to(Out("x"))
    assert job.graph().unused == ("forgotten",)


def mistakes(stream: Any) -> list[tuple[str, str, Callable[[], object]]]:
    keyed = stream.key_by("user")
    return [
        ("LS0133", ".agg(", lambda: keyed.to(Out("x"))),
        ("LS0133", ".agg(", lambda: keyed.filter("ok")),
        ("LS0133", ".agg(", lambda: stream.event_time("at").window(ls.tumbling("1 s")).map(dict, schema="a int")),
        ("LS0133", ".key_by(", lambda: stream.groupBy("user")),
        ("LS0133", ".key_by(", lambda: stream.agg(n=F.count("*"))),
        ("LS0133", ".filter(", lambda: stream.where("ok")),
        ("LS0133", "it has: ", lambda: stream.nonsense(1)),
        ("LS0108", "ls.files(", lambda: stream.to(stream)),
        ("LS0108", 'ls.files("out/x")', lambda: stream.to("out/x")),
        ("LS0108", "without schema=", lambda: stream.to(In("x", parse_schema("a int")))),
        ("LS0131", "schema=", lambda: stream.map(dict)),
        ("LS0131", "lambda record", lambda: stream.map(lambda: {}, schema="a int")),
        ("LS0131", "lambda r", lambda: stream.filter(lambda a, b: a)),
        ("LS0132", ".alias(", lambda: keyed.agg(F.count("*"))),
        ("LS0132", ".alias(", lambda: stream.select(F.lower("user"))),
        ("LS0132", ".key_by(", stream.key_by),
        ("LS0132", "F.count", keyed.agg),
        ("LS0107", 'did you mean "user"', lambda: stream.key_by("usr")),
        ("LS0107", 'did you mean "user"', lambda: stream.select("usr")),
        ("LS0107", 'did you mean "user"', lambda: stream.filter(lambda r: r.usr == 1)),
        ("LS0114", 'ls.tumbling("1 minute")', lambda: keyed.window("1 minute")),
        ("LS0103", "5 seconds", lambda: stream.event_time("at", out_of_order=5)),
        ("LS0105", "The types are", lambda: stream.map(dict, schema="a in t")),
    ]


@pytest.mark.parametrize("number", range(len(mistakes(logins()))))
def test_common_mistakes_are_answered_with_what_to_write(number: int) -> None:
    code, hint, make = mistakes(logins())[number]
    assert hint in refused_with(code, make).hint


def test_a_class_in_place_of_a_spec_is_explained() -> None:
    stream: Any = logins()
    assert "was given a Out" in refused_with("LS0108", lambda: stream.to(Out)).fact


def test_hasattr_still_works_on_streams() -> None:
    assert not hasattr(logins(), "groupBy")
    assert not hasattr(logins().key_by("user"), "to")


@pytest.mark.parametrize("name", ["Failed", "1st", "a_b", "", "a b", None, "x" * 64])
def test_a_job_has_a_plain_name(name: Any) -> None:
    refused_with("LS0102", lambda: ls.Job(name))


def test_options_take_full_and_friendly_names_and_are_checked() -> None:
    job = ls.Job("test", replicas=3, epoch_interval="200 ms", heartbeat_interval_s=2)
    assert job.options == {"replicas": 3, "epoch_interval_s": 0.2, "heartbeat_interval_s": 2.0}
    assert 'did you mean "replicas"' in refused_with("LS0104", lambda: ls.Job("test", replica=3)).hint
    refused_with("LS0104", lambda: ls.Job("test", replicas=0))
    refused_with("LS0103", lambda: ls.Job("test", epoch_interval="soon"))


def test_a_source_needs_a_schema_and_a_name_of_its_own() -> None:
    job: Any = ls.Job("test")
    refused_with("LS0109", lambda: job.source("x", Out("folder")))
    refused_with("LS0108", lambda: job.source("x", "folder"))
    logins(job)
    refused_with("LS0116", lambda: logins(job))
