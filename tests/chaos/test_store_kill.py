"""The store under real processes and real kills: agreement, nothing acknowledged is lost, nothing is half-written."""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import select
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

from lockstep.observe.promises import agreement, completeness
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.protocols import Entry, Item
from lockstep.store.sqlite_store import open_store

SPAWN = mp.get_context("spawn")
SCHEMA = parse_schema("writer int, call int, part int, size int")
EPOCHS = 40
WRITERS = 3
LIVES = 3
JOIN_S = 30.0


@pytest.fixture
def processes() -> Iterator[list[mp.process.BaseProcess]]:
    """What a test starts; all of it is gone when the test ends, however it ends."""
    started: list[mp.process.BaseProcess] = []
    yield started
    for process in started:
        if process.is_alive():
            process.kill()
        process.join(JOIN_S)


def seal_all(folder: Path, replica: str, answer: Connection) -> None:
    """Seal every epoch with positions of its own choosing, and report which entries it was given."""
    store = open_store(folder, "job")
    holder = store.begin(replica, os.getpid())
    choice = random.Random(replica)
    used: list[tuple[str, int, str]] = []
    cut = 0
    for epoch in range(EPOCHS):
        proposal = Entry(epoch, epoch_time_us=epoch, cut={"in": {"0": cut + choice.randrange(100)}})
        held = store.seal(proposal, holder, [Item("in", proposal.cut["in"]["0"] * 1000 + epoch, {"by": replica})])
        used.append((replica, epoch, repr(held)))
        cut = held.cut["in"]["0"]
    answer.send(used)
    store.close()


def test_eight_processes_that_race_to_seal_agree_on_every_epoch(
    tmp_path: Path, processes: list[mp.process.BaseProcess]
) -> None:
    answers = []
    for index in range(8):
        here, there = SPAWN.Pipe(duplex=False)
        processes.append(SPAWN.Process(target=seal_all, args=(tmp_path, f"r{index}", there)))
        answers.append(here)
    for process in processes:
        process.start()
    used = [one for answer in answers if answer.poll(JOIN_S) for one in answer.recv()]
    assert len(used) == 8 * EPOCHS
    assert agreement(used) == []
    store = open_store(tmp_path, "job")
    entries = store.entries(0, EPOCHS)
    assert completeness([(entry.epoch, entry.cut) for entry in entries]) == []
    sealers = [str(entry.sealed_by).partition(".")[0] for entry in entries]
    assert sorted(sealers) == sorted(str(body["by"]) for body in store.item_bodies("in")), "losers left no items"
    store.close()


def seal_until_killed(folder: Path, replica: str) -> None:
    """Seal whatever is next, for ever; reports every entry it was given, one short line each."""
    store = open_store(folder, "job")
    holder = store.begin(replica, os.getpid())
    while True:
        head = store.head()
        epoch, cut = (head.epoch + 1, head.cut["in"]["0"]) if head else (0, 0)
        held = store.seal(Entry(epoch, epoch, {"in": {"0": cut + 1}}), holder, [Item("in", cut + 1, {"e": epoch})])
        os.write(1, f"{held.epoch} {held.cut['in']['0']} {held.sealed_by}\n".encode())


def start_program(function: str, *arguments: object) -> tuple[int, int]:
    """A process that runs a function of this file with its stdout in a pipe: (pid, the pipe's reading end).

    Lines shorter than a pipe's atomic write are whole or absent, so what was read was acknowledged.
    """
    reading, writing = os.pipe()
    here = Path(__file__)
    code = f"""
import sys
from pathlib import PosixPath
sys.path.insert(0, {str(here.parent)!r})
from {here.stem} import {function}
{function}{arguments!r}
"""
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1)]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ, file_actions=actions)
    os.close(writing)
    return pid, reading


def drained(reading: int) -> list[list[str]]:
    """Everything a process wrote until it was killed, by line and word."""
    with os.fdopen(reading, "rb") as stream:
        whole, _, _ = stream.read().rpartition(b"\n")
    return [line.split() for line in whole.decode().splitlines()]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def wait_for_first_line(reading: int) -> None:
    assert select.select([reading], [], [], JOIN_S)[0], "the process said nothing"


