"""`ls.Journal`: on disk when acknowledged, once under a name, whatever was killed and whoever else writes."""

from __future__ import annotations

import asyncio
import gc
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.errors import LockstepError, StoreError
from lockstep.store.journal import open_journal

SCHEMA = "user string, n bigint"


def records(first: int, end: int) -> list[dict[str, object]]:
    return [{"user": f"user {n % 3}", "n": n} for n in range(first, end)]


def kept(project: Path, name: str = "logins") -> list[dict[str, object]]:
    journal = open_journal(project / ".lockstep", name)
    try:
        return [
            row
            for partition, end in journal.ends().items()
            for batch in journal.read(partition, journal.begins()[partition], end)
            for row in batch.to_pylist()
        ]
    finally:
        journal.close()


def test_what_is_put_is_there_in_order(tmp_path: Path) -> None:
    with ls.Journal("logins", schema=SCHEMA, project=tmp_path) as journal:
        assert journal.put(records(0, 3)) == ls.Acknowledged(3, {0: (0, 3)})
        assert journal.put([]) == ls.Acknowledged(0, {})
        assert journal.put(records(3, 5)) == ls.Acknowledged(2, {0: (3, 5)})
    assert kept(tmp_path) == records(0, 5)


def test_the_project_is_the_folder_one_works_in_as_for_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ls.Journal("logins", schema=SCHEMA).put(records(0, 1))
    ls.Journal("logins").put(records(1, 2))
    gc.collect()
    assert kept(tmp_path) == records(0, 2)


def test_a_record_that_does_not_fit_keeps_the_whole_call_out(tmp_path: Path) -> None:
    with ls.Journal("logins", schema=SCHEMA, project=tmp_path) as journal:
        with pytest.raises(StoreError, match="LS0403 record 4: "):
            journal.put([*records(0, 3), {"n": 1.5}], once="batch")
        assert journal.put(records(0, 3), once="batch").records == 3, "the name was not taken"
    assert kept(tmp_path) == records(0, 3)


def test_a_name_is_written_once_also_after_a_restart_and_after_trimming(tmp_path: Path) -> None:
    for attempt in range(3):
        with ls.Journal("logins", schema=SCHEMA, project=tmp_path) as journal:
            said = journal.put(records(0, 3), once="Žofie/1")
            assert said == ls.Acknowledged(0 if attempt else 3, {0: (0, 3)}, repeated=attempt > 0)
    raw = open_journal(tmp_path / ".lockstep", "logins")
    assert raw.trim({0: 3}) == 3
    raw.close()
    with ls.Journal("logins", project=tmp_path) as journal:
        assert journal.put(records(0, 3), once="Žofie/1").repeated
        assert journal.put([], once="Žofie/2") == ls.Acknowledged(0, {})
        assert journal.put(records(3, 4), once="Žofie/2") == ls.Acknowledged(1, {0: (3, 4)})
    assert kept(tmp_path) == records(3, 4)


def test_other_records_under_a_name_are_refused(tmp_path: Path) -> None:
    with ls.Journal("logins", schema=SCHEMA, project=tmp_path) as journal:
        journal.put(records(0, 3), once="batch")
        with pytest.raises(StoreError, match="LS0428"):
            journal.put(records(0, 4), once="batch")
    assert kept(tmp_path) == records(0, 3)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\ud800", 7])
def test_what_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with (
        ls.Journal("logins", schema=SCHEMA, project=tmp_path) as journal,
        pytest.raises(StoreError, match="LS0429"),
    ):
        journal.put(records(0, 1), once=name)
    assert kept(tmp_path) == []


def test_a_journal_that_there_is_not_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="LS0410"):
        ls.Journal("logins", project=tmp_path)
    with pytest.raises(StoreError, match="LS0411"):
        ls.Journal("../logins", project=tmp_path)
    with pytest.raises(StoreError, match="LS0431"):
        ls.Journal("kafka://h1:9092/logins", project=tmp_path)
    with pytest.raises(LockstepError, match="cannot have 0 partitions"):
        ls.Journal("logins", schema=SCHEMA, partitions=0, project=tmp_path)
    assert list(tmp_path.iterdir()) == []
    ls.Journal("logins", schema=SCHEMA, partitions=2, project=tmp_path).close()
    with pytest.raises(StoreError, match="LS0409"):
        ls.Journal("logins", schema="user bigint", project=tmp_path)


