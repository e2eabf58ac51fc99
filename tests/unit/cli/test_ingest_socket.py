"""`lockstep ingest socket`: real sockets; most in this process, the ones about signals in processes of their own."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli import socket_lines
from lockstep.cli.ingest import Format, IngestTally, Keeper
from lockstep.cli.socket_lines import Gathered, LineSplitter, SocketLines, Stop
from lockstep.errors import StoreError
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import open_journal
from tests.unit.cli.conftest import Call


def _kept(folder: Path, name: str) -> list[dict[str, Any]]:
    journal = open_journal(folder / ".lockstep", name)
    try:
        ends = journal.ends().items()
        return [row for part, end in ends for batch in journal.read(part, 0, end) for row in batch.to_pylist()]
    finally:
        journal.close()


def _wait_until(folder: Path, name: str, count: int) -> None:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        try:
            if len(_kept(folder, name)) >= count:
                return
        except StoreError:
            pass  # not made yet
        time.sleep(0.02)
    raise AssertionError(f"{count} records did not come")


@contextmanager
def _server(*talks: bytes) -> Iterator[int]:
    """Accepts one connection after the other and sends each its bytes; the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for talk in talks:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(talk)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


@contextmanager
def _process(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lockstep", "ingest", "socket", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _port_said(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    said = process.stderr.readline()
    found = re.search(r"listening on 127\.0\.0\.1:(\d+)", said)
    assert found is not None, said
    return int(found[1])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"a\nbb\n", b"a\n\nbb", b"\n", b"\r\n\nabc\nd\r\n"])
def test_however_bytes_arrive_the_lines_are_the_same(data: bytes, size: int) -> None:
    splitter = LineSplitter()
    lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    *expected, rest = data.replace(b"\r\n", b"\n").split(b"\n")
    assert (lines, splitter.rest.removesuffix(b"\r")) == (expected, rest)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_line_that_is_too_long_is_skipped_whole_and_holds_no_memory(size: int) -> None:
    data = b"ok\n" + b"x" * 60 + b"\nfine\n" + b"y" * 20 + b"\nlast\n"
    splitter = LineSplitter(line_bytes_max=10)
    lines = []
    for at in range(0, len(data), size):
        lines += splitter.feed(data[at : at + size])
        assert len(splitter.rest) <= 10
    assert lines == [b"ok", b"fine", b"last"]
    assert [one.line[:1] for one in splitter.refused] == [b"x", b"y"]


def test_lines_of_a_server_are_kept_in_order_with_counts_as_json(lockstep: Call, tmp_path: Path) -> None:
    with _server(b"to be or\r\nnot \xff\n\nto be") as port:
        said = lockstep("ingest", "socket", "--port", str(port), "--journal", "lines", "--once", "--json")
    assert said.code == 0
    assert said.json() == {
        "journal": "lines",
        "records": 3,
        "positions": {"0": {"first": 0, "end": 3}},
        "interrupted": False,
        "set_aside": 1,
    }
    assert [row["line"] for row in _kept(tmp_path, "lines")] == ["to be or", "", "to be"]
    (aside,) = _kept(tmp_path, "lines.ingest.dead-letters")
    assert aside["record"] == r"not \xff"
    assert "is not UTF-8" in aside["error"]
    assert "closed by the other side" in said.err
    assert "3 records acknowledged by journal lines, 1 set aside" in said.err


def test_json_lines_go_in_by_schema_and_bad_ones_aside_with_the_reason(lockstep: Call, tmp_path: Path) -> None:
    good = [json.dumps({"user": f"u{number}", "ok": number % 2 == 0}) for number in range(50)]
    lines = [*good[:20], '{"user": "x", "ok": "yes"}', *good[20:40], "not json", "", *good[40:]]
    with _server("\n".join(lines).encode()) as port:
        said = lockstep(
            *("ingest", "socket", "--port", str(port), "--journal", "logins", "--once"),
            *("--format", "jsonl", "--schema", "user string, ok boolean"),
        )
    assert said.code == 0
    assert [row["user"] for row in _kept(tmp_path, "logins")] == [f"u{number}" for number in range(50)]
    aside = _kept(tmp_path, "logins.ingest.dead-letters")
    assert [row["record"] for row in aside] == ['{"user": "x", "ok": "yes"}', "not json"]
    assert aside[0]["error"].startswith('field "ok" should be boolean')


def test_a_text_journal_may_keep_the_time_and_an_existing_one_needs_no_schema(lockstep: Call, tmp_path: Path) -> None:
    for talk, more in [(b"one\n", ("--schema", "at timestamp, line string")), (b"two\n", ())]:
        with _server(talk) as port:
            said = lockstep("ingest", "socket", "--port", str(port), "--journal", "timed", "--once", *more)
        assert said.code == 0, said.err
    rows = _kept(tmp_path, "timed")
    assert [row["line"] for row in rows] == ["one", "two"]
    assert rows[0]["at"] < rows[1]["at"]
    assert not (tmp_path / ".lockstep" / "journals" / "timed.ingest.dead-letters").exists()


