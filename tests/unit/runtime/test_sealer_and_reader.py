"""The two ends of the ledger without Spark: the sealer that proposes epochs and the reader that answers them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lockstep.config import RunSettings
from lockstep.connect.protocols import Place, Slice
from lockstep.connect.registry import source_side
from lockstep.connect.specs import collection
from lockstep.errors import LockstepError, from_wire
from lockstep.runtime.decide.marks import TimeStep
from lockstep.runtime.epoch import source
from lockstep.runtime.epoch.sealing import Sealer
from lockstep.runtime.epoch.source import EpochReader, SourceOptions, pack
from lockstep.store.protocols import Store
from lockstep.store.sqlite_store import open_store

S = 1_000_000
START_US = 1_700_000_000_000_000
SPEC = collection([{"n": n} for n in range(10)], schema="n bigint")
STEPS = (TimeStep("event_time", ("numbers",), 2 * S, None),)
SETTINGS = RunSettings(epoch_interval_s=0, heartbeat_interval_s=0.05, records_per_epoch_start=4)


@pytest.fixture(autouse=True)
def _this_process_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader asks to be killed with its parent: right for a worker of Spark's, not for the tests."""
    monkeypatch.setattr(source, "end_with_parent", lambda: None)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path / ".lockstep", "job")


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = open_store(place.home, place.job)
    yield opened
    opened.close()


def _sealer(store: Store, place: Place, replica: str = "r0", **more: Any) -> Sealer:
    sources = {"numbers": source_side(SPEC, place, "numbers")}
    return Sealer(store, store.begin(replica, pid=1), sources, STEPS, SETTINGS, more.pop("on_failure", _raise), **more)


def test_a_source_with_little_leaves_its_share_of_the_record_limit_to_those_with_much(
    store: Store, place: Place
) -> None:
    many = collection([{"n": n} for n in range(100)], schema="n bigint")
    few = collection([{"n": 0}], schema="n bigint")
    sides = {name: source_side(spec, place, name) for name, spec in (("many", many), ("few", few), ("much", many))}
    settings = RunSettings(records_per_epoch_start=30)
    sealer = Sealer(store, store.begin("r0", pid=1), sides, (), settings, _raise)
    found = {name: one.records for name, one in sealer._advances(None, START_US).items()}
    assert found == {"few": 1, "many": 14, "much": 14}


def _raise(error: LockstepError) -> None:
    raise error


def _sealed(sealer: Sealer, store: Store, epoch: int, observed_us: int | None = None) -> Any:
    sealer.ready(epoch, {"event_time": observed_us})
    entry = store.wait(epoch, 10)
    assert entry is not None
    return entry


def test_a_sealer_cuts_the_input_at_the_record_limit_and_then_sends_heartbeats(store: Store, place: Place) -> None:
    sealer = _sealer(store, place)
    sealer.start()
    entries = [_sealed(sealer, store, epoch, START_US + epoch) for epoch in range(4)]
    sealer.stop()
    sealer.join(5)
    assert [entry.cut["numbers"]["0"] for entry in entries] == [4, 8, 10, 10]
    assert [entry.records for entry in entries] == [4, 4, 2, 0]
    assert [entry.marks["event_time"] for entry in entries] == [None, START_US + 1, START_US + 2, START_US + 3]
    times = [entry.epoch_time_us for entry in entries]
    assert times == sorted(set(times))


def test_epoch_time_moves_on_although_the_clock_is_set_back(store: Store, place: Place) -> None:
    times = [START_US, START_US - 3600 * S]
    sealer = _sealer(store, place, clock=lambda: times[0])
    sealer.start()
    first = _sealed(sealer, store, 0)
    times.pop(0)
    second = _sealed(sealer, store, 1)
    sealer.stop()
    sealer.join(5)
    assert second.epoch_time_us == first.epoch_time_us + 1


def test_of_two_sealers_one_wins_and_both_see_the_same_entry(store: Store, place: Place) -> None:
    sealers = [_sealer(store, place, replica) for replica in ("r0", "r1")]
    for one in sealers:
        one.start()
    for epoch in range(10):
        for one in sealers:
            one.ready(epoch, {})
        assert store.wait(epoch, 10) is not None
    for one in sealers:
        one.stop()
        one.join(5)
    assert [entry.epoch for entry in store.entries(0, 99)] == list(range(10))


def test_a_retired_sealer_seals_nothing_and_says_why(store: Store, place: Place) -> None:
    said: list[str] = []
    failed = threading.Event()

    def on_failure(error: LockstepError) -> None:
        said.append(error.code)
        failed.set()

    sealer = _sealer(store, place, on_failure=on_failure)
    store.retire("r0")
    sealer.start()
    sealer.ready(0, {})
    assert failed.wait(10)
    sealer.stop()
    sealer.join(5)
    assert said[0] == "LS0405" and store.head() is None


def _reader(place: Place, **hidden: Any) -> EpochReader:
    options = SourceOptions(
        project=str(place.project),
        home=str(place.home),
        address="",
        job=place.job,
        source="numbers",
        spec={"kind": SPEC.kind, **SPEC.to_json()},
        ddl=SPEC.schema.ddl(),
        hidden={"event_times": [], "epoch_time": False, "position": False, **hidden},
        tasks_max=2,
        drain_flag=str(place.project / "drain"),
    )
    return EpochReader(options.to_json())


