"""Compaction changes how many files there are, and nothing that a reader can see."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.config import RunSettings
from lockstep.connect.protocols import Place, Publication, SinkSide
from lockstep.connect.reading import Reader, read
from lockstep.connect.sinks import compaction
from lockstep.connect.sinks.compaction import compact
from lockstep.connect.sinks.compaction_turn import turn
from lockstep.connect.sinks.manifests import SHARD_EPOCHS, Compacted, DataFile, EmptyRun, Layout
from lockstep.connect.sinks.staging import read_batches
from lockstep.control.supervise.compacting import Compactor
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder
from lockstep.store.sqlite_store import open_store
from tests.unit.connect.sinks_for_connect import HOLDER, files_sink, in_child, kill_before_call, publish, rows_of

STEPS = ("fsync", "link", "unlink")
OTHER = Holder("r1", 7)


def _filled(place: Place, epochs: int, format: Any = "parquet") -> SinkSide:
    side = files_sink(place, format)
    for epoch in range(epochs):
        publish(side, epoch, count=epoch % 4)
    return side


def _expected(epochs: int) -> pa.Table:
    return pa.concat_tables([rows_of(epoch, epoch % 4) for epoch in range(epochs)])


def _as_merged(one: Publication, stop: int) -> Publication:
    """A publication as it is after compaction: of epochs without rows little is kept."""
    return Publication(one.epoch, one.digest, 0, "", one.version) if one.epoch < stop and not one.rows else one


def _files(layout: Layout, first: int, last: int) -> tuple[DataFile, ...]:
    merged = layout.read_range(first, last)
    assert merged is not None
    return merged.files


def _data(place: Place) -> list[str]:
    return sorted(path.name for path in (place.project / "out" / "data").rglob("*.*"))


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_readers_and_publishers_see_the_same_before_and_after(place: Place, format: Any) -> None:
    side = _filled(place, 20, format)
    folder = place.project / "out"
    before = list(Reader(folder).publications())
    assert compact(folder, keep_last=5) == 15
    assert read(folder) == _expected(20)
    assert list(Reader(folder).publications()) == [_as_merged(one, 15) for one in before]
    assert [Reader(folder).table(epoch) for epoch in range(20)] == [rows_of(epoch, epoch % 4) for epoch in range(20)]
    assert [name for name in _data(place) if name.startswith("compacted")] == [_data(place)[-1]]
    assert len(_data(place)) == 1 + 4  # of the five newest epochs, number 16 has no rows
    assert files_sink(place, format).last_published() == side.last_published() == 19
    assert side.rows(3) == rows_of(3, 3)
    publish(side, 20, count=0)
    assert compact(folder, keep_last=1) == 5
    assert read(folder) == _expected(21)
    assert compact(folder, keep_last=1) == 0


def test_large_ranges_become_several_files_and_ranges(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FILE_ROWS", 4)
    monkeypatch.setattr(compaction, "RANGE_EPOCHS_MAX", 8)
    _filled(place, 24)
    compact(place.project / "out", keep_last=2)
    layout = Layout(place.project / "out")
    # Eight epochs with rows in each: every fourth has none.
    assert layout.ranges() == [(0, 10), (11, 21)]
    assert [file.rows for file in _files(layout, 0, 10)] == [1 + 2 + 3, 1 + 2 + 3, 1 + 2]
    assert read(place.project / "out") == _expected(24)


def test_a_late_publisher_of_a_compacted_epoch_gets_the_published_fence(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie passed all checks before the epoch was published and compacted; it wakes up at its link."""
    _filled(place, 5)
    zombie = files_sink(place)
    stager = zombie.stager(5, OTHER, 0)
    stager.write(rows_of(99).to_batches()[0])
    real = Layout.publish

    def meanwhile(self: Layout, manifest: Any, holder: str) -> bool:
        monkeypatch.setattr(Layout, "publish", real)
        alive = files_sink(place)
        for epoch in range(5, 9):
            publish(alive, epoch, count=epoch % 4)
        compact(place.project / "out", keep_last=1)
        return real(self, manifest, holder)

    monkeypatch.setattr(Layout, "publish", meanwhile)
    assert publish(zombie, 5, OTHER).by == "r0.1"
    assert read(place.project / "out") == _expected(9)
    assert not any("r1.7-0-1" in name for name in _data(place))
    assert not _layout(place).manifest_path(5).exists()
    assert publish(zombie, 2, OTHER).by == "r0.1"


def test_a_manifest_inside_a_compacted_range_is_ignored_and_removed(place: Place) -> None:
    """The zombie that was killed right after its link."""
    _filled(place, 9)
    single = place.project / "out/_lockstep/manifests/000000000002.json"
    data = single.read_text().replace("r0.1", "r9.9").replace("digest-2", "other")
    compact(place.project / "out", keep_last=1)
    single.write_text(data)
    assert read(place.project / "out") == _expected(9)
    assert [publication.by for publication in Reader(place.project / "out").publications()] == [
        "r0.1" if epoch % 4 or epoch == 8 else "" for epoch in range(9)
    ]
    compact(place.project / "out", keep_last=1)
    assert not single.exists()