def test_sealers_killed_at_any_moment_leave_a_ledger_without_gaps(tmp_path: Path) -> None:
    used: list[tuple[str, int, str]] = []
    for life in range(LIVES):
        programs = [start_program("seal_until_killed", tmp_path, f"r{index}") for index in range(2)]
        for _, reading in programs:
            wait_for_first_line(reading)
        time.sleep(random.Random(life).uniform(0.01, 0.15))
        for pid, _ in programs:
            kill(pid)
        for index, (_, reading) in enumerate(programs):
            used += [(f"r{index}", int(epoch), f"{cut} {by}") for epoch, cut, by in drained(reading)]
    store = open_store(tmp_path, "job")
    head = store.head()
    assert head is not None
    entries = store.entries(0, head.epoch)
    ledger = [("ledger", entry.epoch, f"{entry.cut['in']['0']} {entry.sealed_by}") for entry in entries]
    assert [entry.epoch for entry in entries] == list(range(head.epoch + 1))
    assert {epoch for _, epoch, _ in used} <= set(range(head.epoch + 1)), "what was acknowledged is there"
    assert agreement(ledger + used) == []
    assert [body["e"] for body in store.item_bodies("in")] == list(range(head.epoch + 1)), "one item with each entry"
    store.close()


def call_batch(writer: int, call: int, size: int) -> pa.RecordBatch:
    columns = {"writer": [writer] * size, "call": [call] * size, "part": range(size), "size": [size] * size}
    return pa.record_batch({name: pa.array(values, pa.int32()) for name, values in columns.items()})


def append_until_killed(folder: Path, writer: int) -> None:
    """Append calls of random size for ever; writes the number of each call and its position once acknowledged."""
    journal = open_journal(folder, "j", SCHEMA, partitions=2)
    choice = random.Random(writer)
    call = 0
    while True:
        size = choice.choice([1, 7, 300, 12_000])
        [(partition, (first, _))] = journal.append(call_batch(writer, call, size)).items()
        os.write(1, f"{call} {partition} {first}\n".encode())
        call += 1


def calls_in(journal: SqliteJournal) -> dict[tuple[int, int], tuple[int, int]]:
    """(writer, call) -> (partition, first position) of every call in the journal; fails if one is not whole."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for partition, end in journal.ends().items():
        table = pa.Table.from_batches(journal.read(partition, 0, end), journal.schema)
        assert table.num_rows == end, "positions are contiguous"
        columns = [table.column(name).to_pylist() for name in ("writer", "call", "part", "size")]
        rows = list(zip(*columns, strict=True))
        position = 0
        while position < end:
            writer, call, _, size = rows[position]
            assert rows[position : position + size] == [(writer, call, part, size) for part in range(size)]
            assert (writer, call) not in found, "a call is there once"
            found[writer, call] = (partition, position)
            position += size
    return found


def test_what_a_killed_writer_was_acknowledged_is_there_and_no_call_is_half_written(tmp_path: Path) -> None:
    acknowledged: dict[tuple[int, int], tuple[int, int]] = {}
    for life in range(LIVES):
        writers = [life * WRITERS + index for index in range(WRITERS)]
        programs = [start_program("append_until_killed", tmp_path, writer) for writer in writers]
        choice = random.Random(life)
        for _, reading in programs:
            wait_for_first_line(reading)
        for pid, _ in programs:
            time.sleep(choice.uniform(0.005, 0.06))
            kill(pid)
        for writer, (_, reading) in zip(writers, programs, strict=True):
            for call, partition, first in drained(reading):
                acknowledged[writer, int(call)] = (int(partition), int(first))
    journal = open_journal(tmp_path, "j")
    found = calls_in(journal)
    assert len(acknowledged) >= LIVES * WRITERS
    assert acknowledged.items() <= found.items()
    # Each life of a writer may have had one call on disk whose acknowledgement nobody heard.
    assert len(found) - len(acknowledged) <= LIVES * WRITERS
    journal.append(call_batch(999, 0, 5))
    assert (999, 0) in calls_in(journal)
    journal.close()


def seal_when_told(folder: Path, told: Connection) -> None:
    store = open_store(folder, "job")
    holder = store.begin("r0", os.getpid())
    told.send("ready")
    told.recv()
    store.seal(Entry(0, 5, {}), holder)
    store.close()


def test_waiting_ends_when_another_process_seals(tmp_path: Path, processes: list[mp.process.BaseProcess]) -> None:
    here, there = SPAWN.Pipe()
    processes.append(SPAWN.Process(target=seal_when_told, args=(tmp_path, there)))
    processes[0].start()
    assert here.poll(JOIN_S)
    assert here.recv() == "ready"
    store = open_store(tmp_path, "job")
    assert store.wait(0, timeout_s=0.05) is None
    here.send("seal")
    entry = store.wait(0, timeout_s=JOIN_S)
    assert entry is not None
    assert entry.sealed_by == "r0.1"
    store.close()