def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    journal = ls.Journal("logins", schema=SCHEMA, project=tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(StoreError, match="LS0430"):
        journal.put(records(0, 1))
    with pytest.raises(StoreError, match="LS0430"):
        asyncio.run(journal.put_async(records(0, 1)))


_KILLED = """
import os, signal, sys
import lockstep as ls
from lockstep.store.journal import SqliteJournal

method = sys.argv[1]
real = getattr(SqliteJournal, method)

def killed(self, *arguments):
    real(self, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(SqliteJournal, method, killed)
with ls.Journal("logins", schema="user string, n bigint") as journal:
    journal.put([{"user": f"user {n % 3}", "n": n} for n in range(5)], once="batch")
"""


@pytest.mark.parametrize(
    ("killed_after", "is_written"), [("_write", False), ("_commit", True)], ids=["in the transaction", "after it"]
)
def test_a_put_that_was_killed_is_put_again_and_doubles_nothing(
    killed_after: str, is_written: bool, tmp_path: Path
) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED, killed_after], cwd=tmp_path, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert kept(tmp_path) == (records(0, 5) if is_written else [])
    with ls.Journal("logins", project=tmp_path) as journal:
        assert journal.put(records(0, 5), once="batch").repeated is is_written
    assert kept(tmp_path) == records(0, 5)


_WRITER = """
import sys
import lockstep as ls

with ls.Journal("logins") as journal:
    print("ready", flush=True)
    sys.stdin.readline()
    for batch in range(40):
        rows = [{"user": f"user {n % 3}", "n": n} for n in range(batch * 5, batch * 5 + 5)]
        print(int(journal.put(rows, once=f"importer/{batch}").repeated))
"""


def test_processes_that_put_the_same_names_at_the_same_moment_write_each_once(tmp_path: Path) -> None:
    ls.Journal("logins", schema=SCHEMA, partitions=2, project=tmp_path).close()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _WRITER]
    writers = [subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        answers = [writer.communicate(timeout=60)[0].split() for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert [Counter(each)["0"] for each in zip(*answers, strict=True)] == [1] * 40
    assert sorted(int(str(row["n"])) for row in kept(tmp_path)) == list(range(200))


def test_an_event_loop_goes_on_while_a_put_waits_for_the_disk(tmp_path: Path) -> None:
    async def scenario() -> list[ls.Acknowledged]:
        holder = sqlite3.connect(tmp_path / ".lockstep/journals/logins/journal.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")  # nobody can write now
        puts = [asyncio.ensure_future(journal.put_async(records(n, n + 1), once=str(n))) for n in range(30)]
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(put.done() for put in puts)
        holder.execute("COMMIT")  # a loop that stood still would never come here
        holder.close()
        return await asyncio.gather(*puts)

    with ls.Journal("logins", schema=SCHEMA, project=tmp_path) as journal:
        said = asyncio.run(scenario())
        assert [one.records for one in said] == [1] * 30
        assert asyncio.run(journal.put_async(records(4, 5), once="4")).repeated
        with pytest.raises(StoreError, match="LS0403"):
            asyncio.run(journal.put_async([{"n": "x"}]))
    assert sorted(int(str(row["n"])) for row in kept(tmp_path)) == list(range(30))


def test_a_put_that_was_cancelled_is_put_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        put = asyncio.ensure_future(journal.put_async(records(0, 5), once="batch"))
        await asyncio.sleep(0)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        await journal.put_async(records(0, 5), once="batch")

    with ls.Journal("logins", schema=SCHEMA, project=tmp_path) as journal:
        asyncio.run(scenario())
    assert kept(tmp_path) == records(0, 5)
