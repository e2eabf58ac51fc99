"""``distinct`` over random epochs, against a slow reading of what it promises."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import PlanError
from lockstep.keyed.distinct import DistinctOperator
from lockstep.plan.distinct import Distinct
from lockstep.plan.expression import Column
from tests.unit.keyed.driving_for_keyed import Epoch, Given, cut, drive
from tests.unit.plan.fakes_for_plan import source

SCHEMA = pa.schema([("id", pa.string()), ("place", pa.int64())])
WITHIN_US = 10
TIMES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30)
CUTS = st.lists(st.integers(0, 30), max_size=4)


def _records(given: list[tuple[str, int]]) -> list[Given]:
    return [Given((key,), (key, place), at_us) for place, (key, at_us) in enumerate(given)]


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


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="LS0173"):
        Distinct("distinct", (source(),), ((("user", Column("user")),),), 0)
