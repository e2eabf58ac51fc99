"""Compaction changes how many files there are, and nothing that a reader can see."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.connect.protocols import Place, SinkSide
from lockstep.connect.reading import Reader, read
from lockstep.connect.sinks import compaction
from lockstep.connect.sinks.compaction import compact
from lockstep.connect.sinks.manifests import Layout
from lockstep.connect.sinks.staging import read_batches
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder
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


def _data(place: Place) -> list[str]:
    return sorted(path.name for path in (place.project / "out" / "data").iterdir())


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_readers_and_publishers_see_the_same_before_and_after(place: Place, format: Any) -> None:
    side = _filled(place, 20, format)
    folder = place.project / "out"
    before = list(Reader(folder).publications())
    assert compact(folder, keep_last=5) == 15
    assert read(folder) == _expected(20)
    assert list(Reader(folder).publications()) == before
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
    assert layout.ranges() == [(0, 7), (8, 15), (16, 21)]
    assert [file.rows for file in layout.read_range(0, 7).files] == [1 + 2 + 3, 1 + 2 + 3]
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
    assert [publication.by for publication in Reader(place.project / "out").publications()] == ["r0.1"] * 9
    compact(place.project / "out", keep_last=1)
    assert not single.exists()


def test_killed_before_any_step_nothing_is_lost_or_seen_twice(place: Place) -> None:
    for step in range(1, 60):
        where = Place(place.project / str(step), place.store, "job")
        _filled(where, 6)

        def act(number: int = step, target: Place = where) -> None:
            kill_before_call(number, STEPS)
            compact(target.project / "out", keep_last=2)

        status = in_child(act)
        assert read(where.project / "out") == _expected(6)
        publish(files_sink(where), 6, count=2)
        compact(where.project / "out", keep_last=1)
        assert read(where.project / "out") == _expected(7)
        merged = {file.name for first, last in _ranges(where) for file in _layout(where).read_range(first, last).files}
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
    with compaction._alone(_layout(place)) as alone:
        assert alone
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
