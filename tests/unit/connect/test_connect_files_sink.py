"""The files sink: an epoch is visible whole or not at all, once, in order, whatever crashed when."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.connect.protocols import Output, Place, Publication
from lockstep.connect.reading import Reader, read
from lockstep.connect.registry import sink_side
from lockstep.connect.specs import files
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder
from tests.unit.connect import sinks_for_connect
from tests.unit.connect.sinks_for_connect import (
    HOLDER,
    SCHEMA,
    files_sink,
    in_child,
    kill_before_call,
    publish,
    rows_of,
    wanted,
)

OTHER = Holder("r1", 7)
STEPS = ("fsync", "link", "unlink")
"""What publishing does that survives a crash, apart from writing into files nobody sees."""


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_what_is_published_is_read_back_in_order(place: Place, format: Any) -> None:
    side = files_sink(place, format)
    for epoch in range(3, 6):
        done = publish(side, epoch)
        assert (done.epoch, done.digest, done.by, done.published_us > 0) == (epoch, f"digest-{epoch}", "r0.1", True)
    assert side.last_published() == 5
    assert side.rows(4) == rows_of(4)
    assert read(place.project / "out") == pa.concat_tables([rows_of(epoch) for epoch in range(3, 6)])
    assert read(place.project / "out", epochs=range(4, 99)).num_rows == 6


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_every_type_survives_the_way_through_the_files(place: Place, format: Any) -> None:
    table = pa.table(
        {
            "flag": [True, None],
            "small": pa.array([1, None], pa.int8()),
            "real": [1.5, float("inf")],
            "single": pa.array([0.1, None], pa.float32()),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
            "day": pa.array([date(2024, 2, 29), None]),
            "at": pa.array([datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime(2024, 1, 1), None], pa.timestamp("us")),
            "raw": pa.array([b"\x00\xff", None]),
            "list": pa.array([[1, None], []]),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array(
                [{"x": datetime(2024, 1, 1, tzinfo=UTC)}, None], pa.struct([("x", pa.timestamp("us", "UTC"))])
            ),
            "text": ['new\nline, "quote" é', ""],
        }
    )
    side = sink_side(files("out", format=format), "alerts", place)
    side.open(table.schema)
    side.publish(wanted(0, rows=2), Output(table.schema, table), HOLDER)
    assert read(place.project / "out").to_pylist() == table.to_pylist()


def test_the_second_publisher_gets_the_first_ones_fence_and_leaves_nothing(place: Place) -> None:
    first, second = files_sink(place), files_sink(place)
    publish(first, 0)
    before = _names(place.project / "out" / "data")
    assert publish(second, 0, OTHER).by == "r0.1"
    assert _names(place.project / "out" / "data") == before


@pytest.mark.parametrize("look", ["last_published", "publication", "_write"])
def test_being_overtaken_between_any_two_looks_is_no_error(
    place: Place, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    side, other = files_sink(place), files_sink(place)
    publish(side, 0)
    real = getattr(side, look)

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        result = real(*arguments)
        publish(other, 1, OTHER)
        return result

    monkeypatch.setattr(side, look, overtaken)
    assert publish(side, 1).by == "r1.7"
    assert publish(side, 2).by == "r0.1"
    assert read(place.project / "out").num_rows == 9
    assert len(_names(place.project / "out" / "data")) == 3


def test_an_epoch_without_rows_is_published_without_files(place: Place) -> None:
    side = files_sink(place)
    publish(side, 0, count=0)
    assert _names(place.project / "out" / "data") == set()
    assert side.rows(0) == SCHEMA.empty_table()
    assert side.last_published() == 0


def test_epochs_come_in_order_without_gaps(place: Place) -> None:
    side = files_sink(place)
    publish(side, 5)
    for epoch in (7, 3):
        with pytest.raises(ConnectError) as caught:
            publish(side, epoch)
        assert caught.value.code == "LS0507"
    assert list(Reader(place.project / "out").epochs()) == [5]


def test_a_reader_stops_at_a_gap(place: Place) -> None:
    side = files_sink(place)
    for epoch in range(4):
        publish(side, epoch)
    (place.project / "out/_lockstep/manifests/000000000002.json").unlink()
    assert list(Reader(place.project / "out").epochs()) == [0, 1]
    assert read(place.project / "out").num_rows == 6


def test_staged_files_become_visible_by_the_manifest_alone(place: Place) -> None:
    files_sink(place)
    staged = []
    for task in range(3):
        worker = sink_side(files("out"), "alerts", place)
        stager = worker.stager(0, HOLDER, task)
        for batch in rows_of(task).to_batches():
            stager.write(batch)
        if (file := stager.finish()) is not None:
            staged.append(file)
    side = files_sink(place)
    assert read(place.project / "out").num_rows == 0
    side.publish(wanted(0, rows=9), Output(SCHEMA, files=tuple(staged)), HOLDER)
    assert read(place.project / "out") == pa.concat_tables([rows_of(task) for task in range(3)])


def test_staging_an_epoch_again_never_touches_what_was_published(place: Place) -> None:
    side = files_sink(place)
    for _ in range(2):
        stager = side.stager(0, HOLDER, 0)
        stager.write(rows_of(0).to_batches()[0])
        staged = stager.finish()
        assert staged is not None
        side.publish(wanted(0), Output(SCHEMA, files=(staged,)), HOLDER)
    assert read(place.project / "out") == rows_of(0)
    assert len(_names(place.project / "out" / "data")) == 1


def test_a_stager_without_rows_makes_no_file_and_an_abandoned_one_leaves_none(place: Place) -> None:
    side = files_sink(place)
    assert side.stager(0, HOLDER, 0).finish() is None
    abandoned = side.stager(0, HOLDER, 1)
    for _ in range(3):
        abandoned.write(rows_of(0, 40_000).to_batches()[0])
    assert len(_names(place.project / "out" / "data")) == 1
    abandoned.abandon()
    assert _names(place.project / "out" / "data") == set()


def test_a_staged_file_from_elsewhere_is_not_published(place: Place) -> None:
    side = files_sink(place)
    stager = files_sink(Place(place.project / "elsewhere", place.home, "job")).stager(0, HOLDER, 0)
    stager.write(rows_of(0).to_batches()[0])
    staged = stager.finish()
    assert staged is not None
    with pytest.raises(ConnectError) as caught:
        side.publish(wanted(0), Output(SCHEMA, files=(staged,)), HOLDER)
    assert caught.value.code == "LS0510"
    assert Path(staged.path).exists()


def test_a_manifest_that_names_a_file_elsewhere_is_refused(place: Place) -> None:
    publish(files_sink(place), 0)
    manifest = place.project / "out/_lockstep/manifests/000000000000.json"
    data = json.loads(manifest.read_text())
    data["files"][0]["name"] = "../../secret.parquet"
    manifest.write_text(json.dumps(data))
    with pytest.raises(ConnectError) as caught:
        read(place.project / "out")
    assert caught.value.code == "LS0510"


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: data.update(format_version=3), "LS0502"),
        (lambda data: data.update(rows=4), "LS0514"),
        (lambda data: data["files"][0].update(name="gone.parquet"), "LS0514"),
        (lambda data: data.pop("format_version"), "LS0514"),
    ],
)
def test_a_manifest_of_a_newer_version_or_a_damaged_one_is_refused(place: Place, damage: Any, code: str) -> None:
    publish(files_sink(place), 0)
    manifest = place.project / "out/_lockstep/manifests/000000000000.json"
    data = json.loads(manifest.read_text())
    damage(data)
    manifest.write_text(json.dumps(data))
    with pytest.raises(ConnectError) as caught:
        read(place.project / "out")
    assert caught.value.code == code


def test_a_place_has_one_owner_one_schema_and_one_format(place: Place) -> None:
    files_sink(place)
    cases: list[tuple[Any, str, Place, pa.Schema, str]] = [
        (files("out"), "other", place, SCHEMA, "LS0503"),
        (files("out"), "alerts", Place(place.project, place.home, "other"), SCHEMA, "LS0503"),
        (files("out"), "alerts", place, pa.schema([("n", pa.string()), ("s", pa.string())]), "LS0512"),
        (files("out"), "alerts", place, SCHEMA.append(pa.field("__epoch", pa.int64())), "LS0501"),
        (files("out", format="jsonl"), "alerts", place, SCHEMA, "LS0512"),
    ]
    for spec, sink, where, schema, code in cases:
        with pytest.raises(ConnectError) as caught:
            sink_side(spec, sink, where).open(schema)
        assert caught.value.code == code
    not_null = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.large_string())])
    sink_side(files("out"), "alerts", place).open(not_null)


def test_a_path_that_is_a_file_is_explained(place: Place) -> None:
    (place.project / "out").write_text("hello")
    with pytest.raises(ConnectError) as caught:
        files_sink(place)
    assert caught.value.code == "LS0509"
    with pytest.raises(ConnectError) as caught:
        read(place.project / "out")
    assert caught.value.code == "LS0513"


@pytest.mark.parametrize("call", range(1, 4))
def test_a_full_disk_leaves_nothing_visible_and_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    side = files_sink(place)
    publish(side, 0)
    before = _names(place.project / "out" / "data")
    calls = 0
    real = os.fsync

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConnectError) as caught:
        publish(side, 1)
    monkeypatch.undo()
    assert caught.value.code == "LS0508"
    assert _names(place.project / "out" / "data") == before
    assert _names(place.project / "out/_lockstep/manifests") == {"000000000000.json"}
    assert publish(side, 1).by == "r0.1"
    assert read(place.project / "out").num_rows == 6


class _FullDisk(io.FileIO):
    """A file on a disk that has room for ``room`` bytes more."""

    room = 2000

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_a_full_disk_while_staging_leaves_no_file(place: Place, monkeypatch: pytest.MonkeyPatch, format: Any) -> None:
    side = files_sink(place, format)
    data = place.project / "out" / "data"

    def create(folder: Path, stem: str, _format: str) -> tuple[Path, Any]:
        return folder / stem, _FullDisk(folder / stem, "x")

    monkeypatch.setattr("lockstep.connect.sinks.staging._create", create)
    with pytest.raises(ConnectError) as caught:
        publish(side, 0, count=10_000)
    assert caught.value.code == "LS0508"
    assert _names(data) == set()
    assert side.last_published() is None


def test_killed_before_any_step_the_epoch_is_whole_or_absent_and_the_next_replica_goes_on(place: Place) -> None:
    """Kill -9 before every durable step of publishing, until a run gets through without being killed."""
    for step in range(1, 50):
        where = Place(place.project / str(step), place.home, "job")
        side = files_sink(where)
        publish(side, 0)

        def act(number: int = step, target: Place = where) -> None:
            dying = files_sink(target)
            kill_before_call(number, STEPS)
            publish(dying, 1)

        status = in_child(act)
        assert status in (0, -9)
        assert read(where.project / "out").num_rows in (3, 6)
        publish(side, 1, OTHER)
        publish(side, 2, OTHER)
        side.sweep(["r0.1"])
        assert read(where.project / "out") == pa.concat_tables([rows_of(epoch) for epoch in range(3)])
        assert len(_names(where.project / "out" / "data")) == 3
        assert len(_names(where.project / "out/_lockstep/manifests")) == 3
        if status == 0:
            assert step > 5, "publishing has at least five durable steps"
            return
    pytest.fail("publishing never ended")


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_two_processes_publish_the_same_epochs_and_each_appears_once(place: Place, kind: str) -> None:
    epochs = 40
    command = [sys.executable, "-m", sinks_for_connect.__name__, str(place.project), kind]
    running = [
        subprocess.Popen([*command, replica, str(epochs)], stdout=subprocess.PIPE, text=True)
        for replica in ("r0", "r1")
    ]
    won = [int(process.communicate(timeout=60)[0]) for process in running]
    assert sum(won) == epochs
    expected = pa.concat_tables([rows_of(epoch) for epoch in range(epochs)])
    if kind == "sqlite":
        assert read(place.project / "out.db", table="alerts") == expected
        return
    assert read(place.project / "out") == expected
    assert len(_names(place.project / "out" / "data")) == epochs


def test_sweeping_removes_only_what_dead_holders_never_published(place: Place) -> None:
    side = files_sink(place)
    publish(side, 0)
    for holder in (HOLDER, OTHER):
        stager = side.stager(1, holder, 0)
        stager.write(rows_of(1).to_batches()[0])
        stager.finish()
        (place.project / f"out/_lockstep/manifests/000000000001.json.{holder}.tmp").write_text("{")
    data = place.project / "out" / "data"
    assert side.sweep([]) == 0
    assert side.sweep(["r0.1"]) == 1, "epoch 1 is not published: it may live on a host that was cut off, and do it yet"
    assert len(_names(data)) == 3
    publish(side, 1, Holder("r2", 1))
    assert side.sweep(["r0.1"]) == 1
    assert _names(data) == {f"00000000000{name}-0.parquet" for name in ("0-r0.1", "1-r1.7", "1-r2.1")}
    assert read(place.project / "out") == pa.concat_tables([rows_of(0), rows_of(1)])


def test_the_newest_epoch_is_found_without_listing_the_folder_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, other = files_sink(place), files_sink(place)
    publish(side, 0)
    assert side.last_published() == 0

    def never(self: object) -> list[int]:
        raise AssertionError("listed")

    for epoch in range(1, 4):
        publish(other, epoch, OTHER)
    monkeypatch.setattr("lockstep.connect.sinks.manifests.Layout.published", never)
    assert side.last_published() == 3
    assert publish(side, 4).by == "r0.1"


def test_following_sees_each_epoch_once_as_it_comes(place: Place) -> None:
    side = files_sink(place)
    reader = Reader(place.project / "out")
    seen: list[tuple[Publication, pa.Table]] = []
    for epoch in range(2, 5):
        publish(side, epoch)
        seen += reader.follow(seen[-1][0].epoch + 1 if seen else 0, poll_s=0.001, timeout_s=0)
    assert [(publication.epoch, table) for publication, table in seen] == [
        (epoch, rows_of(epoch)) for epoch in (2, 3, 4)
    ]
    assert [publication.epoch for publication in reader.publications()] == [2, 3, 4]
    assert [publication.epoch for publication in reader.publications(first=4)] == [4]
    assert reader.publication(5) is None


def test_reading_where_no_sink_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConnectError) as caught:
        read(tmp_path)
    assert caught.value.code == "LS0513"
