"""A watched folder end to end, in every format, against DuckDB reading the same files."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import lockstep as ls
from lockstep.connect.specs import SourceFormat
from lockstep.errors import LockstepError
from lockstep.runtime.endings import is_job_error
from lockstep.store.dead_letters import DeadLetters, Letter
from tests.spark.conftest import NewTrial
from tests.spark.harness import START_US, Trial

FORMATS: tuple[SourceFormat, ...] = ("jsonl", "csv", "parquet")
SCHEMA = "id bigint, name string, price double, at timestamp"
COLUMNS = "columns={id: 'BIGINT', name: 'VARCHAR', price: 'DOUBLE', \"at\": 'TIMESTAMPTZ'}"
READERS = {
    "jsonl": f"read_json(FILES, format='newline_delimited', {COLUMNS})",
    "csv": f"read_csv(FILES, header=true, {COLUMNS})",
    "parquet": "read_parquet(FILES)",
}
COPY = {"jsonl": "FORMAT json", "csv": "FORMAT csv, HEADER", "parquet": "FORMAT parquet"}


def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    return database


def _write(folder: Path, format: str, number: int, age_s: int = 60) -> Path:
    """A file of 50 records, written by DuckDB, with nulls and letters beyond ASCII."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{number}.{format}"
    rows = f"""
        SELECT {number} * 100 + i AS id, CASE WHEN i % 7 > 0 THEN 'Zoë ' || i END AS name,
               CASE WHEN i % 5 > 0 THEN i / 8 END AS price,
               TIMESTAMPTZ '2026-03-01 00:00:00+00' + INTERVAL 1 SECOND * i AS "at"
        FROM range(50) AS r(i)"""
    _database().execute(f"COPY ({rows}) TO '{path}' ({COPY[format]})")
    _age(path, age_s)
    return path


def _age(path: Path, age_s: int) -> None:
    """Make the file look as if it had been still for so long when epoch 0 is sealed."""
    at_s = START_US / 1e6 - age_s
    os.utime(path, (at_s, at_s))


def test_a_file_that_changed_after_it_was_sealed_stops_the_job_and_is_named(trial: NewTrial) -> None:
    job = ls.Job("changing-files")
    job.source("prices", ls.files("in", schema=SCHEMA)).to(ls.files("out"))
    ran = trial(job)
    path = _write(ran.folder / "in", "jsonl", 1)
    entry = ran.seal()
    path.write_text('{"id": 1}\n', encoding="utf-8")
    ran.start()
    with pytest.raises(LockstepError) as caught:
        ran.wait(entry.epoch)
    assert (caught.value.code, str(path) in caught.value.fact) == ("LS0504", True), str(caught.value)
    assert is_job_error(caught.value)


def test_a_corrupt_file_stops_the_job_if_it_is_to_stop(trial: NewTrial) -> None:
    job = ls.Job("strict-files")
    job.source("prices", ls.files("in", schema=SCHEMA, on_bad_record="stop")).to(ls.files("out"))
    ran = trial(job)
    corrupt = _write(ran.folder / "in", "jsonl", 1).with_name("corrupt.jsonl")
    corrupt.write_text('{"id": 1}\n{"id": "many"}\n', encoding="utf-8")
    _age(corrupt, 50)
    ran.start()
    error = ran.run_to_failure()
    assert error.code == "LS0506" and "corrupt.jsonl, line 2" in error.fact, str(error)
    assert ran.rows() == []


def test_bad_lines_beyond_the_limit_stop_the_job_before_it_publishes(trial: NewTrial) -> None:
    job = ls.Job("many-bad-lines", dead_letters_max=2)
    job.source("prices", ls.files("in", schema=SCHEMA)).to(ls.files("out"))
    ran = trial(job)
    path = _write(ran.folder / "in", "jsonl", 1).with_name("bad.jsonl")
    path.write_text('{"id": "many"}\n' * 3, encoding="utf-8")
    _age(path, 50)
    ran.start()
    error = ran.run_to_failure()
    assert error.code == "LS0418" and "bad.jsonl, 1" in error.why, str(error)
    assert is_job_error(error)
    assert (ran.rows(), len(_letters(ran))) == ([], 3)


def _letters(ran: Trial) -> list[Letter]:
    with closing(DeadLetters(ran.place.home, ran.graph.name, ran.store)) as letters:
        return list(letters.letters())


def test_files_are_read_once_a_corrupt_one_is_set_aside_and_the_rest_equals_duckdb(trial: NewTrial) -> None:
    job = ls.Job("files")
    for format in FORMATS:
        source = ls.files(f"in/{format}", schema=SCHEMA, format=format, pattern=f"*.{format}")
        job.source(format, source).filter("id <> 7", name=f"{format}_kept").to(ls.files(f"out/{format}"))
    ran = trial(job)
    for format in FORMATS:
        _write(ran.folder / "in" / format, format, 1, age_s=60)
        _age(_corrupt(ran, format), 50)
    ran.start(tasks=2)
    ran.run(1)
    for format in FORMATS:
        _write(ran.folder / "in" / format, format, 0, age_s=30)
        _write(ran.folder / "in" / format, format, 2, age_s=20)
        ran._sealer._sources[format]._watch.look_soon()  # type: ignore[attr-defined]
    ran.run(2)
    for format in FORMATS:
        files = READERS[format].replace("FILES", f"'{ran.folder}/in/{format}/part-*.{format}'")
        wanted = _database().execute(f'SELECT id, name, price, "at" FROM {files} WHERE id <> 7 ORDER BY id').fetchall()
        found = sorted((tuple(row.values()) for row in ran.rows(f"out/{format}")), key=lambda row: int(row[0]))
        assert len(wanted) == 149
        assert found == wanted, format
        assert [len(ran.rows(f"out/{format}", epoch)) for epoch in range(3)] == [50, 99, 0], format
        assert (ran.folder / "in" / format / f"corrupt.{format}").exists()
    # Of JSON lines each is a letter of its own; a CSV file without the columns, and no Parquet file, are one each.
    assert sorted((letter.source, letter.partition, letter.offset) for letter in _letters(ran)) == sorted(
        (format, f"corrupt.{format}", line) for format in FORMATS for line in ((1, 2, 3) if format == "jsonl" else (1,))
    )
    assert any(kind == "dead-letter" for _, _, kind, _, _ in ran.store.events())


def _corrupt(ran: Trial, format: str) -> Path:
    path = ran.folder / "in" / format / f"corrupt.{format}"
    path.write_bytes(b'id,name\n1,"2\n{"id": 9, ' if format != "parquet" else b"PAR1 is not enough PAR1")
    return path
