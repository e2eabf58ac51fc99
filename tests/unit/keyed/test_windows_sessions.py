"""Sessions and count windows against models that look at whole histories; and cuts that change nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.keyed.accumulators import Totals
from lockstep.keyed.codec import time_us
from lockstep.keyed.windows.assigners import Assigner, Regular, Sessions
from lockstep.keyed.windows.contents import Added
from lockstep.keyed.windows.counts import CountOperator
from lockstep.keyed.windows.operator import WindowOperator
from lockstep.keyed.windows.results import Results
from lockstep.plan.accumulated import accumulated
from lockstep.plan.expression import call
from lockstep.plan.triggers import AT_WATERMARK, Firing, Trigger
from tests.unit.keyed.turns_for_windows import (
    KEYS,
    Epoch,
    Event,
    Keys,
    Result,
    any_epochs,
    cut,
    disordered,
    listing,
    results_of,
)

GAP = 5
OUT_OF_ORDER = 4
Cuts = st.lists(st.integers(0, 25), max_size=6)


@settings(max_examples=60, deadline=None)
@given(events=disordered(OUT_OF_ORDER), cuts=Cuts)
def test_sessions_are_runs_of_records_without_a_longer_gap(events: list[Event], cuts: list[int]) -> None:
    operator = WindowOperator(Sessions(GAP), AT_WATERMARK, 0, "event", *listing())
    results, late, left = results_of(operator, cut(events, cuts, OUT_OF_ORDER, 7))
    assert late == []
    assert (left.cells, left.timers) == ({}, {})
    found = sorted(((r.key, r.start_us, r.end_us, r.values) for r in results), key=repr)
    assert found == sorted(_runs(events), key=repr)
    assert {result.timing for result in results} <= {"on_time"}


def _runs(events: Sequence[Event]) -> list[tuple[str | None, int, int, tuple[int, ...]]]:
    runs = []
    for key in {event.key for event in events}:
        members = sorted((event.at_us or 0, event.value) for event in events if event.key == key)
        start = 0
        for place in range(1, len(members) + 1):
            if place == len(members) or members[place][0] - members[place - 1][0] > GAP:
                run = members[start:place]
                runs.append((key, run[0][0], run[-1][0] + GAP, tuple(value for _, value in run)))
                start = place
    return runs


@settings(max_examples=60, deadline=None)
@given(epochs=any_epochs(), lateness=st.sampled_from([0, 8, 25]))
def test_sessions_with_late_records_give_what_the_model_gives(epochs: list[Epoch], lateness: int) -> None:
    operator = WindowOperator(Sessions(GAP), AT_WATERMARK, lateness, "event", *listing())
    results, late, left = results_of(operator, epochs)
    model = SessionModel(lateness)
    for number, epoch in enumerate(epochs):
        model.epoch(number, epoch)
    assert sorted(results, key=repr) == sorted(model.results, key=repr)
    assert sorted(late, key=repr) == sorted(model.late, key=repr)
    assert left.cells == {}


class SessionModel:
    """Keeps plain records and finds the sessions among them from scratch, again and again."""

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self.live: list[Event] = []
        self.told: set[tuple[str | None, int, int]] = set()
        self.results: list[Result] = []
        self.late: list[tuple[int, Event]] = []

    def epoch(self, number: int, epoch: Epoch) -> None:
        now = float("-inf") if epoch.watermark_us is None else epoch.watermark_us
        for run in _runs(self.live):
            if run[2] <= now and run[:3] not in self.told:
                self._tell(number, run, "on_time")
            if run[2] + self.lateness <= now:
                self.live = [one for one in self.live if one.value not in run[3]]
        changed: set[int] = set()
        for event in sorted(epoch.events, key=lambda one: (one.at_us is not None, one.at_us or 0)):
            if event.at_us is None or self._run_of(event, [*self.live, event])[2] + self.lateness <= now:
                self.late.append((number, event))
                continue
            self.live.append(event)
            changed.add(event.value)
        for run in _runs(self.live):
            if changed & set(run[3]) and run[2] <= now:
                self._tell(number, run, "late")

    def _run_of(self, event: Event, events: list[Event]) -> tuple[str | None, int, int, tuple[int, ...]]:
        return next(run for run in _runs(events) if event.value in run[3])

    def _tell(self, number: int, run: tuple[str | None, int, int, tuple[int, ...]], timing: str) -> None:
        self.told.add(run[:3])
        self.results.append(Result(number, *run, timing))


@settings(max_examples=40, deadline=None)
@given(
    events=disordered(OUT_OF_ORDER),
    cuts=st.tuples(Cuts, Cuts),
    assigner=st.sampled_from([Regular(10, 10, 0), Regular(12, 4, 1), Sessions(GAP)]),
)
def test_the_same_records_cut_into_other_epochs_give_the_same_final_results(
    events: list[Event], cuts: tuple[list[int], list[int]], assigner: Assigner
) -> None:
    operator = WindowOperator(assigner, AT_WATERMARK, 0, "event", *listing())
    one, two = (results_of(operator, cut(events, at, OUT_OF_ORDER, 7))[0] for at in cuts)
    assert sorted((r[1:5] for r in one), key=repr) == sorted((r[1:5] for r in two), key=repr)
    bounds = [(r.key, r.start_us, r.end_us) for r in one]
    assert len(set(bounds)) == len(bounds), "each window gives one result"


@settings(max_examples=30, deadline=None)
@given(events=disordered(OUT_OF_ORDER), cuts=Cuts)
def test_totals_of_sessions_that_grow_together_are_those_of_all_their_records(
    events: list[Event], cuts: list[int]
) -> None:
    schema = pa.schema([("key", pa.string()), ("value", pa.int64()), ("at", pa.int64())])
    columns = [accumulated(call(name, "value"), name, "") for name in ("count", "sum", "max")]
    totals = Totals(columns, schema)
    trigger = Trigger(early=Firing(count=2))
    operator = WindowOperator(Sessions(GAP), trigger, 0, "event", Added(totals), Results(KEYS, totals.schema))
    keys, found = Keys(operator), {}
    for epoch in cut(events, cuts, OUT_OF_ORDER, 7):
        for _, (key, start, end, *values), at_us in keys.epoch(epoch):
            assert at_us == time_us(end) - 1
            found[key, time_us(start), time_us(end)] = tuple(values)
    wanted = {run[:3]: (len(run[3]), sum(run[3]), max(run[3])) for run in _runs(events)}
    assert {bounds: found[bounds] for bounds in wanted} == wanted


@settings(max_examples=40, deadline=None)
@given(epochs=any_epochs(), size=st.integers(1, 6), every=st.integers(1, 6))
def test_count_windows_are_slices_of_the_order_in_which_records_come(
    epochs: list[Epoch], size: int, every: int
) -> None:
    every = min(size, every)
    results, _, _ = results_of(CountOperator(size, every, *listing()), epochs)
    wanted = []
    for key in ("a", None):
        order = [
            (number, event)
            for number, epoch in enumerate(epochs)
            for event in sorted(epoch.events, key=lambda one: (one.at_us is not None, one.at_us or 0))
            if event.key == key
        ]
        for end in range(every, len(order) + 1, every):
            members = [event for _, event in order[max(0, end - size) : end]]
            values = [one.value for one in sorted(members, key=lambda one: (one.at_us is not None, one.at_us or 0))]
            wanted.append(Result(order[end - 1][0], key, None, None, tuple(values), "on_time"))
    assert sorted(results, key=repr) == sorted(wanted, key=repr)
