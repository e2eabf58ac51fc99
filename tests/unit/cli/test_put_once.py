"""`lockstep put --once`: an input is written once, however often it is put and wherever a put was broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.cli import put as put_module
from tests.unit.cli.conftest import Call
from tests.unit.connect.test_writing import kept

SCHEMA = "user string, n bigint"


def lines(first: int, end: int) -> str:
    return "".join(f"{json.dumps({'user': 'Žofie', 'n': n})}\n" for n in range(first, end))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of about four lines."""
    monkeypatch.setattr(put_module, "CHUNK_BYTES", 130)


def numbers(project: Path) -> list[object]:
    return [row["n"] for row in kept(project)]


def test_a_file_that_is_put_twice_is_written_once(lockstep: Call, tmp_path: Path, small_chunks: None) -> None:
    (tmp_path / "day.jsonl").write_text(lines(0, 50))
    first = lockstep("put", "logins", "day.jsonl", "--schema", SCHEMA, "--once", "day 1", "--json")
    assert (first.json()["records"], first.json()["repeated"]) == (50, 0)
    again = lockstep("put", "logins", "day.jsonl", "--once", "day 1", "--json")
    assert (again.code, again.json()["records"], again.json()["repeated"]) == (0, 0, 50)
    assert "0 records acknowledged by journal logins, 50 were there already" in again.err
    assert numbers(tmp_path) == list(range(50))
    assert lockstep("put", "logins", "day.jsonl", "--once", "day 2", "--json").json()["records"] == 50


def test_a_put_that_a_bad_line_broke_off_goes_on_when_the_line_is_mended(
    lockstep: Call, tmp_path: Path, small_chunks: None
) -> None:
    refused = lockstep(
        *("put", "logins", "--schema", SCHEMA, "--once", "day"), stdin=lines(0, 20) + "not json\n" + lines(21, 40)
    )
    assert refused.code == 2
    assert "line 21" in refused.err
    written = len(numbers(tmp_path))
    assert 0 < written <= 20
    mended = lockstep("put", "logins", "--once", "day", "--json", stdin=lines(0, 40))
    assert mended.json()["repeated"] == written
    assert numbers(tmp_path) == list(range(40))


def test_an_input_that_was_changed_where_it_is_written_is_refused(
    lockstep: Call, tmp_path: Path, small_chunks: None
) -> None:
    written = lines(0, 42)
    assert len(written) % put_module.CHUNK_BYTES < 60, "its last chunk has room for another line"
    lockstep("put", "logins", "--schema", SCHEMA, "--once", "day", stdin=written)
    for changed in (lines(1, 42), written + lines(99, 100)):
        said = lockstep("put", "logins", "--once", "day", stdin=changed)
        assert said.code == 2
        assert "LS0428" in said.err
    assert numbers(tmp_path) == list(range(42))


def test_a_chunk_has_the_name_of_the_input_and_its_number(lockstep: Call, tmp_path: Path) -> None:
    lockstep("put", "logins", "--schema", SCHEMA, "--once", "day", stdin=lines(0, 3))
    with ls.Journal("logins", project=tmp_path) as journal:
        assert journal.put([{"user": "Žofie", "n": n} for n in range(3)], once="day/1").repeated


def test_an_empty_input_and_one_of_empty_lines_take_no_name(lockstep: Call, tmp_path: Path) -> None:
    for nothing in ("", "\n\n"):
        said = lockstep("put", "logins", "--schema", SCHEMA, "--once", "day", "--json", stdin=nothing)
        assert (said.code, said.json()["records"]) == (0, 0)
    assert lockstep("put", "logins", "--once", "day", "--json", stdin=lines(0, 2)).json()["records"] == 2
    assert "LS0429" in lockstep("put", "logins", "--once", "", stdin=lines(0, 2)).err
    assert "LS0431" in lockstep("put", "kafka://h1:9092/logins", stdin=lines(0, 2)).err
    assert numbers(tmp_path) == [0, 1]


_KILLED = """
import os, signal, sys
from lockstep.cli import put
from lockstep.cli.main import main
from lockstep.store.journal import SqliteJournal

put.CHUNK_BYTES = 130
real, left = SqliteJournal._commit, [3]

def killed(self, appends):
    placed = real(self, appends)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return placed

SqliteJournal._commit = killed
main(["put", "logins", "--schema", "user string, n bigint", "--once", "day"])
"""


def test_a_put_that_was_killed_before_its_answer_goes_on_whatever_pieces_its_input_comes_in(
    lockstep: Call, tmp_path: Path, small_chunks: None
) -> None:
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", _KILLED], cwd=tmp_path, stdin=reading) as process:
        os.close(reading)
        with os.fdopen(writing, "wb", buffering=0) as trickle:
            data = lines(0, 40).encode()
            for at in range(0, len(data), 7):
                try:
                    trickle.write(data[at : at + 7])
                except BrokenPipeError:
                    break
        assert process.wait(60) == -signal.SIGKILL
    written = len(numbers(tmp_path))
    assert 0 < written < 40
    said = lockstep("put", "logins", "--once", "day", "--json", stdin=lines(0, 40))
    assert (said.json()["repeated"], said.json()["records"]) == (written, 40 - written)
    assert numbers(tmp_path) == list(range(40))
