"""``distinct`` and ``dedup`` over random epochs, against a slow reading of what they promise."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep as ls
from lockstep.errors import PlanError
from lockstep.keyed.distinct import DistinctOperator, LastOperator
from lockstep.plan.distinct import Distinct
from lockstep.plan.draw import words
from lockstep.plan.encode import step_json
from lockstep.plan.event_times import distance_us
from lockstep.plan.expression import Column
from tests.unit.keyed.driving_for_keyed import Epoch, Given, cut, drive
from tests.unit.plan.fakes_for_plan import source

SCHEMA = pa.schema([("id", pa.string()), ("place", pa.int64())])
WITHIN_US = 10
TIMES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30)
CUTS = st.lists(st.integers(0, 30), max_size=4)


def _records(given: list[tuple[str, int]]) -> list[Given]:
    return [Given((key,), (key, place), at_us, ("s", "0", place)) for place, (key, at_us) in enumerate(given)]


def _event_time() -> DistinctOperator:
    return DistinctOperator(SCHEMA, WITHIN_US, by_event_time=True)


def _reference(records: list[Given]) -> list[int]:
    """Which records pass, by their places: compared with everything that passed before, nothing forgotten."""
    passed: list[Given] = []
    for record in records:
        assert record.at_us is not None
        if all(one.key != record.key or abs(one.at_us - record.at_us) >= WITHIN_US for one in passed):  # type: ignore[operator]
            passed.append(record)
    return [record.values[1] for record in passed]


@settings(max_examples=60, deadline=None)
@given(TIMES, CUTS)
def test_the_first_of_each_key_passes_wherever_epochs_are_cut(given: list[tuple[str, int]], cuts: list[int]) -> None:
    records = _records(sorted(given, key=lambda one: one[1]))
    epochs = []
    seen_us = 0
    for epoch in cut(records, cuts):
        epochs.append(Epoch(epoch.records, watermark_us=seen_us))
        seen_us = max([seen_us, *(record.at_us or 0 for record in epoch.records)])
    emissions, _ = drive(_event_time(), epochs)
    assert sorted(emission.values[1] for emission in emissions) == sorted(_reference(records))


@settings(max_examples=60, deadline=None)
@given(TIMES, CUTS)
def test_disorder_up_to_the_bound_behind_the_watermark_changes_nothing_but_the_order(
    given: list[tuple[str, int]], cuts: list[int]
) -> None:
    """Forgetting is never seen: against a reference that remembers everything and drops what comes too late."""
    records = _records(given)
    epochs, in_time, seen_us = [], [], 0
    for epoch in cut(records, cuts):
        epochs.append(Epoch(epoch.records, watermark_us=seen_us))
        ordered = sorted(epoch.records, key=lambda record: record.at_us or 0)
        in_time += [record for record in ordered if (record.at_us or 0) + WITHIN_US > seen_us]
        seen_us = max([seen_us, *(record.at_us or 0 for record in epoch.records)])
    emissions, _ = drive(_event_time(), epochs)
    assert sorted(emission.values[1] for emission in emissions) == sorted(_reference(in_time))


def test_a_key_is_forgotten_when_nothing_can_come_near_it_any_more() -> None:
    first = Epoch([Given(("a",), ("a", 0), 100), Given(("b",), ("b", 0), 115)], watermark_us=0)
    _, kept = drive(_event_time(), [first, Epoch([], watermark_us=119)])
    assert kept == {("a",): [100], ("b",): [115]}
    _, kept = drive(_event_time(), [first, Epoch([], watermark_us=120)])
    assert kept == {("b",): [115]}


def test_without_event_time_the_epoch_s_time_counts() -> None:
    operator = DistinctOperator(SCHEMA, WITHIN_US, by_event_time=False)
    epochs = [
        Epoch([Given(("a",), ("a", 1)), Given(("a",), ("a", 2))], None, 100),
        Epoch([Given(("a",), ("a", 3))], None, 109),
        Epoch([Given(("a",), ("a", 4))], None, 110),
        Epoch([], None, 120),
    ]
    emissions, kept = drive(operator, epochs)
    assert [emission.values[1] for emission in emissions] == [1, 4]
    assert kept == {}


def test_records_without_a_time_and_far_too_late_ones_are_dropped() -> None:
    epochs = [
        Epoch([Given(("a",), ("a", 1), None)], 50),
        Epoch([Given(("a",), ("a", 2), 40)], 50),
        Epoch([Given(("a",), ("a", 3), 41)], 50),
    ]
    emissions, _ = drive(_event_time(), epochs)
    assert [emission.values[1] for emission in emissions] == [3]


def _last() -> LastOperator:
    return LastOperator(SCHEMA, WITHIN_US, by_event_time=True)


def _not_followed(records: list[Given]) -> list[int]:
    """The places of the records that none of their key follows within the bound, by time and then by place."""
    return [
        one.values[1]
        for one in records
        if not any(
            other.key == one.key
            and (one.at_us, one.values[1]) < (other.at_us, other.values[1])
            and (other.at_us or 0) - (one.at_us or 0) < WITHIN_US
            for other in records
        )
    ]


@settings(max_examples=100, deadline=None)
@given(TIMES, CUTS, st.integers(0, 15))
def test_the_last_of_each_key_passes_wherever_epochs_are_cut(
    given: list[tuple[str, int]], cuts: list[int], out_of_order_us: int
) -> None:
    """Records may be out of order by as much as the watermark waits for."""
    arranged = sorted(enumerate(given), key=lambda one: (one[1][1] - (one[0] * 7) % (out_of_order_us + 1), one[0]))
    records = _records([one for _, one in arranged])
    epochs, seen_us = [], 0
    for epoch in cut(records, cuts):
        epochs.append(Epoch(epoch.records, watermark_us=seen_us - out_of_order_us))
        seen_us = max([seen_us, *(record.at_us or 0 for record in epoch.records)])
    emissions, kept = drive(_last(), [*epochs, Epoch([], watermark_us=10_000)])
    assert sorted(emission.values[1] for emission in emissions) == sorted(_not_followed(records))
    times = {record.values[1]: record.at_us or 0 for record in records}
    assert all(emission.at_us == times[emission.values[1]] + WITHIN_US - 1 for emission in emissions)
    assert kept == {}


@settings(max_examples=100, deadline=None)
@given(TIMES, CUTS)
def test_what_comes_late_never_makes_two_of_one(given: list[tuple[str, int]], cuts: list[int]) -> None:
    """The watermark waits for nobody here. What comes behind it may be dropped; two near each other never pass."""
    records = _records(given)
    epochs, seen_us = [], 0
    for epoch in cut(records, cuts):
        epochs.append(Epoch(epoch.records, watermark_us=seen_us))
        seen_us = max([seen_us, *(record.at_us or 0 for record in epoch.records)])
    emissions, kept = drive(_last(), [*epochs, Epoch([], watermark_us=10_000)])
    passed = [records[emission.values[1]] for emission in emissions]
    assert len({record.values for record in passed}) == len(passed)
    for one in passed:
        near = [other for other in passed if other.key == one.key and abs(other.at_us - one.at_us) < WITHIN_US]
        assert near == [one]
    assert kept == {}


def test_a_record_that_a_forgotten_one_follows_does_not_pass() -> None:
    """The one at 8 has given way to the one at 17, and still stands after the one at 0 that comes last."""
    epochs = [
        Epoch([Given(("a",), ("a", 1), 8, ("s", "0", 1)), Given(("a",), ("a", 2), 17, ("s", "0", 2))], 0),
        Epoch([Given(("a",), ("a", 3), 0, ("s", "0", 3))], 5),
        Epoch([], 10_000),
    ]
    emissions, _ = drive(_last(), epochs)
    assert [emission.values[1] for emission in emissions] == [2]


def test_the_last_by_epoch_time_comes_out_when_its_time_is_over() -> None:
    operator = LastOperator(SCHEMA, WITHIN_US, by_event_time=False)
    epochs = [
        Epoch([Given(("a",), ("a", n), None, ("s", "0", n)) for n in (1, 2)], None, 100),
        Epoch([Given(("a",), ("a", 3), None, ("s", "0", 3))], None, 109),
        Epoch([], None, 118),
        Epoch([Given(("a",), ("a", 4), None, ("s", "0", 4))], None, 119),
        Epoch([], None, 130),
    ]
    emissions, kept = drive(operator, epochs)
    assert [(emission.epoch, emission.values[1], emission.at_us) for emission in emissions] == [
        (3, 3, None),
        (4, 4, None),
    ]
    assert kept == {}


def test_dedup_is_distinct_with_a_choice() -> None:
    saved = ls.Job("dedup").source("saved", ls.journal("saved", schema="page string, at timestamp")).event_time("at")
    first, last = (saved.dedup("page", keep=keep, within="1 minute")._step for keep in ("first", "last"))
    assert words(first) == words(saved.distinct("page", within="1 minute")._step)
    assert words(last) == "the last of what is distinct by page within 1 minute of event time"
    assert [step_json(step).get("keep") for step in (first, last)] == [None, "last"]
    assert [distance_us("at", step) for step in (first, last)] == [0, 1 - 60_000_000]
    with pytest.raises(PlanError, match=r"LS0173.*'any'"):
        saved.dedup("page", keep="any", within="1 minute")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"LS0173.*within="):
        saved.dedup("page", keep="last")


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="LS0173"):
        Distinct("distinct", (source(),), ((("user", Column("user")),),), 0)
