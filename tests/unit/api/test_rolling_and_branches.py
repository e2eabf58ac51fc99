"""Rolling results, distinct, branches and explode as a user writes them: which steps they become, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.errors import LockstepError
from lockstep.plan.draw import words
from lockstep.plan.fingerprints import differences, fingerprint
from lockstep.plan.rolling import RollingAggregate
from lockstep.plan.steps import Aggregate


def _calls(schema: str = "path string, ms bigint, items array<string>, at timestamp") -> Stream:
    return ls.Job("test").source("calls", ls.journal("calls", schema=schema))


def _refused(code: str, make: Callable[[], object]) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        make()
    assert caught.value.code == code
    return caught.value


@pytest.mark.parametrize(
    ("make", "columns", "aggregate"),
    [
        (lambda keyed: keyed.count(), ("path", "count"), "count(*)"),
        (lambda keyed: keyed.count(as_="n"), ("path", "n"), "count(*)"),
        (lambda keyed: keyed.sum("ms"), ("path", "ms"), "sum(ms)"),
        (lambda keyed: keyed.sum(total="ms * 2"), ("path", "total"), "sum(ms * 2)"),
        (lambda keyed: keyed.min(F.col("ms")), ("path", "ms"), "min(ms)"),
        (lambda keyed: keyed.max((F.col("ms") + 1).alias("most")), ("path", "most"), "max(ms + 1)"),
    ],
)
def test_short_forms_are_native_aggregations(make: Any, columns: tuple[str, ...], aggregate: str) -> None:
    made = make(_calls().key_by("path"))
    assert made.columns == columns
    assert isinstance(made._step, Aggregate)
    assert [str(value) for _, value in made._step.aggregates] == [aggregate]


def test_a_result_per_record_is_computed_by_lockstep_with_inputs_computed_by_spark() -> None:
    made = _calls().key_by("path").agg(n=F.count("*"), twice=F.sum(F.col("ms") * 2), last=F.last("ms"), per_record=True)
    step = made._step
    assert isinstance(step, RollingAggregate)
    assert made.columns == ("path", "n", "twice", "last")
    assert [str(value) for _, value in step.computed(0)] == ["ms * 2"]
    assert words(step) == (
        "aggregate n = count(*), twice = sum(ms * 2), last = last(ms) by path, a result for each record"
    )


@pytest.mark.parametrize(
    "value", [F.max_by("path", "ms"), "min_by(path, ms)", F.first("ms"), F.collect_list("ms"), "stddev(ms)"]
)
def test_what_minds_the_order_of_records_is_added_up_in_order_and_gives_a_result_for_each_epoch(value: Any) -> None:
    step = _calls().key_by("path").agg(n=F.count("*"), value=value)._step
    assert isinstance(step, RollingAggregate) and not step.per_record
    with pytest.raises(LockstepError, match="LS0170") as caught:
        _calls().key_by("path").agg(value=F.coalesce(F.max_by("path", "ms"), F.lit("none")))
    assert "max_by" in caught.value.why and ".with_columns(...)" in caught.value.hint


def test_results_of_reduce_have_the_keys_first_then_the_other_columns() -> None:
    keyed = _calls().key_by("at", half="ms / 2")
    assert keyed.reduce(lambda one, two: two).columns == ("at", "half", "path", "ms", "items")
    assert keyed.max_by("ms", per_record=True).columns == ("at", "half", "path", "ms", "items")
    assert keyed.fold(0, lambda total, call: total + 1, schema="n bigint").columns == ("at", "half", "n")


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("LS0170", lambda calls: calls.key_by("path").agg(mean=F.sum("ms") / F.count("*"), per_record=True)),
        ("LS0107", lambda calls: calls.key_by("path").sum("sec")),
        ("LS0107", lambda calls: calls.key_by("path").min_by("sec")),
        ("LS0107", lambda calls: calls.key_by("path").agg(s=F.sum(F.col("sec") + 1), per_record=True)),
        ("LS0132", lambda calls: calls.key_by("path").sum()),
        ("LS0132", lambda calls: calls.key_by("path").max("ms * 2")),
        ("LS0132", lambda calls: calls.key_by("path").fold(0, lambda a, b: a, schema="path string")),
        ("LS0163", lambda calls: calls.key_by("path").reduce(lambda one: one)),
        ("LS0163", lambda calls: calls.key_by("path").reduce("ms")),
        ("LS0163", lambda calls: calls.key_by("path").fold(lambda a, b: a, 0, schema="n bigint")),
        ("LS0131", lambda calls: calls.key_by("path").fold(0, lambda a, b: a)),
        ("LS0204", lambda calls: calls.key_by("path").min_by(F.rand())),
        ("LS0173", lambda calls: calls.distinct("path")),
        ("LS0173", lambda calls: calls.distinct("path", within="0 seconds")),
        ("LS0107", lambda calls: calls.distinct("road", within="1 minute")),
        ("LS0174", lambda calls: calls.split()),
        ("LS0174", lambda calls: calls.split(rest="ms > 1")),
        ("LS0174", lambda calls: calls.split(fast="ms < 1").slow),
        ("LS0107", lambda calls: calls.split(fast="sec")),
        ("LS0175", lambda calls: calls.explode()),
        ("LS0175", lambda calls: calls.explode("split(path, '/')")),
        ("LS0175", lambda calls: calls.explode(a="items", b="items")),
        ("LS0175", lambda calls: calls.explode("items", as_=("a", "b", "c"))),
        ("LS0132", lambda calls: calls.explode(ms="items")),
        ("LS0107", lambda calls: calls.explode("things")),
    ],
)
def test_what_does_not_fit_is_refused_with_a_code_of_its_own(code: str, make: Callable[[Stream], object]) -> None:
    _refused(code, lambda: make(_calls()))


def test_a_mistyped_branch_is_answered_with_the_nearest_one() -> None:
    error = _refused("LS0174", lambda: _calls().split(fast="ms < 100").fats)
    assert "fast, rest" in error.why
    assert "fast" in error.hint


def test_branches_are_filters_of_which_a_record_fits_one() -> None:
    branches = _calls().split(fast="ms < 100", slow=lambda call: call.ms < 1000)
    assert words(branches.fast._step) == "filter coalesce(ms < 100, false)"
    assert words(branches["slow"]._step) == "filter NOT coalesce(ms < 100, false) AND coalesce(ms < 1000, false)"
    assert words(branches.rest._step) == "filter NOT coalesce(ms < 100, false) AND NOT coalesce(ms < 1000, false)"
    assert branches.rest is branches["rest"]
    assert repr(branches) == "<branches fast, slow, rest>"
    assert not hasattr(branches, "_nothing")


def test_two_splits_of_one_stream_have_steps_of_their_own() -> None:
    calls = _calls()
    ids = [calls.split(fast="ms < 1").fast._step.id for _ in range(2)]
    assert ids == ["split_fast", "split_fast_2"]
    assert calls.split({"fast": "ms < 1"}, name="speed").rest._step.id == "speed_rest"


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda calls: calls.explode("items"), ("path", "ms", "items", "at")),
        (lambda calls: calls.explode("items", as_="item"), ("path", "ms", "item", "at")),
        (lambda calls: calls.explode(item="items"), ("path", "ms", "item", "at")),
        (lambda calls: calls.explode(part="split(path, '/')"), ("path", "ms", "items", "at", "part")),
        (lambda calls: calls.explode("items", as_=("k", "v")), ("path", "ms", "k", "v", "at")),
    ],
)
def test_elements_take_the_place_of_a_column_or_come_last(make: Any, columns: tuple[str, ...]) -> None:
    assert make(_calls()).columns == columns


def test_types_are_known_without_spark_where_they_can_be() -> None:
    calls = _calls()
    hints = [
        calls.explode("items", as_="item")._step.schema_hint,
        calls.distinct("path", within="1 minute")._step.schema_hint,
        calls.key_by("path").fold(0, lambda a, b: a, schema="n bigint")._step.schema_hint,
        calls.key_by("at").reduce(lambda a, b: b)._step.schema_hint,
    ]
    assert [hint and hint.ddl() for hint in hints] == [
        "path string, ms bigint, item string, at timestamp",
        "path string, ms bigint, items array<string>, at timestamp",
        "path string, n bigint",
        "at timestamp, path string, ms bigint, items array<string>",
    ]
    assert calls.key_by(half="ms / 2").fold(0, lambda a, b: a, schema="n bigint")._step.schema_hint is None


def test_distinct_says_which_clock_it_follows() -> None:
    calls = _calls()
    assert (
        words(calls.distinct(within="1 minute")._step)
        == "distinct by path, ms, items, at within 1 minute of epoch time"
    )
    timed = calls.event_time("at").distinct("path", within="1 minute")
    assert words(timed._step) == "distinct by path within 1 minute of event time"


def test_a_changed_initial_value_or_bound_makes_another_state() -> None:
    def plan(initial: int, within: str) -> dict[str, Any]:
        job = ls.Job("test")
        calls = job.source("calls", ls.journal("calls", schema="path string, ms bigint"))
        once = calls.distinct("path", within=within)
        once.to(ls.files("once"))
        calls.key_by("path").fold(initial, max, schema="n bigint").to(ls.files("out"))
        graph = job.graph()
        return fingerprint(graph.steps, graph.stages, graph.buckets)

    same = plan(0, "1 minute")
    assert differences(same, plan(0, "1 minute")) == []
    assert any("initial" in words for words in differences(same, plan(1, "1 minute")))
    assert any("within" in words for words in differences(same, plan(0, "2 minutes")))
