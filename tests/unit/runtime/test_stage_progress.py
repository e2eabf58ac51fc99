"""The stages of a replica go on together; event time passes from one to the next; a bounded run comes to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.clock import END_US
from lockstep.config import RunSettings
from lockstep.connect.protocols import Publication
from lockstep.runtime.decide.marks import TimeStep, is_over, next_marks, time_steps
from lockstep.runtime.decide.pacing import COLD_EPOCHS
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.store.protocols import Entry, Holder, Published
from lockstep.store.sqlite_store import open_store

FOLLOWER = TimeStep("stage-agg", ("stage-agg",), 0, None, follows=(("time", 5),))
FIRST = TimeStep("time", ("events",), 5, None)


class Asked:
    """A sealer that only notes what it is asked."""

    def __init__(self) -> None:
        self.ready_for: list[int] = []
        self.limits: list[int | None] = []

    def ready(self, epoch: int, observed: Any, limit: int | None = None) -> None:
        self.ready_for.append(epoch)
        self.limits.append(limit)


def _publication(epoch: int, by: str, published_us: int = 0) -> Publication:
    return Publication(epoch, "aa", 1, by, "v1", published_us=published_us)


def test_an_epoch_counts_when_every_stage_has_computed_it(tmp_path: Any) -> None:
    store, sealer, reports = open_store(tmp_path, "job"), Asked(), []
    progress = StageProgress(store, Holder("r0", 1), {1: 4, 2: 3}, RunSettings(), sealer, lambda: reports.append(1))
    assert progress.at.epoch == 3
    progress.take_up()
    progress.done(1, Entry(5, 100, {}), [_publication(5, "r0.1")])
    assert (progress.at.epoch, progress.newest_epoch, sealer.ready_for, reports) == (3, 5, [4], [])
    progress.done(2, Entry(4, 50, {}), [])
    progress.done(2, Entry(5, 100, {}), [])
    assert (progress.at.epoch, sealer.ready_for, len(reports)) == (5, [4, 5, 6], 2)
    assert [one.epoch for one in store.published(0, 9)] == [5]
    store.close()


def test_what_a_replica_published_before_it_died_is_noted_by_another_an_epoch_later(tmp_path: Any) -> None:
    store = open_store(tmp_path, "job")
    progress = StageProgress(store, Holder("r0", 2), {1: 2}, RunSettings(), Asked(), lambda: None)
    progress.done(1, Entry(3, 50, {}), [_publication(3, "r1.7")])
    noted = Published(3, "r1", 90, 0, None, None, 0.1)
    store.add_published(noted)
    progress.done(1, Entry(4, 100, {}), [_publication(4, "r1.7", published_us=140)])
    assert store.published(0, 9) == [noted], "what its publisher noted stays, and it has the time to note the next"
    progress.done(1, Entry(5, 150, {}), [_publication(5, "r0.2")])
    assert [(one.epoch, one.replica) for one in store.published(0, 9)] == [(3, "r1"), (4, "r1"), (5, "r0")]
    assert store.published(4, 4)[0].published_us == 140, "when it was published, not when it was noted"
    store.close()


def test_nobody_is_slowed_down_by_the_first_epochs_of_a_new_process(tmp_path: Any) -> None:
    store, now_s = open_store(tmp_path, "job"), [0.0]
    progress = StageProgress(
        store, Holder("r0", 2), {1: 9}, RunSettings(), Asked(), lambda: None, elapsed_s=lambda: now_s[0]
    )
    told = []
    for epoch in range(10, 12 + COLD_EPOCHS):
        progress.begun(epoch)
        now_s[0] += 3.0
        progress.done(1, Entry(epoch, 50, {}), [])
        told.append(progress.at.epoch_s)
    assert told[:COLD_EPOCHS] == [0.0] * COLD_EPOCHS and min(told[COLD_EPOCHS:]) >= 3.0
    store.close()


def test_cold_epochs_do_not_lower_the_record_limit_and_warm_ones_do(tmp_path: Any) -> None:
    store, sealer, now = open_store(tmp_path, "job"), Asked(), [0.0]
    settings = RunSettings(records_per_epoch_start=1000)
    progress = StageProgress(store, Holder("r0", 1), {1: -1}, settings, sealer, lambda: None, elapsed_s=lambda: now[0])
    for epoch in range(COLD_EPOCHS + 3):
        progress.begun(epoch)
        now[0] += 5.0
        progress.done(1, Entry(epoch, 0, {}, records=1000), [])
    assert sealer.limits[:COLD_EPOCHS] == [1000] * COLD_EPOCHS
    assert sealer.limits[-1] is not None and sealer.limits[-1] < 1000
    store.close()


def test_time_reaches_a_later_stage_three_epochs_after_the_stage_before() -> None:
    entry: Entry | None = None
    seen = []
    for epoch, observed in enumerate([100, 200, 300, 400, 500, 600]):
        marks = next_marks((FIRST, FOLLOWER), entry, {"time": observed - 100 if epoch else None}, 0, {})
        entry = Entry(epoch, 0, {}, marks)
        seen.append((marks["time"], marks["stage-agg"]))
    assert seen == [(None, None), (100, None), (200, None), (300, None), (400, 95), (500, 195)]


def test_at_the_end_of_the_input_event_time_ends_in_every_stage_in_turn() -> None:
    entry = Entry(7, 0, {}, {"time": 50, "stage-agg": 10})
    seen = []
    for _ in range(4):
        marks = next_marks((FIRST, FOLLOWER), entry, {}, 0, {}, ending=1)
        entry = replace(entry, epoch=entry.epoch + 1, marks=marks)
        seen.append((marks["time"], marks["stage-agg"]))
    assert seen == [(END_US, 10), (END_US, 10), (END_US, 45), (END_US, END_US - 5)]


def test_an_event_time_of_a_later_stage_ends_when_the_stages_before_it_are_through() -> None:
    job = ls.Job("anew")
    spec = ls.journal("events", schema="user string, at timestamp")
    windows = job.source("events", spec).event_time("at", name="first").window(ls.tumbling("1 s")).agg(n=F.count("*"))
    anew = windows.event_time("window_end", name="second")
    anew.window(ls.tumbling("1 hour")).agg(n=F.sum("n")).to(ls.files("out"))
    steps = time_steps(job.graph())
    entry = Entry(7, 0, {}, {"first": 50, "second": 10})
    ended = [next_marks(steps, entry, {}, 0, {}, ending=quiet)["second"] == END_US for quiet in (1, 4, 5)]
    assert ended == [False, False, True]
    assert not is_over(replace(entry, ending=8), steps)


def test_unmatched_records_of_an_outer_join_are_not_late_in_the_stage_after_it() -> None:
    job = ls.Job("outer")
    schema = "k string, at timestamp"
    left = job.source("a", ls.journal("a", schema=schema)).event_time("at", name="left")
    right = job.source("b", ls.journal("b", schema=schema)).rename(at="at_b").event_time("at_b", name="right")
    joined = left.join(right, on="k", between=("-2 seconds", "9 seconds"), how="left", name="joined")
    joined.window(ls.tumbling("1 s")).agg(n=F.count("*")).to(ls.files("out"))
    follower = next(step for step in time_steps(job.graph()) if step.follows)
    assert follower.follows == (("left", 9_000_000), ("right", 9_000_000))


@pytest.mark.parametrize(("ending", "over"), [(0, False), (4, False), (8, False), (9, True)])
def test_a_run_is_over_when_the_end_has_come_through_all_stages(ending: int, over: bool) -> None:
    assert is_over(Entry(9, 0, {}, ending=ending), (FIRST, FOLLOWER)) is over


def test_a_journal_between_stages_follows_all_times_of_the_stage_that_writes_it() -> None:
    job = ls.Job("times")
    spec = "user string, at timestamp"
    left = job.source("a", ls.journal("a", schema=spec)).event_time("at", name="left", out_of_order="1 second")
    right = job.source("b", ls.journal("b", schema=spec)).event_time("at", name="right")
    windows = left.key_by("user").window(ls.tumbling("1 s")).agg(n=F.count("*"), name="windows")
    windows.window(ls.tumbling("1 hour")).agg(n=F.count("*")).to(ls.files("one"))
    right.to(ls.files("two"))
    follower = next(step for step in time_steps(job.graph()) if step.follows)
    assert follower == TimeStep(
        "stage-windows", ("stage-windows",), 0, None, follows=(("left", 1_000_000), ("right", 0))
    )
