"""What `lockstep check` advises against although it may be meant."""

from __future__ import annotations

import pytest

import lockstep as ls
from lockstep import F
from lockstep.control.start.check import advice

SCHEMA = "user string, at timestamp"


def _sources(job: ls.Job) -> tuple[ls.Stream, ls.Stream]:
    left, right = (job.source(name, ls.journal(name, schema=SCHEMA)) for name in ("left", "right"))
    return left, right


def _counted(stream: ls.Stream) -> None:
    stream.key_by("user").window(ls.tumbling("1 minute")).agg(n=F.count("*")).to(ls.files("out"))


@pytest.mark.parametrize("between", [False, True])
def test_one_event_time_for_a_union_is_pointed_out_whatever_stands_between(between: bool) -> None:
    job = ls.Job("one-time")
    left, right = _sources(job)
    united = left.union(right)
    _counted((united.filter("user <> 'nobody'") if between else united).event_time("at"))
    (said,) = advice(job.graph())
    assert 'event_time "event_time"' in said and "left and right" in said and "before .union" in said


def test_a_time_for_each_input_needs_no_advice_and_neither_does_a_single_input() -> None:
    job = ls.Job("own-times")
    left, right = _sources(job)
    _counted(left.event_time("at", name="left_time").union(right.event_time("at", name="right_time")))
    assert advice(job.graph()) == []
    single = ls.Job("single")
    _counted(_sources(single)[0].event_time("at"))
    assert advice(single.graph()) == []