def _read(reader: EpochReader, epoch: int) -> list[dict[str, Any]]:
    parts = reader.partitions({"epoch": epoch - 1}, {"epoch": epoch})
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def _seal_all(store: Store, place: Place) -> None:
    sealer = _sealer(store, place, clock=iter(range(START_US, START_US + 1000 * S, S)).__next__)
    sealer.start()
    for epoch in range(4):
        _sealed(sealer, store, epoch, START_US + epoch)
    sealer.stop()
    sealer.join(5)


def test_a_reader_gives_each_epoch_the_records_between_two_cuts(store: Store, place: Place) -> None:
    _seal_all(store, place)
    reader = _reader(place)
    assert reader.latestOffset({"epoch": 1}, None) == {"epoch": 2}
    assert [[row["n"] for row in _read(reader, epoch)] for epoch in range(4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
        [],
    ]
    assert reader.partitions({"epoch": 2}, {"epoch": 2}) == []
    reader.stop()


def test_a_reader_refuses_to_guess_where_an_epoch_begins_that_is_forgotten(store: Store, place: Place) -> None:
    _seal_all(store, place)
    store.trim(2)
    reader = _reader(place)
    for epoch in (1, 2):
        with pytest.raises(RuntimeError) as raised:
            reader.partitions({"epoch": epoch - 1}, {"epoch": epoch})
        error = from_wire(str(raised.value))
        assert error is not None and (error.code, error.fact) == ("LS0605", "epoch 1 is not in the ledger any more")
    assert reader.partitions({"epoch": 2}, {"epoch": 3}) == []
    reader.stop()


def test_a_reader_adds_the_mark_row_and_the_hidden_columns_that_are_asked_for(store: Store, place: Place) -> None:
    _seal_all(store, place)
    reader = _reader(place, event_times=["event_time"], epoch_time=True, position=True)
    mark, *records = _read(reader, 1)
    entry = store.entry(1)
    assert entry is not None
    sealed = datetime.fromtimestamp(entry.epoch_time_us / S, UTC)
    assert (mark["__mark"], mark["n"], mark["__epoch_time"]) == (True, None, sealed)
    assert mark["__mark_event_time"].timestamp() * S == START_US + 1
    assert [(row["__source"], row["__partition"], row["__offset"], row["n"]) for row in records] == [
        ("numbers", "0", n, n) for n in (4, 5, 6, 7)
    ]
    assert {row["__epoch_time"] for row in records} == {sealed} and {row["__mark"] for row in records} == {None}
    heartbeat = _read(reader, 3)
    assert len(heartbeat) == 1 and heartbeat[0]["__mark"], "an epoch without records still carries its mark"
    reader.stop()


def test_a_small_epoch_travels_with_its_plan_and_a_large_one_does_not(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _seal_all(store, place)
    reader, span = _reader(place), ({"epoch": 0}, {"epoch": 1})
    (planned,) = reader.partitions(*span)
    with_plan = reader.getCache(*span)
    assert with_plan is not None
    assert [batch.to_pylist() for batch in with_plan] == [batch.to_pylist() for batch in reader.read(planned)]
    assert reader.getCache(*span) is None, "records go with the plan they belong to, once"
    monkeypatch.setattr(source, "BYTES_WITH_PLAN_MAX", 3)
    assert reader.partitions(*span)
    assert reader.getCache(*span) is None
    monkeypatch.setattr(source, "RECORDS_WITH_PLAN_MAX", 3)
    assert reader.partitions(*span)
    assert reader.getCache(*span) is None


def test_records_with_arrays_do_not_travel_with_the_plan(store: Store, place: Place) -> None:
    """Spark copies them there without the nulls inside."""
    _seal_all(store, place)
    reader, span = _reader(place), ({"epoch": 0}, {"epoch": 1})
    reader._options = replace(reader._options, ddl="n bigint, tags array<int>")
    assert reader.partitions(*span)
    assert reader.getCache(*span) is None


def test_a_draining_reader_answers_nothing_and_tells_that_no_epoch_is_under_way(store: Store, place: Place) -> None:
    _seal_all(store, place)
    reader = _reader(place)
    flag = place.project / "drain"
    flag.touch()
    answers: list[dict[str, int]] = []
    asking = threading.Thread(target=lambda: answers.append(reader.latestOffset({"epoch": -1}, None)), daemon=True)
    asking.start()
    deadline = time.monotonic() + 10
    while not flag.with_name("drain.seen-1").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert flag.with_name("drain.seen-1").exists() and not answers
    flag.unlink()
    asking.join(10)
    assert answers == [{"epoch": 0}]
    reader.stop()


def test_tasks_get_all_slices_in_order_and_about_equally_many_records() -> None:
    slices = [Slice("0", n, n + 1, 10 * (n % 3 + 1)) for n in range(20)]
    for tasks in (1, 2, 3, 7, 50):
        groups = pack(slices, tasks)
        assert [piece for group in groups for piece in group] == slices
        assert len(groups) <= tasks and all(groups)
        loads = [sum(piece.records for piece in group) for group in groups]
        assert max(loads) <= sum(loads) / min(tasks, len(slices)) + 30
    assert pack([], 4) == []


def test_the_options_of_a_source_survive_the_way_to_a_worker(place: Place) -> None:
    import pickle

    reader = _reader(place, event_times=["event_time"])
    again = pickle.loads(pickle.dumps(reader))
    assert json.loads(again._text) == json.loads(reader._text)
