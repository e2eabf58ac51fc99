"""What is fed, what it has to become, and the comparison of the two."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.chaos.actions.whole_job import StopAndStart
from lockstep.chaos.builtin.expected import SOURCE, Documents, reference
from lockstep.chaos.checking import undisturbed
from lockstep.chaos.comparing import compare
from lockstep.chaos.feeding import Fed, Feeder
from lockstep.chaos.planner import Planned
from lockstep.chaos.recomputing import copy_ledger
from lockstep.chaos.records import Maker, malformed_lines
from lockstep.chaos.runner import Doing
from lockstep.chaos.subject import load_subject
from lockstep.chaos.watching import Span
from lockstep.errors import RunError, StoreError
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema, batch_from_json_lines, batch_from_pylist
from lockstep.store.protocols import Entry, Item
from lockstep.store.sqlite_store import open_store

EVERY_TYPE = parse_schema(
    "a string, b boolean, c tinyint, d smallint, e int, f bigint, g float, h double, i decimal(10,2), j date, "
    "k timestamp, l timestamp_ntz, m binary, n array<string>, o map<string,int>, p struct<x:int,y:array<timestamp>>"
)
SHORT = parse_schema("user string, n int, at timestamp")


@given(st.integers())
@settings(deadline=None, max_examples=30)
def test_records_of_every_type_fit_their_schema_and_a_seed_fixes_them(seed: int) -> None:
    maker = Maker(arrow_schema(EVERY_TYPE))
    assert batch_from_pylist([maker.record(Random(seed), 10**15)], EVERY_TYPE).num_rows == 1
    assert maker.record(Random(seed), 10**15) == maker.record(Random(seed), 10**15)


@given(st.integers())
@settings(deadline=None, max_examples=30)
def test_no_malformed_line_is_ever_accepted(seed: int) -> None:
    for line in malformed_lines(arrow_schema(SHORT), Random(seed), 5):
        with pytest.raises(StoreError, match="LS0403"):
            batch_from_json_lines([line], SHORT)


def feeder_of(folder: Path, rate: float) -> Feeder:
    fed = Fed("in", "journal", SHORT, 1, Maker(arrow_schema(SHORT)), ("at",))
    return Feeder(folder, {"in": fed}, rate, seed=4)


def test_a_feeder_remembers_exactly_what_the_journal_holds(tmp_path: Path) -> None:
    feeder = feeder_of(tmp_path, rate=2_000)
    feeder.start()
    while feeder.acknowledged()["in"] < 50:
        feeder.check()
    assert feeder.late(7) == 7
    assert feeder.malformed(9) == 0
    feeder.end()
    feeder.close_time()
    records = feeder.records()["in"]
    assert feeder.held() == feeder.acknowledged() == {"in": len(records)}
    newest = max(record["at"] for record in records)
    assert records[-1]["at"] == newest
    assert sum(record["at"] < newest - timedelta(minutes=90) for record in records) == 7
    feeder.close()


def test_a_quiet_feeder_feeds_nothing(tmp_path: Path) -> None:
    feeder = feeder_of(tmp_path, rate=10_000)
    feeder.set_rate(0)
    feeder.start()
    feeder.end()
    assert feeder.acknowledged() == {"in": 0}
    feeder.close()


def test_the_answer_of_the_built_in_job_is_that_of_a_database(tmp_path: Path) -> None:
    making, draw = Documents(), Random(8)
    records = [making.record(draw, 1_700_000_000_000_000 + number * 20_000) for number in range(900)]
    records.append(making.record(draw, 1_700_003_600_000_000))
    found = reference({SOURCE: records})
    events = pa.Table.from_pylist(records)  # noqa: F841  (DuckDB finds it by its name)
    query = """SELECT customer, date_trunc('second', "at") AS start, count(*), max(number) FROM events
        WHERE shared_with = 'public' AND number < 901 GROUP BY ALL ORDER BY ALL"""
    expected = duckdb.sql("SET TimeZone = 'UTC'") or duckdb.sql(query).fetchall()
    alerts = [(row["customer"], row["window_start"], row["documents"], row["newest"]) for row in found["alerts"]]
    assert sorted(alerts) == [tuple(row) for row in expected]
    public = duckdb.sql("SELECT number FROM events WHERE shared_with = 'public' ORDER BY ALL").fetchall()
    assert sorted(row["number"] for row in found["public"]) == [number for (number,) in public]


def test_a_comparison_tells_lost_repeated_and_invented_rows_apart() -> None:
    found = compare(
        "out", [{"n": 1, "t": [1.0]}, {"n": 2, "t": None}], [{"t": [1], "n": 1}] * 2 + [{"n": 9, "t": None}]
    )
    assert (found.missing, found.repeated, found.wrong, found.equal) == (1, 1, 1, False)
    assert found.examples == ("missing: n=2, t=None", "too often: n=1, t=(1,)", "wrong: n=9, t=None")


def test_progress_is_not_asked_for_while_the_whole_job_is_taken() -> None:
    stopped = Doing(Planned(1, 0.0, "stop-and-start", "1"), StopAndStart(), begun_us=20, over_us=40)
    spans = undisturbed([Span("r0", 0, 25), Span("r0", 35, 90)], [stopped])
    assert [(span.first_us, span.last_us) for span in spans] == [(0, 20), (40, 90)]


def test_a_standstill_is_excused_for_a_while_and_not_until_the_job_has_recovered() -> None:
    begun, undone, over = 20_000_000, 30_000_000, 300_000_000
    stopped = Doing(Planned(1, 0.0, "stop-and-start", "1"), StopAndStart(), None, begun, begun, undone, over)
    spans = undisturbed([Span("r0", 0, 400_000_000)], [stopped])
    assert [(span.first_us, span.last_us) for span in spans] == [(0, begun), (120_000_000, 400_000_000)]


def test_a_ledger_is_copied_with_everything_that_was_sealed(tmp_path: Path) -> None:
    before, fresh = open_store(tmp_path / "a", "job"), open_store(tmp_path / "b", "job")
    holder = before.begin("r0", 1)
    before.seal(Entry(0, 5, {"in": {"0": 2}}, {"time": 7}, records=2), holder, [Item("in", 0, {"path": "x"})])
    before.seal(Entry(1, 9, {"in": {"0": 3}}), holder, [Item("in", 1, {"path": "y"})])
    before.seal(Entry(2, 11, {"in": {"0": 4}}), holder, ())
    copy_ledger(before, fresh, ["in"], 1)
    assert [(e.epoch, e.cut, e.marks) for e in fresh.entries(0, 9)] == [
        (e.epoch, e.cut, e.marks) for e in before.entries(0, 1)
    ]
    assert fresh.items("in", 0, 9) == before.items("in", 0, 9)
    assert fresh.progress() == []


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ('ls.console(), guarantee="at-least-once"', "none of its sinks"),
        ('ls.files("/tmp/elsewhere")', "copy"),
        ('ls.files("out/../../elsewhere")', "copy"),
        ('ls.sqlite("out/../../elsewhere.db", table="t")', "copy"),
    ],
)
def test_a_job_whose_output_chaos_must_not_or_cannot_see_is_refused(tmp_path: Path, sink: str, said: str) -> None:
    job = tmp_path / "job.py"
    job.write_text(f'import lockstep as ls\njob = ls.Job("j")\njob.source("s", ls.rate(5)).to({sink})\n')
    with pytest.raises(RunError, match="LS0650") as raised:
        load_subject(str(job), None)
    assert said in raised.value.why


@pytest.mark.parametrize("path", ["../data", "in/../../data", "/tmp/data"])
def test_a_job_that_reads_files_outside_of_the_project_is_refused(tmp_path: Path, path: str) -> None:
    job = tmp_path / "job.py"
    source = f'ls.files("{path}", schema="n int")'
    job.write_text(f'import lockstep as ls\njob = ls.Job("j")\njob.source("s", {source}).to(ls.files("out"))\n')
    with pytest.raises(RunError, match=r'LS0650 the source "s" is at .*, outside the project'):
        load_subject(str(job), None)


def test_a_job_that_joins_a_table_outside_of_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("n,name\n1,one\n")
    job = tmp_path / "job.py"
    job.write_text(
        'import lockstep as ls\njob = ls.Job("j")\n'
        f'names = ls.table("{tmp_path / "names.csv"}", schema="n bigint, name string")\n'
        'job.source("s", ls.journal("s", schema="n bigint")).join(names, on="n").to(ls.files("out"))\n'
    )
    with pytest.raises(RunError, match=r"LS0650 the table .*, outside the project"):
        load_subject(str(job), None)


def test_a_reference_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.py"
    file.write_text("def refrence(inputs): return {}\n")
    with pytest.raises(RunError, match="LS0654"):
        load_subject(None, file)
