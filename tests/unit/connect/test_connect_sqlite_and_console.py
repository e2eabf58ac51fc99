"""SQLite tables and the console: data and fence in one act, or as close as it gets."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lockstep.connect.protocols import ORDER, Output, Place, Publication, SinkSide
from lockstep.connect.reading import read
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks.console import ConsoleSinkSide
from lockstep.connect.sinks.sqlite import FENCES_KEPT, SqliteSinkSide
from lockstep.connect.specs import SqliteSink, console, sqlite
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder
from lockstep.store.sqlite_store import open_store
from tests.unit.connect.sinks_for_connect import (
    CHANGES,
    HOLDER,
    SCHEMA,
    changed,
    in_child,
    publish,
    rows_of,
    sqlite_sink,
    wanted,
)

OTHER = Holder("r1", 7)


def _die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _code(act: Any) -> str:
    with pytest.raises(ConnectError) as caught:
        act()
    return caught.value.code


def test_rows_and_fence_are_there_once_and_in_order(place: Place) -> None:
    first, second = sqlite_sink(place), sqlite_sink(place)
    assert first.last_published() is None
    assert publish(first, 4).by == "r0.1"
    assert publish(second, 4, OTHER).by == "r0.1"
    assert publish(second, 5, OTHER, count=0).by == "r1.7"
    assert _code(lambda: publish(first, 7)) == "LS0507"
    assert (first.last_published(), first.publication(6)) == (5, None)
    assert first.rows(4) == rows_of(4)
    assert read(place.project / "out.db", table="alerts") == rows_of(4)
    with sqlite3.connect(place.project / "out.db") as connection:
        assert connection.execute("SELECT n, s, lockstep_epoch FROM alerts LIMIT 1").fetchall() == [
            (4000, "row 4000", 4)
        ]
        assert connection.execute("SELECT epoch, digest FROM _lockstep_epochs").fetchall() == [
            (4, "digest-4"),
            (5, "digest-5"),
        ]
    connection.close()
    first.close()
    second.close()


def test_large_epochs_are_staged_and_inserted_by_the_driver(place: Place) -> None:
    side = sqlite_sink(place)
    staged = []
    for task in range(2):
        stager = sink_side(sqlite("out.db", table="alerts"), "alerts", place).stager(0, HOLDER, task)
        stager.write(rows_of(task).to_batches()[0])
        if (file := stager.finish()) is not None:
            staged.append(file)
    side.publish(wanted(0, rows=6), Output(SCHEMA, files=tuple(staged)), HOLDER)
    assert read(place.project / "out.db", table="alerts") == pa.concat_tables([rows_of(0), rows_of(1)])
    assert not any(Path(file.path).exists() for file in staged)
    left = side.stager(1, HOLDER, 0)
    left.write(rows_of(1).to_batches()[0])
    left.finish()
    assert (side.sweep(["r1.7"]), side.sweep(["r0.1"])) == (0, 1)
    side.close()


def test_every_type_comes_back_from_the_table(place: Place) -> None:
    table = pa.table(
        {
            "flag": [True, None],
            "real": [1.5, None],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
            "day": pa.array([date(2024, 2, 29), None]),
            "at": pa.array([datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "raw": pa.array([b"\x00\xff", None]),
            "list": pa.array([[1, None], []]),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"x": [b"a"]}, None], pa.struct([("x", pa.list_(pa.binary()))])),
            'odd "name"': ["a", "b"],
        }
    )
    side = sink_side(sqlite("out.db", table="alerts"), "alerts", place)
    side.open(table.schema)
    side.publish(wanted(0, rows=2), Output(table.schema, table), HOLDER)
    side.close()
    assert read(place.project / "out.db", table="alerts") == table
    connection = sqlite3.connect(place.project / "out.db")
    row = connection.execute("SELECT at, price, day, list FROM alerts").fetchone()
    connection.close()
    assert row == ("2024-01-01T00:00:00.000005Z", "1.50", "2024-02-29", "[1,null]")


def test_with_a_key_the_last_row_of_the_newest_epoch_is_kept_however_it_was_staged(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    epochs = [[{"n": 1, "s": "9"}, {"n": 3, "s": "old"}], [{"n": 1, "s": str(s)} for s in range(13)]]
    ordered = schema.append(pa.field(ORDER, pa.string()))
    staged = [{"n": 1, "s": str(s), ORDER: f"{s:03}"} for s in range(13)]
    for number, tasks in enumerate([None, [staged], [staged[::2], staged[1::2]], [staged[7:], staged[:7]]]):
        where = Place(tmp_path / str(number), tmp_path / str(number) / ".lockstep", "job")
        side = sqlite_sink(where, key="n")
        side.publish(wanted(0), Output(schema, pa.Table.from_pylist(epochs[0], schema)), HOLDER)
        files = []
        for task, rows in enumerate(tasks or []):
            stager = side.stager(1, HOLDER, task)
            for row in rows:
                stager.write(pa.RecordBatch.from_pylist([row], ordered))
            files.append(stager.finish())
        output = Output(schema, files=tuple(file for file in files if file is not None))
        side.publish(wanted(1), output if tasks else Output(schema, pa.Table.from_pylist(epochs[1], schema)), HOLDER)
        assert side.rows(1) is None
        side.close()
        held = read(where.project / "out.db", table="alerts").sort_by("n").to_pylist()
        assert held == [{"n": 1, "s": "12"}, {"n": 3, "s": "old"}]


def test_a_null_is_a_value_of_a_key_like_any_other(place: Place) -> None:
    """As in Python's dicts: a key with nulls is equal to itself and to no other."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    keys = [(None, None), (None, "x"), (0, None), (None, ""), (0, ""), (None, None), (0, None), (None, "x"), (0, "x")]
    side = sink_side(sqlite("out.db", table="alerts", key=("a", "b")), "alerts", place)
    side.open(schema)
    expected: dict[Any, Any] = {}
    for epoch in range(2):
        rows = [{"a": a, "b": b, "v": 10 * epoch + n} for n, (a, b) in enumerate(keys[epoch:])]
        expected |= {(row["a"], row["b"]): row["v"] for row in rows}
        side.publish(wanted(epoch), Output(schema, pa.Table.from_pylist(rows, schema)), HOLDER)
    side.close()
    found = read(place.project / "out.db", table="alerts").to_pylist()
    assert len(found) == len(expected)
    assert {(row["a"], row["b"]): row["v"] for row in found} == expected