def test_killed_before_any_step_nothing_is_lost_or_seen_twice(place: Place) -> None:
    for step in range(1, 60):
        where = Place(place.project / str(step), place.home, "job")
        _filled(where, 6)

        def act(number: int = step, target: Place = where) -> None:
            kill_before_call(number, STEPS)
            compact(target.project / "out", keep_last=2)

        status = in_child(act)
        assert read(where.project / "out") == _expected(6)
        publish(files_sink(where), 6, count=2)
        compact(where.project / "out", keep_last=1)
        assert read(where.project / "out") == _expected(7)
        merged = {file.name.rpartition("/")[2] for span in _ranges(where) for file in _files(_layout(where), *span)}
        assert set(_data(where)) - merged <= {"000000000006-r0.1-0.parquet", "000000000005-r0.1-0.parquet"}
        assert not list((where.project / "out/_lockstep").rglob("*.tmp"))
        if status == 0:
            assert step > 8, "compaction has more durable steps than that"
            return
        assert status == -9
    pytest.fail("compaction never ended")


def _layout(place: Place) -> Layout:
    return Layout(place.project / "out")


def _ranges(place: Place) -> list[tuple[int, int]]:
    return _layout(place).ranges()


def test_a_reader_under_way_whose_file_vanished_looks_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _filled(place, 12)
    real = read_batches

    def compacted_first(path: Path, format: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        monkeypatch.setattr("lockstep.connect.reading.read_batches", real)
        compact(place.project / "out", keep_last=1)
        yield from real(path, format, schema)

    monkeypatch.setattr("lockstep.connect.reading.read_batches", compacted_first)
    assert read(place.project / "out") == _expected(12)


def _keep_compacting(folder: str) -> None:
    while True:
        compact(folder, keep_last=1)


def test_readers_and_a_publisher_beside_a_compaction_in_another_process(place: Place) -> None:
    side = _filled(place, 3)
    other = multiprocessing.get_context("fork").Process(target=_keep_compacting, args=(str(place.project / "out"),))
    other.start()
    try:
        for epoch in range(3, 60):
            publish(side, epoch, count=epoch % 4)
            if epoch % 3 == 0:
                assert read(place.project / "out") == _expected(epoch + 1)
    finally:
        other.kill()
        other.join()
        other.close()
    assert _ranges(place)
    followed = [table for _, table in Reader(place.project / "out").follow(0, timeout_s=0)]
    assert pa.concat_tables(followed) == _expected(60)


def test_only_one_compaction_runs_at_a_time(place: Place) -> None:
    _filled(place, 9)
    with turn(_layout(place).control) as mine:
        assert mine is not None
        mine.check()
        assert compact(place.project / "out", keep_last=1) == 0
    assert compact(place.project / "out", keep_last=1) == 8


def test_sweeping_a_dead_publisher_keeps_compacted_rows(place: Place) -> None:
    side = _filled(place, 9)
    compact(place.project / "out", keep_last=1)
    side.sweep([str(HOLDER)])
    assert read(place.project / "out") == _expected(9)


def test_compacting_where_no_sink_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConnectError) as caught:
        compact(tmp_path)
    assert caught.value.code == "LS0513"


def test_a_growing_sink_is_one_range_until_it_is_full_and_its_last_file_is_filled(place: Place) -> None:
    side = files_sink(place)
    for epoch in range(40):
        publish(side, epoch, count=epoch % 4)
        compact(place.project / "out", keep_last=2)
    assert _ranges(place) == [(0, 37)]
    assert [file.rows for file in _files(_layout(place), 0, 37)] == [sum(epoch % 4 for epoch in range(38))]
    assert len(_data(place)) == 1 + 2 and read(place.project / "out") == _expected(40)
    assert read(place.project / "out", epochs=[2, 39, 77, 3]) == pa.concat_tables(
        [rows_of(e, e % 4) for e in (2, 3, 39)]
    )


def test_a_growing_sink_killed_before_any_step_loses_nothing(place: Place) -> None:
    """The same as above where there is a range to continue, whose last file is written anew."""
    for step in range(1, 60):
        where = Place(place.project / str(step), place.home, "job")
        side = _filled(where, 6)
        compact(where.project / "out", keep_last=2)
        for epoch in (6, 7, 8):
            publish(side, epoch, count=epoch % 4)

        def act(number: int = step, target: Place = where) -> None:
            kill_before_call(number, STEPS)
            compact(target.project / "out", keep_last=2)

        status = in_child(act)
        assert read(where.project / "out") == _expected(9)
        publish(files_sink(where), 9, count=1)
        compact(where.project / "out", keep_last=1)
        assert read(where.project / "out") == _expected(10)
        assert _ranges(where) == [(0, 8)]
        merged = [file.name.rpartition("/")[2] for file in _files(_layout(where), 0, 8)]
        assert _data(where) == sorted([*merged, "000000000009-r0.1-0.parquet"])
        assert not list((where.project / "out/_lockstep").rglob("*.tmp"))
        assert len(list((where.project / "out/_lockstep/compacted").rglob("*.json"))) == 1
        if status == 0:
            assert step > 8, "compaction has more durable steps than that"
            return
        assert status == -9
    pytest.fail("compaction never ended")


