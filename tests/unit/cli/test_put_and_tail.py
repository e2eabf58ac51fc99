from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.cli import put as put_module
from lockstep.cli.put import line_batches
from lockstep.connect.protocols import Output, Place, Publication
from lockstep.connect.sinks.files import FilesSinkSide
from lockstep.connect.specs import files
from lockstep.errors import EnvironmentError_, StoreError
from lockstep.store.journal import open_journal
from lockstep.store.protocols import Holder
from tests.unit.cli.conftest import Call

SCHEMA = "user string, ok boolean"
LINES = '{"user": "ann", "ok": true}\n{"user": "bob"}\n'


def _kept(folder: Path, name: str = "logins") -> list[dict[str, Any]]:
    journal = open_journal(folder / ".lockstep", name)
    try:
        return [
            row
            for partition, end in journal.ends().items()
            for batch in journal.read(partition, 0, end)
            for row in batch.to_pylist()
        ]
    finally:
        journal.close()


def test_lines_from_stdin_are_kept_and_their_positions_told(lockstep: Call, tmp_path: Path) -> None:
    said = lockstep("put", "logins", "--schema", SCHEMA, stdin=LINES)
    assert (said.code, said.out) == (0, "logins partition 0: 0 to 1\n")
    assert "2 records acknowledged" in said.err
    assert _kept(tmp_path) == [{"user": "ann", "ok": True}, {"user": "bob", "ok": None}]


def test_a_file_is_appended_after_what_is_there(lockstep: Call, tmp_path: Path) -> None:
    lockstep("put", "logins", "--schema", SCHEMA, stdin=LINES)
    (tmp_path / "more.jsonl").write_text('\n{"user": "cyd", "ok": false}')
    said = lockstep("put", "logins", "more.jsonl", "--json")
    assert said.json() == {
        "journal": "logins",
        "records": 1,
        "repeated": 0,
        "positions": {"0": {"first": 2, "end": 3}},
        "interrupted": False,
    }
    assert [row["user"] for row in _kept(tmp_path)] == ["ann", "bob", "cyd"]


def test_a_line_that_does_not_fit_is_named_and_its_batch_refused_whole(lockstep: Call, tmp_path: Path) -> None:
    said = lockstep("put", "logins", "--schema", SCHEMA, stdin=LINES + '{"user": "cyd", "ok": "yes"}\n')
    assert said.code == 2
    assert "line 3" in said.err
    assert "0 records acknowledged" in said.err
    assert _kept(tmp_path) == []


def test_batches_before_a_bad_line_stay_and_are_told(
    lockstep: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_module, "BATCH_BYTES_MAX", len(LINES))
    said = lockstep("put", "logins", "--schema", SCHEMA, stdin=LINES * 3 + "not json\n" + LINES)
    assert said.code == 2
    assert "line 7" in said.err
    assert said.out == "logins partition 0: 0 to 5\n"
    assert len(_kept(tmp_path)) == 6


def test_an_unknown_journal_without_a_schema_is_refused_and_nothing_made(lockstep: Call, tmp_path: Path) -> None:
    said = lockstep("put", "logins", stdin=LINES)
    assert said.code == 2
    assert "LS0410" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_named(lockstep: Call) -> None:
    said = lockstep("put", "logins", "nowhere.jsonl", "--schema", SCHEMA)
    assert said.code == 2
    assert "LS0009 nowhere.jsonl cannot be read" in said.err


@pytest.mark.parametrize("bytes_max", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"a\nbb\n", b"a\n\nbb", b"\n", b"\n\nabc\nd\r\n"])
def test_however_the_input_is_cut_the_lines_are_those_of_the_whole(
    data: bytes, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_module, "BATCH_BYTES_MAX", bytes_max)
    lines: list[bytes] = []
    for number, batch in line_batches(io.BytesIO(data)):
        assert number == len(lines) + 1
        lines += batch
    expected = data.split(b"\n")
    assert lines == (expected[:-1] if expected[-1] == b"" else expected)


def test_input_without_line_ends_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_module, "BATCH_BYTES_MAX", 10)
    monkeypatch.setattr(put_module, "LINE_BYTES_MAX", 100)
    with pytest.raises(EnvironmentError_, match="line 2 does not end"):
        list(line_batches(io.BytesIO(b"first\n" + b"x" * 1000)))


def test_lines_that_trickle_in_are_kept_before_the_input_ends_and_ctrl_c_tells_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lockstep", "put", "logins", "--schema", SCHEMA]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(LINES.encode() + b'{"user": "not yet wh')
            process.stdin.flush()
            _wait_for_records(tmp_path, 2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, b"logins partition 0: 0 to 1\n")
    assert err == b"stopped; 2 records acknowledged by journal logins\n"