def test_rows_that_are_taken_back_are_deleted_in_the_same_act(place: Place) -> None:
    chance, held = Random(3), dict[Any, Any]()
    side = sink_side(sqlite("out.db", table="alerts", key=("b", "a")), "alerts", place)
    side.open(CHANGES)
    for epoch in range(12):
        rows = pa.Table.from_pylist(changed(chance, held, 6), CHANGES)
        side.publish(wanted(epoch), Output(CHANGES, rows), HOLDER)
        # Published again, as after a crash, they change nothing.
        side.publish(wanted(epoch), Output(CHANGES, rows), OTHER)
        found = read(place.project / "out.db", table="alerts").to_pylist()
        assert {(row["a"], row["b"]): row["v"] for row in found} == held
        assert len(found) == len(held) and all(len(row) == 3 for row in found)
    side.close()


def test_nan_is_a_value_of_a_key_too_and_not_null(place: Place) -> None:
    schema = pa.schema([("x", pa.float64()), ("v", pa.float64())])
    values = [math.nan, None, -0.0, math.inf, -math.inf, 0.0, math.nan]
    side = sink_side(sqlite("out.db", table="alerts", key="x"), "alerts", place)
    side.open(schema)
    rows = [{"x": value, "v": value} for value in values]
    side.publish(wanted(0), Output(schema, pa.Table.from_pylist(rows, schema)), HOLDER)
    side.close()
    found = read(place.project / "out.db", table="alerts").to_pylist()
    assert sorted(map(repr, (row["x"] for row in found))) == ["-inf", "0.0", "None", "inf", "nan"]
    assert all(repr(row["x"]) == repr(row["v"]) for row in found)


def test_a_table_of_an_earlier_release_goes_on_but_says_what_to_do_about_a_null_key(place: Place) -> None:
    sqlite_sink(place, key=("n",)).close()
    connection = sqlite3.connect(place.project / "out.db")
    connection.execute("DROP TABLE alerts")
    connection.execute("CREATE TABLE alerts (n INTEGER NOT NULL, s TEXT, lockstep_epoch INTEGER NOT NULL, UNIQUE (n))")
    connection.execute("INSERT INTO alerts VALUES (1, 'old', 0)")
    connection.commit()
    connection.close()
    side = sqlite_sink(place, key=("n",))
    side.publish(wanted(0), Output(SCHEMA, pa.Table.from_pylist([{"n": 1, "s": "new"}], SCHEMA)), HOLDER)
    table = pa.Table.from_pylist([{"n": 2, "s": "a"}, {"n": None, "s": "b"}], SCHEMA)
    assert _code(lambda: side.publish(wanted(1, rows=2), Output(SCHEMA, table), HOLDER)) == "LS0515"
    assert side.last_published() == 0
    assert read(place.project / "out.db", table="alerts").to_pylist() == [{"n": 1, "s": "new"}]
    side.close()