def test_ranges_of_the_older_format_are_read_and_continued_beside(place: Place) -> None:
    side = _filled(place, 12)
    compact(place.project / "out", keep_last=4)
    [(first, last)] = _ranges(place)
    path = _layout(place).range_path(first, last)
    assert isinstance(path, Path)
    data = json.loads(path.read_text())
    fences = list(Reader(place.project / "out").publications())[: last + 1]
    old = {"format_version": 1, "publications": [asdict(one) for one in fences], "files": data["files"]}
    for file in old["files"]:
        name = file["name"].rpartition("/")[2]
        (place.project / "out/data" / file["name"]).rename(place.project / "out/data" / name)
        file["name"] = name
    (place.project / "out/_lockstep/compacted" / path.name).write_text(json.dumps(old))
    path.unlink()
    path.parent.rmdir()
    assert read(place.project / "out") == _expected(12)
    assert [one.rows for one in Reader(place.project / "out").publications()] == [epoch % 4 for epoch in range(12)]
    for epoch in range(12, 20):
        publish(side, epoch, count=epoch % 4)
    compact(place.project / "out", keep_last=4)
    compact(place.project / "out", keep_last=2)
    assert _ranges(place) == [(0, 7), (8, 17)]
    assert read(place.project / "out") == _expected(20)
    assert files_sink(place).last_published() == 19


class _Looked:
    """Counts what is read and listed from now on: that is what opening a large sink would take its time for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = self.listed = 0
        read_bytes, iterdir = Path.read_bytes, Path.iterdir

        def reading(path: Path) -> bytes:
            self.read += 1
            return read_bytes(path)

        def listing(path: Path) -> Iterator[Path]:
            for entry in iterdir(path):
                self.listed += 1
                yield entry

        monkeypatch.setattr(Path, "read_bytes", reading)
        monkeypatch.setattr(Path, "iterdir", listing)


def test_a_year_of_epochs_opens_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats for a year, rows every hundredth second: what compaction leaves of that, made by hand."""
    files_sink(place)
    layout = _layout(place)
    year, every = 31_536_000, 100
    for first in range(0, year - SHARD_EPOCHS, SHARD_EPOCHS):
        for begin in range(first, first + SHARD_EPOCHS, 1000 * every):
            end = begin + 1000 * every
            fences = [
                Publication(e, "d", 1, "r0.1", "v1") for e in (range(begin, end, every) if first == 0 else [begin])
            ]
            runs = tuple(EmptyRun(one.epoch + 1, one.epoch + every - 1, "0", "v1") for one in fences[:-1])
            runs = (*runs, EmptyRun(fences[-1].epoch + 1, end - 1, "0", "v1"))
            layout.publish_compacted(Compacted(tuple(fences), runs, ()), "t")
    newest = layout.newest_range()
    assert newest is not None
    side = files_sink(place)
    for epoch in range(newest[1] + 1, newest[1] + 301):
        publish(side, epoch, count=epoch % 2)
    looked = _Looked(monkeypatch)
    fresh = files_sink(place)
    assert fresh.last_published() == newest[1] + 300
    publish(fresh, newest[1] + 301)
    reader = Reader(place.project / "out")
    assert reader.epochs() == range(newest[1] + 302)
    assert reader.last_with_rows(10) > newest[1] + 270
    assert reader.publication(12_345_678) == Publication(12_345_678, "0", 0, "", "v1")
    assert fresh.sweep(["r9.9"]) == 0
    assert (looked.read, looked.listed) < (100, 4000), "that takes a tenth of a second"
    assert compact(place.project / "out", keep_last=100) == 201
    assert looked.read < 500


def test_the_supervisor_compacts_by_itself_and_says_once_what_stops_it(place: Place) -> None:
    store = open_store(place.home, "job")
    folder = place.project / "out"
    compactor = Compactor([folder], RunSettings(), store)
    compactor.compact(folder)
    _filled(place, 299)
    compactor.compact(folder)
    assert _ranges(place) == []
    publish(files_sink(place), 299, count=3)
    compactor.compact(folder)
    assert _ranges(place) == [(0, 199)] and len(_layout(place).singles()) == 100
    assert store.events() == []
    sink = folder / "_lockstep/sink.json"
    sink.write_text("damaged")
    compactor.compact(folder)
    compactor.compact(folder)
    assert [kind for _, _, kind, _, _ in store.events()] == ["compaction-waits"]
    assert Compactor([folder], RunSettings(compact_sinks=False), store)._folders == []
    store.close()
