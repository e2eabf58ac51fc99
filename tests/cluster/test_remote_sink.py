"""The files sink on HDFS and in S3: each epoch once, whole, in order, whoever is killed when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.clock import wall_us
from lockstep.connect.disk import entries
from lockstep.connect.protocols import Output, Place
from lockstep.connect.reading import Reader, read
from lockstep.connect.registry import sink_side
from lockstep.connect.remote.paths import location
from lockstep.connect.sinks import compaction_turn
from lockstep.connect.sinks.compaction import compact
from lockstep.connect.sinks.compaction_turn import TurnLost, turn
from lockstep.connect.sinks.manifests import Layout
from lockstep.connect.specs import files
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder
from tests.cluster import remote
from tests.cluster.remote import CREDENTIALS, careless_store, kill_around_change, remote_sink
from tests.unit.connect.sinks_for_connect import SCHEMA, in_child, publish, rows_of, wanted

EVERYWHERE = pytest.mark.parametrize("folder", ["hdfs", "s3"], indirect=True)
SLICE = pytest.mark.parametrize("folder", ["s3", pytest.param("hdfs", marks=pytest.mark.long)], indirect=True)
"""HDFS answers more slowly: what asks it a thousand times is of `make test-long`."""
OTHER = Holder("r1", 1)


def expected(epochs: int) -> pa.Table:
    return pa.concat_tables([rows_of(epoch) for epoch in range(epochs)])


def data_files(folder: str) -> set[str]:
    return {path.name for path in entries(Layout(location(folder)).data)}


@EVERYWHERE
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_one_replica_publishes_and_the_other_finds_it_published(folder: str, place: Place, format: Any) -> None:
    first, second = (remote_sink(folder, place, format) for _ in range(2))
    for epoch in range(4):
        assert publish(first, epoch).by == "r0.1"
        assert publish(second, epoch, OTHER).by == "r0.1"
    assert read(folder) == expected(4)
    assert (second.last_published(), second.publication(9)) == (3, None)
    assert second.rows(2) == rows_of(2)
    assert len(data_files(folder)) == 4, "what came second is gone"
    assert [publication.epoch for publication, _ in Reader(folder).follow(1, timeout_s=0)] == [1, 2, 3]


@EVERYWHERE
def test_a_large_epoch_is_staged_by_tasks_and_named_by_its_manifest(folder: str, place: Place) -> None:
    side = remote_sink(folder, place)
    worker = sink_side(files(folder), "alerts", place)
    staged = []
    for task in range(3):
        stager = worker.stager(0, Holder("r0", 1), task)
        for batch in rows_of(task, 1000).to_batches():
            stager.write(batch)
        file = stager.finish()
        assert file is not None and file.path.startswith(folder)
        staged.append(file)
    side.publish(wanted(0, rows=3000), Output(SCHEMA, files=tuple(staged)), Holder("r0", 1))
    assert sorted(read(folder)["n"].to_pylist()) == sorted(
        n for task in range(3) for n in rows_of(task, 1000)["n"].to_pylist()
    )


@EVERYWHERE
def test_two_processes_publish_the_same_epochs_and_each_appears_once(folder: str, tmp_path: Path) -> None:
    epochs = 15
    command = [sys.executable, "-m", remote.__name__, folder, str(tmp_path)]
    running = [
        subprocess.Popen([*command, replica, str(epochs)], stdout=subprocess.PIPE, text=True)
        for replica in ("r0", "r1")
    ]
    won = [int(process.communicate(timeout=120)[0]) for process in running]
    assert sum(won) == epochs
    assert read(folder) == expected(epochs)
    assert len(data_files(folder)) == epochs


@SLICE
def test_killed_around_any_change_the_epoch_is_whole_or_absent_and_the_next_goes_on(folder: str, place: Place) -> None:
    """Kill -9 before and after every change that publishing makes, until a run gets through."""
    for moment in range(1, 30):
        where = f"{folder}/{moment}"
        side = remote_sink(where, place)
        publish(side, 0)

        def act(number: int = moment, target: str = where) -> None:
            dying = remote_sink(target, place)
            kill_around_change(target, number)
            publish(dying, 1)

        status = in_child(act)
        assert status in (0, -9)
        assert read(where).num_rows in (3, 6)
        for epoch in (1, 2):
            publish(side, epoch, OTHER)
        side.sweep(["r0.1"])
        assert read(where) == expected(3), "what was swept is nothing that a manifest names"
        assert len(data_files(where)) == 3
        assert len(entries(Layout(location(where)).manifests)) == 3
        if status == 0:
            assert moment > 4, "publishing writes rows and puts a manifest"
            return
    pytest.fail("publishing never ended")


@EVERYWHERE
def test_compacted_and_swept_everything_is_still_there(folder: str, place: Place) -> None:
    side = remote_sink(folder, place)
    for epoch in range(12):
        publish(side, epoch, count=epoch % 3)
    stager = side.stager(12, OTHER, 0)
    stager.write(rows_of(12).to_batches()[0])
    stager.finish()
    assert compact(folder, keep_last=2) == 10
    assert side.sweep(["r0.1", "r1.1"]) == 0, "r1.1 may be cut off, and publish epoch 12 yet"
    everything = pa.concat_tables([rows_of(epoch, epoch % 3) for epoch in range(12)])
    assert read(folder) == everything
    for epoch in (12, 13):
        publish(side, epoch)
    assert side.sweep(["r0.1", "r1.1"]) == 1, "now it cannot"
    assert compact(folder, keep_last=1) == 3
    layout = Layout(location(folder))
    assert layout.ranges() == [(0, 12)]
    assert layout.singles() == {13}
    assert read(folder) == pa.concat_tables([everything, rows_of(12), rows_of(13)])


@pytest.mark.long
@EVERYWHERE
def test_killed_while_it_compacts_nothing_is_lost_and_the_next_one_tidies_up(
    folder: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_turn, "BROKEN_US_MIN", 0)
    for moment in range(1, 60):
        where = f"{folder}/{moment}"
        side = remote_sink(where, place)
        for epoch in range(4):
            publish(side, epoch)

        def act(number: int = moment, target: str = where) -> None:
            kill_around_change(target, number)
            compact(target, keep_last=1)

        status = in_child(act)
        assert read(where) == expected(4)
        compact(where, keep_last=1)
        for epoch in (4, 5):
            publish(side, epoch)
        compact(where, keep_last=1)
        assert read(where) == expected(6)
        layout = Layout(location(where))
        (merged,) = layout.ranges()
        assert merged == (0, 4)
        names = {path.name for path in entries(layout.data / "000000000000")}
        kept = layout.read_range(*merged)
        assert kept is not None and names == {file.name.rpartition("/")[2] for file in kept.files}
        if status == 0:
            assert moment > 8, "compaction writes, publishes and removes"
            return
    pytest.fail("compaction never ended")


@EVERYWHERE
def test_one_compacts_at_a_time_and_whoever_lost_its_turn_stops(folder: str, place: Place) -> None:
    side = remote_sink(folder, place)
    for epoch in range(4):
        publish(side, epoch)
    control = Layout(location(folder)).control
    with turn(control) as mine:
        assert mine is not None
        mine.check()
        with turn(control) as second:
            assert second is None
        assert compact(folder, keep_last=1) == 0, "another one compacts"
        later = wall_us() + compaction_turn.BROKEN_US_MIN + 1_000_000
        with turn(control, clock=lambda: later) as thief:
            assert thief is not None, "one that is too old is broken"
            thief.check()
            with pytest.raises(TurnLost):
                mine.check()
    with turn(control) as again:
        assert again is not None, "given back"
    assert compact(folder, keep_last=1) == 3
    assert read(folder) == expected(4)


def test_a_store_that_replaces_is_refused_before_anything_is_published(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with careless_store() as (address, objects):
        for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(key, value)
        with pytest.raises(ConnectError) as caught:
            remote_sink("s3a://careless-sink/out", place)
        assert caught.value.code == "LS0553"
        assert not objects
