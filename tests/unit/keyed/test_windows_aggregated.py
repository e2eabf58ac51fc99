"""Aggregates of the user's own over windows, and those of single functions: against plain Python and against .agg."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep as ls
from lockstep import F
from lockstep.errors import FunctionError, PlanError
from lockstep.keyed.codec import decode, encode, utc_time
from lockstep.keyed.operator import Arrival
from lockstep.keyed.records import Record
from lockstep.keyed.windows.aggregated import Aggregated
from lockstep.keyed.windows.panes import Pane
from lockstep.plan.draw import words
from lockstep.plan.steps import Aggregate
from lockstep.plan.windowed import WindowStep

PANE = Pane(Record({"key": "a"}), None, None, None, utc_time(0), 0, "on_time", True)
SCHEMA = pa.schema([("n", pa.int64()), ("mean", pa.float64())])


class Mean(ls.WindowAggregator):
    """A count and a sum, in whatever form the accumulator is asked to have."""

    def __init__(self, form: Any = tuple) -> None:
        self.form = form

    def create(self) -> Any:
        return self.form([0, 0])

    def add(self, accumulator: Any, record: Any) -> Any:
        count, total = accumulator
        return self.form([count + 1, total + record.value])

    def finish(self, accumulator: Any) -> Any:
        count, total = accumulator
        return {"n": count, "mean": total / count}

    def merge(self, accumulator: Any, later: Any) -> Any:
        return self.form([accumulator[0] + later[0], accumulator[1] + later[1]])


def _aggregated(aggregator: Any, schema: pa.Schema = SCHEMA) -> Aggregated:
    made = Aggregated("mean", aggregator, schema, ("value",))
    copied: Aggregated = pickle.loads(pickle.dumps(made))
    return copied


def _added(contents: Aggregated, values: list[int]) -> Any:
    kept = None
    for value in values:
        kept = contents.add(kept, Arrival(0, (value,), value))
    return kept


@given(st.lists(st.integers(-9, 9), min_size=2), st.integers(1, 50), st.sampled_from([tuple, list]))
def test_an_accumulator_gives_the_same_however_windows_were_cut_and_merged(
    values: list[int], cut: int, form: Any
) -> None:
    contents, at = _aggregated(Mean(form)), cut % len(values)
    whole = decode(encode(_added(contents, values)))
    parts = [decode(encode(part)) for part in (_added(contents, values[:at]), _added(contents, values[at:])) if part]
    merged = parts[0] if len(parts) == 1 else contents.merge(*parts)
    for kept in (whole, merged):
        assert list(contents.results(kept, PANE)) == [(len(values), sum(values) / len(values))]


class Taking(Mean):
    def finish(self, accumulator: Any) -> Any:
        return {"n": accumulator.pop(0), "mean": None}


def test_what_finish_does_to_the_accumulator_is_not_in_the_next_result() -> None:
    contents = _aggregated(Taking(list))
    kept = _added(contents, [1, 2])
    before = copy.deepcopy(kept)
    assert [list(contents.results(kept, PANE)) for _ in range(2)] == [[(2, None)]] * 2
    assert kept == before


class Bare(Mean):
    def __init__(self, finished: Any) -> None:
        super().__init__()
        self.finished = finished

    def finish(self, accumulator: Any) -> Any:
        return self.finished


@pytest.mark.parametrize("finished", [5, {"n": 5}, (5,), Record({"n": 5})])
def test_with_one_field_its_value_alone_will_do(finished: Any) -> None:
    contents = Aggregated("mean", Bare(finished), pa.schema([("n", pa.int64())]), ("value",))
    assert list(contents.results(_added(contents, [1]), PANE)) == [(5,)]


@pytest.mark.parametrize(
    ("aggregator", "code"),
    [
        (Mean(deque), "LS0311"),
        (Bare({"m": 1}), "LS0302"),
        (Bare({"n": "x"}), "LS0303"),
        (Bare(None), "LS0302"),
        (Mean(lambda values: [values[0] / 0]), "LS0301"),
    ],
)
def test_what_an_aggregator_does_wrong_is_explained(aggregator: Any, code: str) -> None:
    contents = Aggregated("mean", aggregator, SCHEMA, ("value",))
    with pytest.raises(FunctionError, match='"mean"') as raised:
        contents.results(_added(contents, [1]), PANE)
    assert raised.value.code == code


def _window() -> Any:
    hits = ls.Job("aggregates").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
    return hits.event_time("at").key_by("page").window(ls.tumbling("1 minute"))


class OnlyAdds(ls.WindowAggregator):
    def add(self, accumulator: Any, record: Any) -> Any: ...


@pytest.mark.parametrize(
    ("aggregator", "told"),
    [
        (Mean, "the class Mean"),
        (OnlyAdds(), "a OnlyAdds without create, finish"),
        (sum, "a builtin_function_or_method"),
    ],
)
def test_an_aggregator_is_an_object_with_all_three_methods(aggregator: Any, told: str) -> None:
    with pytest.raises(PlanError, match="LS0163") as raised:
        _window().aggregate(aggregator, schema="n bigint")
    assert told in raised.value.fact


def test_an_aggregator_needs_the_schema_of_its_result_and_is_drawn_with_it() -> None:
    with pytest.raises(PlanError, match="LS0131"):
        _window().aggregate(Mean())
    step = _window().aggregate(Mean(), schema="n bigint, mean double")._step
    assert words(step) == "window by page, tumbling 1 minute: aggregate Mean: n bigint, mean double"
    assert step.columns == ("page", "window_start", "window_end", "n", "mean")


@pytest.mark.parametrize("function", ["sum", "min", "max"])
def test_one_function_of_columns_is_the_aggregation_that_agg_makes(function: str) -> None:
    one = getattr(_window(), function)("ms", twice="ms * 2")._step
    call = getattr(F, function)
    other = _window().agg(ms=call("ms"), twice=call(F.expr("ms * 2")))._step
    assert isinstance(one, Aggregate)
    assert words(one) == words(other)


def test_whole_records_are_the_top_one_without_its_rank() -> None:
    for name, ascending in (("min_by", True), ("max_by", False)):
        step = getattr(_window(), name)("ms")._step
        assert isinstance(step, WindowStep)
        assert (step.id, step.columns) == (name, ("page", "window_start", "window_end", "ms", "at"))
        assert words(step) == f"window by page, tumbling 1 minute: {name} ms"
        assert step.computation.to_json()["ascending"] is ascending
