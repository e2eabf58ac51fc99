"""Which hidden columns a source has to emit: only those that the steps below it ask for."""

from __future__ import annotations

from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.compile.digests import add_sums, digest_text
from lockstep.compile.hidden_columns import Hidden, hidden_of, ordered_sinks, origins_wanted


def _job() -> tuple[ls.Job, Any, Any]:
    job = ls.Job("hidden")
    left = job.source("left", ls.journal("left", schema="user string, at timestamp"))
    right = job.source("right", ls.journal("right", schema="user string, at timestamp"))
    return job, left, right


def _function(record: Any) -> Any:
    return record


def test_a_plain_job_carries_nothing() -> None:
    job, left, right = _job()
    left.union(right).filter("user = 'a'").map(_function, schema="user string").to(ls.files("out"))
    assert hidden_of(job.graph().stages[0]) == {"left": Hidden(), "right": Hidden()}
    assert Hidden().columns == ()


def test_each_source_carries_the_marks_of_the_event_times_below_it() -> None:
    job, left, right = _job()
    left.event_time("at", name="left_time").window(ls.tumbling("1 s")).agg(n=F.count("*")).to(ls.files("one"))
    both = left.union(right).event_time("at", name="both_time")
    both.window(ls.tumbling("1 s")).agg(n=F.count("*")).to(ls.files("two"))
    hidden = hidden_of(job.graph().stages[0])
    assert hidden["left"].event_times == ("left_time", "both_time")
    assert hidden["right"].event_times == ("both_time",)
    assert [name for name, _ in hidden["right"].columns] == ["__mark", "__mark_both_time"]


def test_the_epoch_time_is_carried_where_an_expression_reads_it() -> None:
    job, left, right = _job()
    left.with_columns(seen=F.greatest(ls.epoch_time(), "at")).to(ls.files("one"))
    right.to(ls.files("two"))
    hidden = hidden_of(job.graph().stages[0])
    assert (hidden["left"].epoch_time, hidden["right"].epoch_time) == (True, False)


def test_positions_are_carried_where_records_may_be_skipped() -> None:
    job, left, right = _job()
    left.map(_function, schema="user string", on_error="skip").to(ls.files("one"))
    right.map(_function, schema="user string").to(ls.files("two"))
    hidden = hidden_of(job.graph().stages[0])
    assert (hidden["left"].position, hidden["right"].position) == (True, False)


def test_positions_are_carried_to_keyed_sinks_and_no_further() -> None:
    job, left, right = _job()
    left.to(ls.sqlite("out.db", table="left", key="user"), name="keyed")
    right.to(ls.sqlite("out.db", table="right"), name="appended")
    # One row for each key and epoch needs no order among several.
    counted = job.source("counted", ls.journal("counted", schema="user string, city string"))
    by_city = counted.key_by("user", "city").agg(n=F.count("*"), name="by_city")
    by_city.rename(user="who").to(ls.sqlite("out.db", table="counts", key=("who", "city")), name="counts")
    ambiguous = job.source("ambiguous", ls.journal("ambiguous", schema="user string, city string"))
    newest_city = ambiguous.key_by("user", "city").agg(n=F.count("*"), name="newest_city")
    newest_city.to(ls.sqlite("out.db", table="cities", key="user"), name="cities")
    one, two = (ambiguous.key_by("user").agg(n=F.count("*"), name=name) for name in ("one", "two"))
    one.union(two).to(ls.sqlite("out.db", table="united", key="user"), name="united")
    graph = job.graph()
    ordered = ordered_sinks(graph.stages)
    assert ordered == {"keyed", "counts", "cities", "united"}
    asked = {name: one.position for stage in graph.stages for name, one in hidden_of(stage, ordered).items()}
    assert asked == {"left": True, "right": False, "counted": False, "ambiguous": True}
    state = {step["id"]: "newest_position" in step for step in graph.fingerprint()["stateful"]}
    assert state == {"by_city": False, "newest_city": True, "one": True, "two": True}


def test_a_journal_inside_the_job_keeps_the_order_if_a_reader_asks_for_positions() -> None:
    job, left, right = _job()
    left.key_by("user").count(per_record=True, name="counted").key_by("user").max_by("count").to(
        ls.files("one"), name="one"
    )
    right.event_time("at").key_by("user").window(ls.tumbling("1 s")).agg(n=F.count("*")).event_time(
        "window_end"
    ).window(ls.tumbling("1 m")).agg(n=F.sum("n")).to(ls.files("two"), name="two")
    stages = job.graph().stages
    journals = {sink.id for stage in stages for sink in stage.sinks} - {"one", "two"}
    assert len(journals) == 2
    assert ordered_sinks(stages) == {"stage-counted"}


@pytest.mark.parametrize(
    ("after", "wanted"),
    [
        (lambda made, job: made.to(ls.files("out")), False),
        (lambda made, job: made.to(ls.sqlite("out.db", table="all")), False),
        (lambda made, job: made.key_by("user").agg(n=F.count("*")).to(ls.files("out")), False),
        (lambda made, job: made.key_by("user").agg(n=F.count("*")).to(ls.sqlite("o.db", table="n", key="user")), False),
        (lambda made, job: made.key_by("user").agg(n=F.first("user")).to(ls.files("out")), True),
        (lambda made, job: made.key_by("user").count(per_record=True).to(ls.files("out")), True),
        (lambda made, job: made.key_by("user").reduce(lambda a, b: a).to(ls.files("out")), True),
        (lambda made, job: made.key_by("user").process(_Nothing(), schema="user string").to(ls.files("out")), True),
        (lambda made, job: made.distinct("user", within="1 hour").to(ls.files("out")), True),
        (lambda made, job: made.filter("user > 'a'").to(ls.sqlite("out.db", table="newest", key="user")), True),
        (lambda made, job: made.map(dict, schema="user string", on_error="skip").to(ls.files("out")), True),
        (lambda made, job: made.map(dict, schema="user string").to(ls.files("out")), False),
    ],
)
def test_who_asks_which_record_a_row_was_made_from(after: Any, wanted: bool) -> None:
    job, left, right = _job()
    right.key_by("user").process(_Nothing(), schema="user string", name="other").to(ls.files("beside"), name="beside")
    made = left.map_batches(lambda table: table, schema="user string", name="made", on_error="skip")
    after(made, job)
    stages = job.graph().stages
    assert origins_wanted(stages[0], made._step, ordered_sinks(stages)) == wanted


def test_digests_of_parts_add_up_in_any_order() -> None:
    parts = [(2**64 - 1, 5), (3, 2**63), (0, 2**63)]
    forward = backward = (0, 0)
    for part in parts:
        forward = add_sums(forward, part)
    for part in reversed(parts):
        backward = add_sums(backward, part)
    assert forward == backward == (2, 5)
    assert digest_text(3, forward) == digest_text(3, (2**64 + 2, 5))


class _Nothing(ls.Process):
    """Needed only for its place in the plan."""

    def on_record(self, record: Any, ctx: Any) -> None:
        """Nothing."""


def test_a_source_above_a_keyed_step_sends_ticks_positions_and_the_time_with_or_without_event_time() -> None:
    job, left, right = _job()
    left.key_by("user").process(_Nothing(), schema="user string").to(ls.files("one"))
    right.to(ls.files("two"))
    hidden = hidden_of(job.graph().stages[0])
    assert hidden["left"] == Hidden(epoch_time=True, position=True, ticks=True)
    assert hidden["left"].marks and not hidden["right"].marks
    names = [name for name, _ in hidden["left"].columns]
    assert names == ["__mark", "__watermark", "__epoch_time", "__source", "__partition", "__offset"]