def test_a_table_has_one_owner_one_shape_and_is_never_a_strangers(place: Place) -> None:
    sqlite_sink(place).close()
    connection = sqlite3.connect(place.project / "out.db")
    connection.execute("CREATE TABLE Mine (x)")
    connection.commit()
    connection.close()
    other_job = Place(place.project, place.home, "other")
    more = SCHEMA.append(pa.field("more", pa.int64()))
    cases: list[tuple[SqliteSink, str, Place, pa.Schema, str]] = [
        (sqlite("out.db", table="alerts"), "other", place, SCHEMA, "LS0503"),
        (sqlite("out.db", table="ALERTS"), "alerts", other_job, SCHEMA, "LS0503"),
        (sqlite("out.db", table="mine"), "alerts", place, SCHEMA, "LS0503"),
        (sqlite("out.db", table="alerts"), "alerts", place, more, "LS0512"),
        (sqlite("out.db", table="alerts", key="n"), "alerts", place, SCHEMA, "LS0512"),
        (sqlite("out.db", table="second", key="x"), "alerts", place, SCHEMA, "LS0501"),
        (sqlite("out.db", table="second"), "alerts", place, pa.schema([("lockstep_epoch", pa.int64())]), "LS0501"),
        (
            sqlite("out.db", table="second"),
            "alerts",
            place,
            pa.schema([("a", pa.int64()), ("A", pa.int64())]),
            "LS0501",
        ),
    ]
    for spec, sink, where, schema, code in cases:
        assert (
            _code(lambda spec=spec, sink=sink, where=where, schema=schema: sink_side(spec, sink, where).open(schema))
            == code
        )
    connection = sqlite3.connect(place.project / "out.db")
    connection.execute("UPDATE _lockstep_sinks SET format_version = 99")
    connection.commit()
    connection.close()
    assert _code(lambda: sqlite_sink(place)) == "LS0502"


def test_a_full_database_leaves_nothing_visible(place: Place) -> None:
    side = sqlite_sink(place)
    publish(side, 0)
    assert isinstance(side, SqliteSinkSide)
    pages = side._open().execute("PRAGMA page_count").fetchone()[0]
    side._open().execute(f"PRAGMA max_page_count={pages}")
    assert _code(lambda: publish(side, 1, count=5000)) == "LS0508"
    side.close()
    assert read(place.project / "out.db", table="alerts") == rows_of(0)


def test_a_locked_database_is_waited_for_and_then_named(place: Place) -> None:
    side = SqliteSinkSide(sqlite("out.db", table="alerts"), "alerts", place, locked_s=0)
    side.open(SCHEMA)
    holding = sqlite3.connect(place.project / "out.db", isolation_level=None)
    holding.execute("BEGIN IMMEDIATE")
    assert _code(lambda: publish(side, 0)) == "LS0511"
    holding.execute("ROLLBACK")
    holding.close()
    assert publish(side, 0).by == "r0.1"
    side.close()


def test_something_that_is_no_database_is_explained(place: Place) -> None:
    (place.project / "out.db").write_bytes(b"hello world, this is no database at all" * 50)
    assert _code(lambda: sqlite_sink(place)) == "LS0509"
    assert _code(lambda: read(place.project / "out.db", table="alerts")) == "LS0509"
    assert _code(lambda: read(place.project / "none.db", table="alerts")) == "LS0513"


def test_killed_while_inserting_the_epoch_is_absent_and_comes_whole(place: Place) -> None:
    side = sqlite_sink(place)
    publish(side, 0)
    side.close()

    def act() -> None:
        dying = sqlite_sink(place)
        assert isinstance(dying, SqliteSinkSide)
        dying._clock = _die  # it is asked between the rows and the fence
        publish(dying, 1)

    assert in_child(act) == -9
    assert read(place.project / "out.db", table="alerts") == rows_of(0)
    side = sqlite_sink(place)
    assert publish(side, 1, OTHER).by == "r1.7"
    side.close()
    assert read(place.project / "out.db", table="alerts").num_rows == 6


