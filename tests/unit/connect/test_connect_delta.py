"""The Delta sink: every epoch with rows is one commit, once and in order, whatever breaks when."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep as ls
from lockstep.connect.protocols import ORDER, Output, Place, Publication, SinkSide
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks import delta_table
from lockstep.connect.sinks.delta import DeltaSinkSide
from lockstep.connect.sinks.delta_table import Table
from lockstep.connect.sinks.delta_tidying import DeltaTidier
from lockstep.connect.specs import delta
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder
from tests.unit.connect.delta_for_connect import WINDOWS, Log, delta_sink, place_in
from tests.unit.connect.sinks_for_connect import HOLDER, SCHEMA, publish, rows_of, wanted

OTHER = Holder("r1", 7)
EMPTY = Output(SCHEMA, SCHEMA.empty_table())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)


@pytest.fixture
def out(place: Place) -> Path:
    return place.project / "out"


def _code(act: Any) -> str:
    with pytest.raises(ConnectError) as caught:
        act()
    return caught.value.code


def _expected(*epochs: int, count: int = 3) -> list[dict[str, Any]]:
    rows = [{**row, "lockstep_epoch": epoch} for epoch in epochs for row in rows_of(epoch, count).to_pylist()]
    return sorted(rows, key=lambda row: (row["lockstep_epoch"], repr(row)))


def _staged(side: SinkSide, epoch: int, tables: list[pa.Table], holder: Holder = HOLDER) -> Output:
    files = []
    for task, table in enumerate(tables):
        stager = side.stager(epoch, holder, task)
        for batch in table.to_batches():
            stager.write(batch)
        files.append(stager.finish())
    return Output(SCHEMA, files=tuple(file for file in files if file is not None))


def test_epochs_are_there_once_and_in_order_and_who_comes_second_gets_the_firsts_fence(place: Place, out: Path) -> None:
    first, second = delta_sink(place), delta_sink(place)
    assert first.last_published() is None
    assert publish(first, 4).by == "r0.1"
    held = publish(second, 4, OTHER)
    assert (held.by, held.digest, held.rows) == ("r0.1", "digest-4", 3)
    assert publish(second, 5, OTHER).by == "r1.7"
    assert _code(lambda: publish(first, 7)) == "LS0507"
    assert (first.last_published(), first.publication(6)) == (5, None)
    assert first.rows(4) == rows_of(4) == ls.read(out, [4])
    assert ls.read(out) == pa.concat_tables([rows_of(4), rows_of(5)]).combine_chunks()
    log = Log(out)
    assert (log.epochs, log.rows()) == ([4, 5], _expected(4, 5))
    assert len(list((out / "data").iterdir())) == 2, "what the second one wrote is gone"


def test_a_large_epoch_is_written_by_tasks_and_the_publisher_only_names_the_files(place: Place, out: Path) -> None:
    side = delta_sink(place)
    worker = sink_side(delta("out"), "alerts", place)
    output = _staged(worker, 0, [rows_of(0, 3), rows_of(1, 2), SCHEMA.empty_table()])
    assert len(output.files) == 2
    assert Log(out).files == {}
    written = {path: path.stat().st_mtime_ns for path in (out / "data").iterdir()}
    side.publish(wanted(0, rows=5), output, HOLDER)
    assert {out / path: (out / path).stat().st_mtime_ns for path in Log(out).files} == written
    assert sorted(row["n"] for row in Log(out).rows()) == [0, 1, 2, 1000, 1001]
    again = _staged(worker, 0, [rows_of(0, 5)], OTHER)
    assert side.publish(wanted(0, OTHER, rows=5), again, OTHER).by == "r0.1"
    assert set((out / "data").iterdir()) == set(written)
    assert not any(Path(file.path).exists() for file in (*output.files, *again.files))


def test_an_epoch_without_rows_costs_no_commit_and_is_fenced_all_the_same(place: Place, out: Path) -> None:
    first, second = delta_sink(place), delta_sink(place)
    publish(first, 0)
    for epoch in (1, 2):
        empty = Publication(epoch, "nothing", 0, "r0.1", "v1")
        assert first.publish(empty, EMPTY, HOLDER).by == "r0.1"
        held = second.publish(Publication(epoch, "other", 0, "r1.7", "v1"), EMPTY, OTHER)
        assert (held.by, held.digest) == ("r0.1", "nothing")
    assert Log(out).epochs == [0]
    assert (second.last_published(), second.publication(3)) == (2, None)
    assert _code(lambda: publish(second, 4, OTHER)) == "LS0507"
    assert publish(second, 3, OTHER).by == "r1.7"
    again = delta_sink(place)
    assert publish(again, 1, OTHER, 0).digest == "nothing"
    assert publish(again, 3).by == "r1.7"
    assert again.rows(2) == SCHEMA.empty_table()
    assert (Log(out).epochs, Log(out).rows()) == ([0, 3], _expected(0, 3))


@pytest.mark.parametrize("point", ["checked", "committing"])
@pytest.mark.parametrize("key", [None, "n"])
def test_one_who_looked_before_another_committed_is_refused_and_finds_the_others(
    place: Place, out: Path, key: str | None, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockstep.connect.sinks import delta as module

    slow, quick = delta_sink(place, key=key), delta_sink(place, key=key)
    publish(slow, 0)
    target: Any = module if point == "checked" else Table
    name = "check_not_retired" if point == "checked" else "merge" if key else "append"
    real = getattr(target, name)
    raced: list[int] = []

    def late(*arguments: Any) -> None:
        if not raced:
            raced.append(1)
            assert publish(quick, 1, OTHER).by == "r1.7"
        real(*arguments)

    monkeypatch.setattr(target, name, late)
    assert publish(slow, 1).by == "r1.7"
    assert (Log(out).epochs, Log(out).rows()) == ([0, 1], _expected(0, 1))


@pytest.mark.parametrize("key", [None, "n"])
def test_a_commit_whose_answer_is_lost_is_found_by_its_fence(
    place: Place, out: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake.exceptions import DeltaError

    side = delta_sink(place, key=key)
    name = "merge" if key else "append"
    real = getattr(Table, name)

    def lost(self: Table, *arguments: Any) -> None:
        real(self, *arguments)
        raise DeltaError("the answer was lost")

    monkeypatch.setattr(Table, name, lost)
    assert publish(side, 0).by == "r0.1"
    assert publish(side, 0).by == "r0.1"
    assert (Log(out).epochs, Log(out).rows()) == ([0], _expected(0))


@pytest.mark.parametrize("key", [None, "n"])
def test_merging_files_beside_a_commit_delays_it_and_nothing_more(
    place: Place, out: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    side = delta_sink(place, key=key)
    publish(side, 0)
    publish(side, 1)
    name = "merge" if key else "append"
    real = getattr(Table, name)
    merged: list[int] = []

    def late(self: Table, *arguments: Any) -> None:
        if not merged:
            merged.append(DeltaTable(str(out)).optimize.compact()["numFilesRemoved"])
        real(self, *arguments)

    monkeypatch.setattr(Table, name, late)
    publish(side, 2)
    assert merged == [2]
    assert (Log(out).epochs, Log(out).rows()) == ([0, 1, 2], _expected(0, 1, 2))
    assert ls.read(out, [1]) == rows_of(1)


def _process(place: Place, replica: str, window: str = "", key: str = "", epochs: int = 6) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.connect.delta_for_connect", str(place.project), replica, window, key]
    return subprocess.Popen([*command, str(epochs)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("key", ["", "n"])
@pytest.mark.parametrize("window", WINDOWS)
def test_killed_in_any_window_the_epoch_is_whole_or_absent_and_another_goes_on(
    place: Place, out: Path, window: str, key: str
) -> None:
    process = _process(place, "r0", window, key)
    process.communicate(timeout=60)
    assert process.returncode == -9
    is_there = window != "staged"
    assert Log(out).rows() == _expected(*range(3 if is_there else 2))
    other = delta_sink(place, key=key or None)
    assert publish(other, 2, OTHER).by == ("r0.1" if is_there else "r1.7")
    assert publish(other, 3, OTHER).by == "r1.7"
    assert other.sweep(["r0.1"]) == (1 if window == "staged" and not key else 0)
    assert (Log(out).epochs, Log(out).rows()) == ([0, 1, 2, 3], _expected(0, 1, 2, 3))
    assert ls.read(out).num_rows == 12, "what was swept is not needed"


@pytest.mark.parametrize("key", ["", "n"])
def test_two_processes_race_for_every_epoch_and_each_is_there_once(place: Place, out: Path, key: str) -> None:
    processes = [_process(place, replica, key=key, epochs=25) for replica in ("r0", "r1")]
    won = [int(process.communicate(timeout=120)[0]) for process in processes]
    assert sum(won) == 25
    assert (Log(out).epochs, Log(out).rows()) == (list(range(25)), _expected(*range(25)))
    assert len(Log(out).files) == len(list((out / "data").iterdir())) or key


def test_killed_at_any_moment_nothing_is_lost_or_doubled(place: Place, out: Path) -> None:
    chance, epochs = random.Random(5), 400
    for replica in range(6):
        process = _process(place, f"r{replica}", epochs=epochs)
        try:
            already = len(Log(out).epochs)
            while process.poll() is None and len(Log(out).epochs) < already + 5:
                time.sleep(0.01)
            time.sleep(chance.random() * 0.1)
        finally:
            process.kill()
            process.communicate(timeout=10)
    done = len(Log(out).epochs)
    assert 25 <= done < epochs
    assert (Log(out).epochs, Log(out).rows()) == (list(range(done)), _expected(*range(done)))
    side = delta_sink(place)
    side.sweep([f"r{replica}.1" for replica in range(6)])
    assert publish(side, done).by == "r0.1"
    assert Log(out).rows() == _expected(*range(done + 1))


def test_an_incarnation_whose_replica_has_published_since_is_refused(place: Place) -> None:
    zombie, successor = delta_sink(place), delta_sink(place)
    publish(zombie, 0, Holder("r0", 1))
    publish(successor, 1, Holder("r0", 2))
    assert publish(zombie, 1, Holder("r0", 1)).by == "r0.2", "what is published is only looked at"
    assert _code(lambda: publish(zombie, 2, Holder("r0", 1))) == "LS0534"
    assert publish(successor, 2, Holder("r0", 2)).by == "r0.2"


def test_a_table_has_one_owner_one_shape_and_is_never_a_strangers(place: Place, out: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable, Field, write_deltalake

    delta_sink(place).close()
    more = SCHEMA.append(pa.field("more", pa.int64()))
    elsewhere = Place(place.project, tmp_path / "other-home", "job")
    assert _code(lambda: delta_sink(place, sink="other")) == "LS0503"
    assert _code(lambda: delta_sink(place_in(tmp_path, "other"))) == "LS0503"
    assert _code(lambda: delta_sink(elsewhere)) == "LS0503", "another store counts epochs of its own"
    assert _code(lambda: delta_sink(place, more)) == "LS0512"
    assert _code(lambda: delta_sink(place, key="n")) == "LS0512"
    assert _code(lambda: delta_sink(place, partition_by="s")) == "LS0512"
    DeltaTable(str(out)).alter.add_columns([Field("note", "string")])  # type: ignore[arg-type]
    publish(delta_sink(place), 0)
    write_deltalake(str(tmp_path / "strangers"), rows_of(0))
    assert _code(lambda: delta_sink(place, path="strangers")) == "LS0503"
    assert _code(lambda: ls.read(tmp_path / "strangers")) == "LS0513"


def test_a_table_of_a_newer_format_is_left_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep.connect.sinks import delta as module

    monkeypatch.setattr(module, "FORMAT_VERSION", delta_table.FORMAT_VERSION + 1)
    delta_sink(place).close()
    monkeypatch.undo()
    assert _code(lambda: delta_sink(place)) == "LS0502"


ALL_TYPES = pa.table(
    {
        "flag": [True, None],
        "tiny": pa.array([-128, None], pa.int8()),
        "small": pa.array([-(2**15), None], pa.int16()),
        "int": pa.array([2**31 - 1, None], pa.int32()),
        "long": [2**63 - 1, None],
        "real": [math.inf, None],
        "float": pa.array([0.1, None], pa.float32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
        "day": pa.array([date(2024, 2, 29), None]),
        "at": pa.array([datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "local": pa.array([datetime(1, 1, 1), None], pa.timestamp("us")),
        "raw": pa.array([b"\x00\xff\\", None]),
        "text": ["tab\t, line\n, 'quote' and ünïcode", None],
        "list": pa.array([[1, None], []]),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array(
            [{"x": [b"a"], "y": -math.inf}, None], pa.struct([("x", pa.list_(pa.binary())), ("y", pa.float64())])
        ),
    }
)


@pytest.mark.parametrize("key", [None, "long"])
def test_every_type_comes_back_from_the_table(place: Place, out: Path, key: str | None) -> None:
    side = delta_sink(place, ALL_TYPES.schema, key=key)
    side.publish(wanted(0, rows=2), Output(ALL_TYPES.schema, ALL_TYPES), HOLDER)
    found = ls.read(out).sort_by("tiny")
    assert [name for name in ALL_TYPES.column_names if not found[name].equals(ALL_TYPES[name])] == []


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (pa.schema([("t", pa.time64("us"))]), {}),
        (pa.schema([("t", pa.duration("us"))]), {}),
        (pa.schema([("t", pa.list_(pa.timestamp("ns")))]), {}),
        (pa.schema([("a b", pa.int64())]), {}),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), {}),
        (pa.schema([("a", pa.list_(pa.int64()))]), {"key": "a"}),
        (pa.schema([("a", pa.float64()), ("b", pa.int64())]), {"partition_by": "a"}),
        (pa.schema([("a", pa.int64())]), {"partition_by": "a"}),
    ],
)
def test_columns_that_delta_cannot_hold_are_refused_before_anything_is_made(
    place: Place, out: Path, schema: pa.Schema, options: dict[str, str]
) -> None:
    assert _code(lambda: delta_sink(place, schema, **options)) == "LS0542"
    assert not out.exists()


def test_a_key_or_partition_that_is_no_column_is_refused(place: Place) -> None:
    assert _code(lambda: delta_sink(place, key="nobody")) == "LS0501"
    assert _code(lambda: delta_sink(place, partition_by="nobody")) == "LS0501"
    assert _code(lambda: delta_sink(place, pa.schema([("lockstep_epoch", pa.int64())]))) == "LS0501"


def test_partitions_are_in_the_log_and_each_file_holds_one(place: Place, out: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("country", pa.string()), ("day", pa.date32()), ("ok", pa.bool_())])
    chance = random.Random(3)
    rows = [
        {
            "n": n,
            "country": chance.choice([None, "DE", "a/b=c %25", "ü"]),
            "day": chance.choice([None, date(2024, 2, 29)]),
            "ok": chance.choice([None, True, False]),
        }
        for n in range(300)
    ]
    side = delta_sink(place, schema, partition_by=["country", "day", "ok"])
    tables = [pa.Table.from_pylist(rows[:100], schema), pa.Table.from_pylist(rows[100:200], schema)]
    staged = Output(schema, files=_staged(side, 0, tables).files)
    side.publish(wanted(0, rows=200), staged, HOLDER)
    side.publish(wanted(1, rows=100), Output(schema, pa.Table.from_pylist(rows[200:], schema)), HOLDER)
    assert sorted(ls.read(out).to_pylist(), key=lambda row: row["n"]) == rows
    combinations = {(row["country"], row["day"], row["ok"]) for row in rows}
    said = {
        tuple(file["partitionValues"][name] for name in ("country", "day", "ok")) for file in Log(out).files.values()
    }
    assert len(said) == len(combinations)
    assert ("DE", "2024-02-29", "true") in said
    assert len(Log(out).rows()) == 300
    assert DeltaTidier(delta("out", optimize_every=1), place.project).tidy() > 0
    assert sorted(ls.read(out).to_pylist(), key=lambda row: row["n"]) == rows
    bad = pa.Table.from_pylist([{**rows[0], "country": ""}], schema)
    files = sorted((out / "data").iterdir())
    assert _code(lambda: side.publish(wanted(2, rows=1), Output(schema, bad), HOLDER)) == "LS0515"
    assert sorted((out / "data").iterdir()) == files


@pytest.mark.parametrize("options", [{}, {"partition_by": "part"}])
def test_upserts_agree_with_a_plain_dict_however_rows_come(place: Place, out: Path, options: dict[str, str]) -> None:
    schema = pa.schema(
        [("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("v", pa.int64()), ("part", pa.string())]
    )
    chance, expected = random.Random(11), dict[str, tuple[int, int]]()
    side = delta_sink(place, schema, key=("a", "b", "c"), **options)
    for epoch, count in enumerate([5, 80, 40, 0, 120, 1]):
        rows: list[dict[str, Any]] = [
            {
                "a": chance.choice([None, 0, 1, 2]),
                "b": chance.choice([None, "", "x"]),
                "c": chance.choice([None, math.nan, 0.0, -0.0, math.inf]),
                "v": chance.randrange(10**9),
                "part": chance.choice([None, "p", "q"]),
            }
            for _ in range(count)
        ]
        expected |= {_key(row): (row["v"], epoch) for row in rows}
        output = Output(schema, pa.Table.from_pylist(rows, schema))
        if epoch == 4:
            ordered = schema.append(pa.field(ORDER, pa.string()))
            tasks: list[list[dict[str, Any]]] = [[], []]
            for number, row in enumerate(rows):
                chance.choice(tasks).append({**row, ORDER: f"{number:06}"})
            shares = [pa.Table.from_pylist(share, ordered) for share in tasks]
            output = Output(schema, files=_staged(side, epoch, shares).files)
        side.publish(wanted(epoch, rows=count), output, HOLDER)
    found = Log(out).rows()
    assert len(found) == len(expected)
    assert {_key(row): (row["v"], row["lockstep_epoch"]) for row in found} == expected
    assert Log(out).epochs == [0, 1, 2, 4, 5]
    assert side.rows(1) is None


def _key(row: dict[str, Any]) -> str:
    return repr((row["a"], row["b"], row["c"] + 0.0 if row["c"] is not None else None))


def test_the_log_gets_checkpoints_and_the_fence_outlives_them(place: Place, out: Path) -> None:
    side = delta_sink(place, checkpoint_every=5)
    for epoch in range(12):
        publish(side, epoch)
    assert len(list((out / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    again = delta_sink(place)
    assert publish(again, 11, OTHER).by == "r0.1"
    assert publish(again, 0, OTHER).digest == "digest-0"
    assert Log(out).rows() == _expected(*range(12))


def test_of_an_epoch_long_ago_only_that_it_is_published_is_known(place: Place, out: Path) -> None:
    few = Place(place.project, place.home, "job", publications_kept=3)
    side = delta_sink(few)
    for epoch in range(6):
        publish(side, epoch)
    assert side.publication(1) == Publication(1, "", 0, "", "")
    held = publish(side, 1, OTHER)
    assert (held.digest, held.rows) == ("digest-1", 3)
    assert Log(out).epochs == list(range(6))


def test_a_missing_extra_is_one_error_that_names_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "find_spec", lambda name: None)
    with pytest.raises(ConnectError, match=r'LS0541[\s\S]*pip install "lockstep\[delta\]"'):
        DeltaSinkSide(delta("out"), "alerts", place).open(SCHEMA)


def test_stats_let_readers_skip_files_and_are_right(place: Place, out: Path) -> None:
    side = delta_sink(place)
    publish(side, 7)
    stats = [json.loads(file["stats"]) for file in Log(out).files.values()]
    assert stats == [
        {"numRecords": 3, "minValues": {"n": 7000, "lockstep_epoch": 7}, "maxValues": {"n": 7002, "lockstep_epoch": 7}}
    ]


def _stale(out: Path, names: set[str]) -> None:
    """Let the removals of these files be older than any retention, in the log itself."""
    for path in (out / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for action in lines:
            if action.get("remove", {}).get("path") in names:
                action["remove"]["deletionTimestamp"] = int((time.time() - 8 * 86_400) * 1000)
        path.write_text("\n".join(json.dumps(action) for action in lines) + "\n")


def test_small_files_are_merged_and_only_what_is_past_its_retention_is_removed(place: Place, out: Path) -> None:
    side, tidier = delta_sink(place, optimize_every=5), DeltaTidier(delta("out", optimize_every=5), place.project)
    for epoch in range(4):
        publish(side, epoch)
    assert tidier.tidy() == 0
    publish(side, 4)
    staged = _staged(side, 5, [rows_of(5)])
    old = set(Log(out).files)
    assert tidier.tidy() == 5
    assert len(Log(out).files) == 1
    assert all((out / path).exists() for path in old), "somebody may read the version before"
    side.sweep(["r0.1"])
    assert all((out / path).exists() for path in old)
    staged = _staged(side, 5, [rows_of(5)], OTHER)
    publish_staged = wanted(5, OTHER)
    _stale(out, old)
    for epoch in range(5, 10):
        if epoch == 5:
            side.publish(publish_staged, staged, OTHER)
        else:
            publish(side, epoch)
    waiting = _staged(side, 10, [rows_of(10)])
    assert tidier.tidy() > 0
    assert not any((out / path).exists() for path in old)
    side.publish(wanted(10), waiting, HOLDER)
    assert (Log(out).epochs, Log(out).rows()) == (list(range(11)), _expected(*range(11)))
    assert ls.read(out, [3]) == rows_of(3)


def test_tables_that_are_not_there_or_not_to_be_merged_are_left_alone(place: Place) -> None:
    assert DeltaTidier(delta("out"), place.project).tidy() == 0
    side = delta_sink(place)
    publish(side, 0)
    publish(side, 1)
    assert DeltaTidier(delta("out", optimize_every=0), place.project).tidy() == 0
