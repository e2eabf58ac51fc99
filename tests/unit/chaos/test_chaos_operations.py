"""Operations under chaos: who should be there meanwhile, and what the checker says about how they ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from lockstep.chaos.actions.operations import RescalePartitions, Restart
from lockstep.chaos.catalogue import chosen
from lockstep.chaos.operations import Asked, complaints_about, shape_of
from lockstep.chaos.planner import Planned, may_begin
from lockstep.chaos.runner import Doing
from lockstep.chaos.sink_contents import SinkContents
from lockstep.chaos.take_overs import Row, TakeOver, rows, table
from lockstep.chaos.vocabulary import Part
from lockstep.connect.protocols import Publication
from lockstep.control.operations.model import Operation, OperationStep, State
from lockstep.control.operations.verbs import JobVerbs
from lockstep.runtime.desired_run import DesiredRun, note_desired
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Entry, Store

S = 1_000_000
SETTINGS = {"run": {"replicas": 2}, "spark": {"conf": {}, "master": "local[1]"}}
ORDER = DesiredRun("counts", "code/1/job.py:job", "hash", "", SETTINGS)
ASKED = Asked(1, ("join", "replace r0", "leave"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(address_in(tmp_path), "counts")
    note_desired(opened, ORDER)
    yield opened
    opened.close()


def ended(*names: str, after_s: int = 50) -> Operation:
    steps = tuple(OperationStep(name, 10 * S) for name in names)
    state: State = "done" if names[-1] == "done" else "rolled-back"
    one = Operation(1, "restart", {}, "chaos", 5 * S, 305 * S, steps=steps, state=state)
    return replace(one, ended_us=after_s * S)


def test_whoever_an_operation_just_replaces_is_not_waited_for(store: Store) -> None:
    assert shape_of(store, 5).settled == {"r0", "r1"}
    verbs = JobVerbs(store, "counts")
    asked = verbs.restart()
    assert shape_of(store, 5).names == {"r0", "r1"}, "nobody has taken it up yet"

    def to(*route: str) -> None:
        verbs.book.update(asked.number, lambda one: one.noted(route[0], 7, state="running", route=route))

    to("join", "replace r0", "replace r1", "leave")
    assert shape_of(store, 5).names == {"r0", "r1", "r2"} and shape_of(store, 5).settled == {"r0", "r1"}
    to("replace r0", "replace r1", "leave")
    assert shape_of(store, 5).names == {"r0", "r1", "r2"} and shape_of(store, 5).settled == {"r1"}
    to("leave")
    assert shape_of(store, 5).names == shape_of(store, 5).settled == {"r0", "r1"}


def test_a_replica_that_is_to_leave_is_not_waited_for(store: Store) -> None:
    note_desired(store, replace(ORDER, settings={**SETTINGS, "run": {"replicas": 3}}))
    verbs = JobVerbs(store, "counts")
    asked = verbs.rescale(replicas=2)
    verbs.book.update(asked.number, lambda one: one.noted("grow", 7, state="running", route=("grow",)))
    assert shape_of(store, 5).names == shape_of(store, 5).settled == {"r0", "r1"}


def test_an_operation_that_was_done_step_by_step_and_in_time_is_well() -> None:
    done = ended("join", "replace r0", "leave", "done")
    assert complaints_about([ASKED], [done], replace(ORDER, generation=2)) == []
    back = ended("join", "withdraw", "rolled-back")
    assert complaints_about([ASKED], [back], ORDER) == []
    at_once = Operation(2, "deactivate", {}, "chaos", 5, 900, state="done")
    assert complaints_about([ASKED], [done, at_once], replace(ORDER, generation=2)) == []


@pytest.mark.parametrize(
    ("kept", "generation", "said"),
    [
        ([], 1, "is lost"),
        ([Operation(1, "restart", {}, "chaos", 5, 900, state="running", route=("join",))], 1, "in phase join"),
        ([ended("join", "replace r0", "replace r0", "leave", "done")], 2, "replace r0 2 times"),
        ([ended("join", "leave", "done")], 2, "instead of"),
        ([ended("replace r0", "withdraw", "rolled-back")], 1, "after the steps"),
        ([ended("join", "replace r0", "leave", "done", after_s=306)], 2, "1 s too late"),
        ([ended("join", "withdraw", "rolled-back", after_s=500)], 1, "too late"),
        ([ended("join", "replace r0", "leave", "done")], 3, "generation 3, and what was done makes 2"),
        ([ended("join", "replace r0", "leave", "done"), replace(ended("done"), number=2)], 2, "nobody has asked"),
    ],
)
def test_one_that_was_lost_late_or_done_twice_is_found(kept: list[Operation], generation: int, said: str) -> None:
    found = complaints_about([ASKED], kept, replace(ORDER, generation=generation))
    assert any(said in one for one in found), found


def test_one_operation_at_a_time_and_anybody_may_be_killed_meanwhile() -> None:
    shape = frozenset({Part.SHAPE})
    assert may_begin(Restart(), [shape], replicas=2) == "the job's shape is taken"
    for name in ("kill-replica", "kill-supervisor", "kill-agent", "stop-and-start", "pause-replica", "deactivate"):
        assert may_begin(chosen([name])[0], [shape], replicas=2) is None, name
    for name in ("fail-store", "fill-disk"):
        assert may_begin(chosen([name])[0], [shape], replicas=2) == "the job's shape is taken"
        assert may_begin(RescalePartitions(), [chosen([name])[0].takes], replicas=2) is not None


class Ledger:
    """Eight sealed epochs, and one take-over."""

    def entries(self, first: int, last: int) -> list[Entry]:
        return [Entry(epoch, 0, {}) for epoch in range(8)]

    def events(self, limit: int) -> list[tuple[int, int, str, str, str]]:
        return [(1, 12 * S, "replica-adopted", "r0", "")]


def test_an_epoch_that_is_missing_in_one_sink_or_twice_in_another_counts_for_the_kill_before_it() -> None:
    doing = Doing(Planned(1, 0.0, "restart", "1/1"), Restart(), over_us=15 * S)
    kills = [TakeOver(1, "restart", "join", 1, 10 * S, doing), TakeOver(1, "restart", "leave", 4, 20 * S, doing)]

    def held(name: str, *epochs: int) -> SinkContents:
        return SinkContents(name, tuple(Publication(epoch, "d", 1, "r0.1", "v") for epoch in epochs), {})

    # Epoch 7 was sealed while the job was stopped.
    contents = [held("a", 0, 1, 2, 4, 5, 6), held("b", 0, 1, 2, 3, 4, 5, 5, 6)]
    made = rows(kills, cast("Store", Ledger()), [ended("join", "leave", "done")], contents, [])
    assert [(one.epochs, one.lost, one.repeated) for one in made] == [(3, 1, 0), (3, 0, 1)]
    assert [one.taken_over_s for one in made] == [2.0, None]


def test_the_table_says_what_was_lost_and_who_never_took_over() -> None:
    rows = [
        Row(1, "restart", "join", 2.0, 0.5, "done", 40, 0, 0),
        Row(2, "upgrade", "leave", None, 9.0, "lost", 3, 2, 1),
    ]
    said = table(rows).splitlines()
    assert said[-1].startswith("2 kills of the coordinator in 2 operations: 1 done, 1 lost, 2 epochs lost, 1 repeated")
    assert "never" in said[2]