def test_the_console_prints_an_epoch_once(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [sink_side(console(rows_max=2), "show", place) for _ in range(2)]
    for side in sides:
        side.open(SCHEMA)
    assert publish(sides[0], 0).by == "r0.1"
    assert publish(sides[1], 0, OTHER).by == "r0.1"
    publish(sides[1], 1, OTHER, count=0)
    publish(sides[0], 1, count=0)
    assert capsys.readouterr().out == "-- show, epoch 0: 3 rows\nn  s\n0  row 0\n1  row 1\n... 1 more\n"
    assert [side.last_published() for side in sides] == [1, 1]
    assert sides[0].rows(0) is None
    for side in sides:
        side.close()


def test_the_console_looks_again_once_it_has_the_lease(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    side, other = (sink_side(console(), "show", place) for _ in range(2))
    for each in (side, other):
        each.open(SCHEMA)
    assert isinstance(side, ConsoleSinkSide)
    store = side._printed.store
    real = store.acquire

    def overtaken(name: str, holder: str, ttl_s: float) -> bool:
        publish(other, 0, OTHER)
        return real(name, holder, ttl_s)

    store.acquire = overtaken  # type: ignore[method-assign]
    assert publish(side, 0).by == "r1.7"
    assert capsys.readouterr().out.count("epoch 0") == 1
    side.close()
    other.close()


def test_the_console_waits_for_whoever_prints_and_takes_over_when_its_lease_ends(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    side = sink_side(console(), "show", place)
    side.open(SCHEMA)
    store = open_store(place.home, place.job)
    assert store.acquire("console:show", "r1.7", 0.2)
    assert publish(side, 0).by == "r0.1"
    assert capsys.readouterr().out.startswith("-- show, epoch 0")
    assert store.holder("console:show") is None
    store.close()
    side.close()


def test_the_console_remembers_recent_fences_and_agrees_about_old_ones(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    side = sink_side(console(), "show", place)
    side.open(SCHEMA)
    for epoch in range(40):
        publish(side, epoch, count=1)
    fence = side.publication(39)
    assert fence is not None
    assert fence.digest == "digest-39"
    assert publish(side, 0, OTHER, count=1).digest == "digest-0"
    assert side.publication(40) is None
    capsys.readouterr()
    side.close()


def test_what_a_console_prints_cannot_move_the_cursor(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    side = sink_side(console(), "show", place)
    side.open(SCHEMA)
    table = pa.Table.from_pylist([{"n": 1, "s": "\x1b[2J\nx" + "y" * 100}], SCHEMA)
    side.publish(wanted(0, rows=1), Output(SCHEMA, table), HOLDER)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert len(printed.splitlines()) == 3
    side.close()


def _empty(epoch: int, holder: Holder = HOLDER, digest: str = "nothing") -> Publication:
    return Publication(epoch, digest, 0, str(holder), "v1", epoch_time_us=epoch)


def _fences(place: Place) -> int:
    with closing(sqlite3.connect(place.project / "out.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM _lockstep_epochs").fetchone()[0])


def test_old_epochs_without_rows_become_runs_and_are_still_fenced(place: Place) -> None:
    side = sqlite_sink(place)
    for epoch in range(1000):
        if epoch in (300, 600):
            publish(side, epoch)
        else:
            side.publish(_empty(epoch), Output(SCHEMA, SCHEMA.empty_table()), HOLDER)
    assert _fences(place) < FENCES_KEPT + 2 + 4
    late = sqlite_sink(place)
    assert late.last_published() == 999
    assert late.publication(299) == Publication(299, "nothing", 0, str(HOLDER), "v1", side_time(side, 299), 299)
    assert late.publication(7) == Publication(7, "nothing", 0, "", "v1")
    assert late.publication(300) == side.publication(300) and late.rows(300) == rows_of(300)
    assert publish(late, 7, OTHER).digest == "nothing", "whoever comes second and has rows learns that there were none"
    assert [late.publication(epoch) is not None for epoch in (0, 301, 998, 1000)] == [True, True, True, False]
    assert read(place.project / "out.db", table="alerts") == pa.concat_tables([rows_of(300), rows_of(600)])


def side_time(side: SinkSide, epoch: int) -> int:
    held = side.publication(epoch)
    assert held is not None
    return held.published_us


def test_a_database_of_the_older_format_is_continued(place: Place) -> None:
    side = sqlite_sink(place)
    for epoch in range(3):
        side.publish(_empty(epoch), Output(SCHEMA, SCHEMA.empty_table()), HOLDER)
    side.close()
    with closing(sqlite3.connect(place.project / "out.db")) as connection, connection:
        connection.execute("ALTER TABLE _lockstep_epochs DROP COLUMN first_epoch")
        connection.execute("UPDATE _lockstep_sinks SET format_version = 1")
    side = sqlite_sink(place)
    for epoch in range(3, 200):
        side.publish(_empty(epoch), Output(SCHEMA, SCHEMA.empty_table()), HOLDER)
    assert side.last_published() == 199 and all(side.publication(epoch) is not None for epoch in range(200))
    assert _fences(place) < 200


def test_a_console_whose_reader_is_gone_prints_to_the_log_and_goes_on() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    text = "from lockstep.connect.sinks.console import _to_stdout\nfor n in range(3): _to_stdout(f'row {n}\\n')"
    with os.fdopen(writes, "wb") as out:
        done = subprocess.run([sys.executable, "-c", text], stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    said = done.stderr.splitlines()
    assert said[0].startswith("standard output is gone") and said[1:] == ["row 0", "row 1", "row 2"]
