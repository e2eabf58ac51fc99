"""A run that takes what is there: what that is, when it is over, and that the next run goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from lockstep.config import RunSettings
from lockstep.connect.protocols import Place
from lockstep.connect.registry import source_side
from lockstep.connect.specs import files, journal, rate
from lockstep.plan.schema import parse_schema
from lockstep.plan.specs import SourceSpec
from lockstep.runtime.decide.marks import QUIET_EPOCHS, TimeStep, is_caught_up
from lockstep.runtime.decide.proposing import Proposal, Proposer
from lockstep.runtime.desired_run import RUN_BEGAN
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.protocols import Entry, Store
from lockstep.store.sqlite_store import open_store

S = 1_000_000
START_US = 1_700_000_000 * S
STEPS = (TimeStep("event_time", ("numbers",), 2 * S, None),)
SCHEMA = parse_schema("n bigint")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path / ".lockstep", "job")


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = open_store(place.home, place.job)
    yield opened
    opened.close()


@pytest.fixture
def numbers(place: Place) -> Iterator[SqliteJournal]:
    opened = open_journal(place.home, "numbers", SCHEMA)
    yield opened
    opened.close()


def _put(numbers: SqliteJournal, count: int) -> None:
    numbers.append(batch_from_pylist([{"n": n} for n in range(count)], numbers.schema))


class Run:
    """One replica's sealing, epoch by epoch, with a clock that a test moves."""

    def __init__(
        self, store: Store, place: Place, began: str, replica: str = "r0", steps: tuple[TimeStep, ...] = STEPS
    ) -> None:
        store.set_fact(RUN_BEGAN, began)
        settings = RunSettings(epoch_interval_s=0, available_now=True, records_per_epoch_start=4)
        sides = {"numbers": source_side(journal("numbers", schema="n bigint"), place, "numbers")}
        self.holder, self.store, self.now_s = store.begin(replica, pid=1), store, 0.0
        self.proposer = Proposer(
            store, self.holder, sides, steps, settings, lambda: START_US + round(self.now_s * S), lambda: self.now_s
        )

    def next(self) -> Entry | None:
        """The next epoch, sealed; None if nothing is left to be sealed."""
        head = self.store.head()
        epoch = head.epoch + 1 if head else 0
        self.now_s += 1
        self.proposer.ready(epoch, {"event_time": START_US})
        found = self.proposer.look(epoch)
        if found is None:
            return None
        assert isinstance(found, Proposal), found
        return self.store.seal(found.entry, self.holder, found.items)

    def to_the_end(self) -> list[Entry]:
        """All epochs that are left."""
        return list(iter(self.next, None))


def test_a_run_takes_what_was_there_and_ends_although_more_comes(
    store: Store, place: Place, numbers: SqliteJournal
) -> None:
    _put(numbers, 10)
    run = Run(store, place, "1")
    first = run.next()
    assert first is not None and first.cut["numbers"] == {"0": 4}
    _put(numbers, 100)
    rest = run.to_the_end()
    assert [entry.cut["numbers"]["0"] for entry in rest[:3]] == [8, 10, 10]
    assert rest[-1].cut["numbers"] == {"0": 10} and is_caught_up(rest[-1], "1", STEPS)
    assert len([entry for entry in rest if not entry.records]) == QUIET_EPOCHS + 1
    assert {entry.ending for entry in rest} == {0} and rest[-1].marks == {"event_time": START_US}, "time stays"


def test_event_time_of_a_source_that_may_be_idle_stays_too(store: Store, place: Place, numbers: SqliteJournal) -> None:
    _put(numbers, 3)
    steps = (TimeStep("event_time", ("numbers",), 2 * S, S),)
    entries = Run(store, place, "1", steps=steps).to_the_end()
    assert len(entries) > QUIET_EPOCHS
    assert entries[-1].marks == {"event_time": START_US}, "what came meanwhile is for the next run, and not late there"


def test_the_next_run_goes_on_and_takes_what_came_since(store: Store, place: Place, numbers: SqliteJournal) -> None:
    _put(numbers, 3)
    Run(store, place, "1").to_the_end()
    assert [entry.records for entry in Run(store, place, "2").to_the_end() if entry.records] == []
    _put(numbers, 5)
    again = Run(store, place, "3").to_the_end()
    assert [entry.records for entry in again if entry.records] == [4, 1]
    assert again[-1].cut["numbers"] == {"0": 8}


def test_replicas_that_go_on_from_a_killed_run_follow_the_new_one(
    store: Store, place: Place, numbers: SqliteJournal
) -> None:
    _put(numbers, 3)
    left_over = Run(store, place, "1")
    left_over.to_the_end()
    _put(numbers, 2)
    store.set_fact(RUN_BEGAN, "2")
    entries = left_over.to_the_end()
    assert entries[-1].cut["numbers"] == {"0": 5} and is_caught_up(entries[-1], "2", STEPS)


def test_a_replica_that_comes_later_does_not_take_more_once_the_end_is_sealed(
    store: Store, place: Place, numbers: SqliteJournal
) -> None:
    _put(numbers, 3)
    first = Run(store, place, "1")
    assert [entry.records for entry in (first.next(), first.next()) if entry] == [3, 0]
    _put(numbers, 2)
    late = Run(store, place, "1", "r1")
    assert sum(entry.records for entry in late.to_the_end()) == 0


def _files() -> SourceSpec:
    return files("in", schema="n bigint")


def test_files_that_come_later_are_for_the_next_run(store: Store, place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"n": 1}\n')
    os.utime(folder / "a.jsonl", (1, 1))
    side = source_side(_files(), place, "in")
    side.stop_here(START_US)
    (folder / "b.jsonl").write_text('{"n": 2}\n{"n": 3}\n')
    os.utime(folder / "b.jsonl", (2, 2))
    found = side.advance(side.start(), 100, START_US + 60 * S)
    assert (found.records, found.finished) == (1, True)
    side.stop_here(START_US + 60 * S)
    found = side.advance(side.start(), 100, START_US + 120 * S)
    assert (found.records, found.finished) == (3, True)
    side.close()


def test_of_a_rate_without_end_the_records_that_are_due_are_there(store: Store, place: Place) -> None:
    side = source_side(rate(10), place, "ticks")
    first = side.advance(side.start(), 100, START_US)
    holder = store.begin("r0", pid=1)
    store.seal(Entry(0, START_US, {"ticks": first.positions}), holder, first.items)
    side.stop_here(START_US + S)
    later = side.advance(first.positions, 1000, START_US + 3600 * S)
    assert (later.positions, later.finished) == ({"0": 11}, True)
    side.close()


def test_a_rate_begins_in_a_run_that_takes_what_is_there(store: Store, place: Place) -> None:
    side = source_side(rate(10), place, "ticks")
    side.stop_here(START_US)
    first = side.advance(side.start(), 100, START_US + 5)
    assert (first.records, first.finished) == (1, True) and first.items[0].body == {"origin_us": START_US}
    side.close()


def test_a_run_cannot_bring_time_to_its_end_and_leave_it() -> None:
    with pytest.raises(ValidationError, match="only one can be"):
        RunSettings(until_done=True, available_now=True)
