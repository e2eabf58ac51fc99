"""Windows over the results of windows: which columns can put records into them."""

from __future__ import annotations

from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.errors import PlanError
from lockstep.plan.event_times import distance_us
from lockstep.plan.windows import Tumbling

MINUTE_US = 60_000_000


def hits() -> Stream:
    source = ls.Job("windows").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
    return source.event_time("at")


def minutes(window: Any = None) -> Stream:
    return hits().key_by("page").window(window or ls.tumbling("1 minute")).agg(n=F.count("*"))


def test_columns_keep_their_distance_from_event_time_until_they_are_changed() -> None:
    renamed = minutes().rename(window_end="ended").select("ended", "window_start", n=F.col("n"), later="ended")
    distances = {name: distance_us(name, renamed._step) for name in renamed.columns}
    assert distances == {"ended": 1, "window_start": 1 - MINUTE_US, "n": None, "later": 1}
    assert distance_us("at", hits()._step) == 0
    assert distance_us("at", hits().with_columns(at="at + interval 1 day")._step) is None


def test_streams_that_are_united_share_only_what_is_the_same_in_all() -> None:
    pages = hits().key_by("page")
    one, two = (pages.window(ls.tumbling(size)).agg(n=F.count("*")) for size in ("1 minute", "1 hour"))
    united = one.union(two)
    assert distance_us("window_end", united._step) == 1
    assert distance_us("window_start", united._step) is None


def test_over_moves_the_windows_and_their_bounds_back() -> None:
    hours = minutes().window(ls.tumbling("1 hour", offset="1 second"), over="window_end").agg(most=F.max("n"))
    assert hours.columns == ("window_start", "window_end", "most")
    aggregate = hours._step.inputs[0]
    assert aggregate.window == Tumbling(60 * MINUTE_US, 999_999)  # type: ignore[attr-defined]
    days = hours.window(ls.tumbling("1 day"), over="window_end").agg(most=F.max("most"))
    assert distance_us("window_end", hours._step) == 2
    assert distance_us("window_start", hours._step) == 2 - 60 * MINUTE_US
    day_us = 24 * 60 * MINUTE_US
    assert days._step.inputs[0].window == Tumbling(day_us, day_us - 2)  # type: ignore[attr-defined]
    assert distance_us("window_end", days._step) == 3
    same = hits().window(ls.tumbling("1 hour"), over="at").agg(n=F.count("*"))
    assert same._step.window == Tumbling(60 * MINUTE_US)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: hits().window(ls.tumbling("1 hour"), over="ms"), "LS0166"),
        (lambda: hits().window(ls.tumbling("1 hour"), over="nothing"), "LS0107"),
        (lambda: minutes(ls.session("1 minute")).window(ls.tumbling("1 hour"), over="window_start"), "LS0166"),
        (lambda: minutes(ls.tumbling("1 s", time="processing")).window(ls.count(3), over="window_end"), "LS0166"),
        (lambda: minutes(ls.count(3)).window(ls.tumbling("1 hour"), over="window_end"), "LS0166"),
        (lambda: minutes().window(ls.count(3), over="window_end"), "LS0162"),
        (lambda: minutes().window(ls.session("1 hour"), over="window_end").late_to_side().top(1, by="n"), "LS0162"),
    ],
)
def test_what_does_not_follow_event_time_puts_nothing_into_windows(build: Any, code: str) -> None:
    with pytest.raises(PlanError) as caught:
        build()
    assert caught.value.code == code