def test_what_cannot_work_is_refused_before_anything_is_read(lockstep: Call, tmp_path: Path) -> None:
    open_journal(tmp_path / ".lockstep", "logins", parse_schema("user string, ok boolean")).close()
    assert "LS0014" in lockstep("ingest", "socket", "--journal", "logins", "--once").err
    assert "LS0410" in lockstep("ingest", "socket", "--journal", "none", "--format", "jsonl").err
    refused = lockstep("ingest", "socket", "--listen", "--host", "0.0.0.0", "--journal", "lines")
    assert (refused.code, "LS0013" in refused.err, "--allow-remote" in refused.err) == (2, True, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot listen" in lockstep("ingest", "socket", "--listen", "--port", port, "--journal", "lines").err


def test_a_broken_connection_is_made_again_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_lines, "BACK_OFF_S", 0.01)
    monkeypatch.setattr(socket_lines, "BACK_OFF_MAX_S", 0.04)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    stop = Stop()
    said: list[str] = []
    reader = SocketLines("127.0.0.1", port, stop, said.append, listen=False, once=False)

    def serve() -> None:
        time.sleep(0.15)  # nobody listens at first
        with socket.create_server(("127.0.0.1", port), backlog=1) as listener:
            for talk in (b"one\ntw", b"two\n", b"three\n"):
                connection, _ = listener.accept()
                connection.sendall(talk)
                if talk == b"one\ntw":
                    time.sleep(0.1)
                    # The connection breaks instead of ending: the half line is none.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    gathered = Gathered()
    for batch in reader.batches():
        gathered.lines += batch.lines
        gathered.refused += batch.refused
        if gathered.lines[-1:] == [b"three"]:
            stop.ask()
    thread.join(10)
    reader.close()
    stop.close()
    assert gathered.lines == [b"one", b"two", b"three"]
    assert [(one.line, one.reason) for one in gathered.refused] == [(b"tw", "the connection broke within the line.")]
    pauses = [text.split("again in ")[1] for text in said if "cannot connect" in text]
    assert len(pauses) > 2
    assert "lost: Connection reset by peer" in "".join(said)


def test_a_sender_waits_while_the_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two batches nothing is read: a sender that is too fast is held back by TCP, not kept in memory."""
    monkeypatch.setattr(socket_lines, "BATCH_BYTES_MAX", 64 * 1024)
    line, sent = b"x" * 1023 + b"\n", 0
    total = 40_000
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            nonlocal sent
            connection, _ = listener.accept()
            with connection:
                for _ in range(total):
                    connection.sendall(line)
                    sent += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        stop = Stop()
        port = listener.getsockname()[1]
        reader = SocketLines("127.0.0.1", port, stop, lambda _: None, listen=False, once=True)
        count = 0
        for number, batch in enumerate(reader.batches()):
            count += len(batch.lines)
            assert len(batch.lines) <= 2 * 64 + 1
            if number == 3:
                time.sleep(0.5)  # the disk
                held_back = sent
                time.sleep(0.2)
                assert sent == held_back < total
        thread.join(10)
        stop.close()
    assert count == total


def test_many_senders_at_once_each_in_its_own_order_and_ctrl_c_keeps_all_of_it(tmp_path: Path) -> None:
    with _process(tmp_path, "--listen", "--port", "0", "--journal", "lines") as process:
        port = _port_said(process)

        def send(name: int) -> None:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                for number in range(200):
                    connection.sendall(b"%d %d\n" % (name, number))

        senders = [threading.Thread(target=send, args=(name,)) for name in range(5)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(10)
        _wait_until(tmp_path, "lines", 1000)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"whole\nhalf a li")
            _wait_until(tmp_path, "lines", 1001)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "1,001 records acknowledged by journal lines, 1 set aside" in err
    rows = [row["line"].split() for row in _kept(tmp_path, "lines")][:1000]
    for name in range(5):
        assert [int(number) for who, number in rows if who == str(name)] == list(range(200))
    assert [row["error"] for row in _kept(tmp_path, "lines.ingest.dead-letters")] == [
        "the reading was stopped within the line."
    ]


def test_waiting_for_a_server_that_is_not_there_ends_at_ctrl_c(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with _process(tmp_path, "--port", str(port), "--journal", "lines") as process:
        assert process.stderr is not None
        assert "cannot connect to 127.0.0.1" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "0 records acknowledged" in err


def test_one_bad_line_among_thousands_costs_few_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep.store import arrow

    target = open_journal(tmp_path, "numbers", parse_schema("n bigint"))
    aside = open_journal(tmp_path, "aside", parse_schema("line string, reason string, at timestamp"))
    tally = IngestTally("numbers")
    calls = 0
    real = arrow.batch_from_json_lines

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(*arguments)

    monkeypatch.setattr(arrow, "batch_from_json_lines", counted)
    lines = [b'{"n": %d}' % number for number in range(4096)]
    lines[1234] = b"{}}"
    Keeper(target, lambda: aside, tally, Format.jsonl).keep(Gathered(lines))
    assert (tally.records, tally.set_aside) == (4095, 1)
    assert calls <= 2 * 12 + 1
    target.close()
    aside.close()
