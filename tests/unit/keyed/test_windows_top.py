"""The best records of a window: against a sort of all of them, however they came in epochs and sessions."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep as ls
from lockstep.compile.keyed import operator_of
from lockstep.compile.registry import FAMILIES
from lockstep.errors import PlanError
from lockstep.keyed.operator import Arrival
from lockstep.keyed.value_order import order_key
from lockstep.keyed.windows.panes import Pane
from lockstep.keyed.windows.top import Ranked
from lockstep.plan.draw import words
from lockstep.plan.updates import updates_of
from lockstep.plan.windowed import WindowStep

assert FAMILIES, "they register their operators when they are imported"

SCHEMA = pa.schema([("rank", pa.int32()), ("value", pa.float64()), ("name", pa.int64())])
PANE = Pane(None, None, None, None, None, 0, "on_time", True)  # type: ignore[arg-type]
VALUE = st.none() | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf]) | st.integers(-3, 3).map(float)
RECORDS = st.lists(st.tuples(VALUE, st.none() | st.integers(0, 3)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.integers(1, 5), st.booleans(), st.integers(0, 30))
def test_the_best_are_those_that_a_sort_of_all_records_puts_first(
    records: list[tuple[Any, int | None]], number: int, largest: bool, cut: int
) -> None:
    ranked = Ranked(SCHEMA, number, 0, (0, 1), largest)
    arrivals = [Arrival(0, (value, name), at_us, ("s", name % 2, name)) for name, (value, at_us) in enumerate(records)]
    parts = []
    for part in (arrivals[:cut], arrivals[cut:]):
        kept = ranked.add(None, Arrival(0, (None, -1), 0))
        for arrival in part:
            kept = ranked.add(kept, arrival)
        parts.append(kept)
    found = ranked.results(ranked.merge(*parts), PANE)
    known = [one for one in arrivals if one.values[0] is not None]
    # Python's sort keeps equal ones as they were: first by time and position, then by value.
    known.sort(key=lambda one: (one.at_us is not None, one.at_us or 0, one.position if one.at_us is not None else ()))
    known.sort(key=lambda one: order_key(one.values[0]), reverse=largest)
    assert [row[2] for row in found] == [one.values[1] for one in known[:number]]
    assert [row[0] for row in found] == list(range(1, min(number, len(known)) + 1))


def test_the_top_of_a_key_is_that_of_a_window_or_of_all_time() -> None:
    events = ls.Job("top").source("events", ls.journal("events", schema="key string, value bigint, at timestamp"))
    by_key = events.event_time("at").key_by("key")
    hours = by_key.top(3, by="value", window=ls.tumbling("1 hour"), ascending=True, as_="place")
    assert words(hours._step) == "window by key, tumbling 1 hour: top 3 by value, ascending: place"
    ever = by_key.top(3, by="value")
    assert ever.columns == ("key", "rank", "value", "at")
    assert words(ever._step.inputs[0]) == "window by key, global; in every epoch: top 3 by value: rank"
    with pytest.raises(PlanError, match=r"LS0162.*window_start"):
        hours.key_by("key").top(1, by="value")


def _top(number: Any = 2, **options: Any) -> WindowStep:
    events = ls.Job("top").source("events", ls.journal("events", schema="key string, value bigint, at timestamp"))
    window = events.event_time("at").key_by("key").window(ls.tumbling("1 minute"))
    step = window.top(number, **{"by": "value", **options})._step
    assert isinstance(step, WindowStep)
    return step


def test_results_are_whole_records_with_their_rank() -> None:
    step = _top(by="abs(value)", as_="place", ascending=True)
    assert step.columns == ("key", "window_start", "window_end", "place", "value", "at")
    assert not step.calls_user_code
    time = pa.timestamp("us", "UTC")
    fields = [("key", pa.string()), ("value", pa.int64()), ("at", time), ("by", pa.int64())]
    (output,) = operator_of(step, (pa.schema(fields),)).outputs
    assert output.types == [pa.string(), time, time, pa.int32(), pa.int64(), time]
    assert str(step.computation) == "top 2 by abs(value), ascending: place"


@pytest.mark.parametrize("number", [0, -1, 1001, 2.5, True, "3"])
def test_the_number_is_a_whole_one_within_bounds(number: Any) -> None:
    with pytest.raises(PlanError) as caught:
        _top(number)
    assert caught.value.code == "LS0167"


def test_a_map_cannot_be_ranked_by() -> None:
    fields = [("key", pa.string()), ("value", pa.map_(pa.string(), pa.int64())), ("at", pa.timestamp("us", "UTC"))]
    with pytest.raises(PlanError) as caught:
        operator_of(_top(), (pa.schema(fields),))
    assert caught.value.code == "LS0171"


def test_a_rank_that_changes_replaces_the_one_before() -> None:
    events = ls.Job("top").source("events", ls.journal("events", schema="key string, value bigint, at timestamp"))
    rolling = events.key_by("key").window(ls.global_()).updates().top(3, by="value")
    found = updates_of(rolling._step)
    assert found is not None
    assert found.key == {"key", "window_start", "window_end", "rank"}
    assert updates_of(_top()) is None