def _wait_for_records(folder: Path, count: int) -> None:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        try:
            if len(_kept(folder)) >= count:
                return
        except StoreError as not_made_yet:
            assert not_made_yet.code == "LS0410"
        time.sleep(0.05)
    pytest.fail("the records did not arrive")


@pytest.fixture
def sink(tmp_path: Path) -> FilesSinkSide:
    """A files sink with epochs 0 to 5 published; the odd ones have no rows."""
    side = FilesSinkSide(
        files("out/alerts", format="jsonl"), "alerts", Place(tmp_path, tmp_path / ".lockstep", "alerts")
    )
    schema = pa.schema([("user", pa.string()), ("n", pa.int64())])
    side.open(schema)
    for epoch in range(6):
        rows = [] if epoch % 2 else [{"user": "ann", "n": epoch}, {"user": "bobby", "n": 10 * epoch}]
        _publish(side, epoch, pa.Table.from_pylist(rows, schema))
    return side


def _publish(side: FilesSinkSide, epoch: int, table: pa.Table) -> None:
    wanted = Publication(epoch, f"digest-{epoch}", table.num_rows, "r0.1", "v1", published_us=1_700_000_000_000_000)
    side.publish(wanted, Output(table.schema, table), Holder("r0", 1))


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_tail_shows_the_newest_epochs_with_rows(lockstep: Call, sink: FilesSinkSide) -> None:
    said = lockstep("tail", "out/alerts", "--last", "2", "--json")
    assert [(line["epoch"], line["row"]["n"]) for line in _lines(said.out)] == [(2, 2), (2, 20), (4, 4), (4, 40)]


def test_tail_for_people_has_data_on_stdout_and_epochs_on_stderr(lockstep: Call, sink: FilesSinkSide) -> None:
    said = lockstep("tail", "out/alerts", "--epochs", "4:")
    assert said.out == "user  n\nann   4\nbobby  40\n"
    assert said.err.startswith("epoch 4, published by r0.1 at ")


def test_tail_of_a_range_of_epochs(lockstep: Call, sink: FilesSinkSide) -> None:
    assert [line["epoch"] for line in _lines(lockstep("tail", "out/alerts", "--epochs", "0:3", "--json").out)] == [
        0,
        0,
        2,
        2,
    ]
    assert "no rows" in lockstep("tail", "out/alerts", "--epochs", "3").err


def test_tail_follows_until_the_last_epoch_that_was_asked_for(lockstep: Call, sink: FilesSinkSide) -> None:
    later = pa.Table.from_pylist([{"user": "eve", "n": 7}], pa.schema([("user", pa.string()), ("n", pa.int64())]))
    timer = threading.Timer(0.3, lambda: _publish(sink, 6, later))
    timer.start()
    said = lockstep("tail", "out/alerts", "--follow", "--epochs", "4:6", "--json")
    timer.join()
    assert [(line["epoch"], line["row"]["user"]) for line in _lines(said.out)][-1] == (6, "eve")


def test_tail_of_a_journal_shows_its_newest_records(lockstep: Call) -> None:
    lockstep("put", "logins", "--schema", SCHEMA, stdin=LINES * 2)
    said = lockstep("tail", "logins", "--last", "1", "--json")
    assert _lines(said.out) == [{"partition": 0, "position": 3, "row": {"user": "bob", "ok": None}}]
    assert lockstep("tail", "logins").out.splitlines()[0].split() == ["user", "ok"]
    assert "LS0007" in lockstep("tail", "logins", "--epochs", "1:2").err


def test_tail_of_nothing_names_the_journals_there_are(lockstep: Call) -> None:
    lockstep("put", "logins", "--schema", SCHEMA, stdin=LINES)
    said = lockstep("tail", "login")
    assert said.code == 2
    assert "LS0010" in said.err
    assert "did you mean logins?" in said.err


def test_compact_merges_and_the_rows_stay(lockstep: Call, sink: FilesSinkSide) -> None:
    before = lockstep("tail", "out/alerts", "--epochs", "0:5", "--json").out
    said = lockstep("compact", "out/alerts", "--keep-last", "2", "--json")
    assert said.json()["epochs_merged"] == 4
    assert lockstep("tail", "out/alerts", "--epochs", "0:5", "--json").out == before
    assert "LS0010" in lockstep("compact", "nowhere").err


def test_the_pipe_may_close_early(tmp_path: Path, lockstep: Call) -> None:
    lockstep("put", "logins", "--schema", SCHEMA, stdin=LINES * 20_000)
    command = f"{shlex.quote(sys.executable)} -m lockstep tail logins --last 100000 --json | head -1"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
