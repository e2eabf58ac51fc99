"""The pure parts of `lockstep bench kafka`, and of the hand-written query that `lockstep bench hosts` restarts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lockstep.bench.children import Child
from lockstep.bench.cluster import FolderMachine, Machine
from lockstep.bench.hosts.bench import _report as hosts_report
from lockstep.bench.hosts.contrast import RestartLoop
from lockstep.bench.kafka import connector
from lockstep.bench.kafka.bench import BY_HAND, OURS, Size, Turn, _report, batches, job_text
from lockstep.bench.kafka.load import SELECTION, TOTALS, differing, order, table
from lockstep.bench.throughput import Step
from lockstep.services.descriptions import jars_pom

RECORDS = 3000


def test_a_record_of_the_backlog_has_about_a_hundred_bytes() -> None:
    assert 80 <= len(json.dumps(order(123_456))) <= 120


def test_the_selection_is_what_plain_python_selects() -> None:
    kept = [order(seq) for seq in range(RECORDS) if order(seq)["amount"] >= 500]
    wanted = [{"seq": one["seq"], "user": one["user"], "doubled": 2 * one["amount"]} for one in kept]
    assert SELECTION.expected(RECORDS).to_pylist() == wanted


def test_of_totals_that_changed_the_newest_counts() -> None:
    rows = table([b'{"user":"b","n":1,"total":5}', b'{"user":"a","n":2,"total":9}', b'{"user":"a","n":1,"total":4}'])
    assert TOTALS.result(rows).to_pylist() == [
        {"user": "a", "n": 2, "total": 9},
        {"user": "b", "n": 1, "total": 5},
    ]


def test_the_expected_totals_add_up_to_all_orders() -> None:
    found = TOTALS.expected(RECORDS)
    assert sum(found["n"].to_pylist()) == RECORDS
    assert sum(found["total"].to_pylist()) == sum(order(seq)["amount"] for seq in range(RECORDS))


def test_a_row_that_came_twice_and_one_that_is_missing_differ() -> None:
    wanted = SELECTION.expected(RECORDS)
    assert differing(wanted, wanted) == 0
    assert differing(pa.concat_tables([wanted, wanted.slice(0, 1)]), wanted) == 1
    assert differing(wanted.slice(1), wanted) == 1


def test_a_line_that_is_being_written_is_no_batch_yet(tmp_path: Path) -> None:
    notes = tmp_path / "batches"
    assert batches(notes) == []
    notes.write_text('{"begun_s": 1.0, "ended_s": 2.0, "records": 10}\n{"begun_s": 2.0, "en')
    assert batches(notes) == [Step(1.0, 2.0, 10)]


def turn(side: str, seconds: float) -> Turn:
    return Turn([Step(0, 1, 100)], [Step(1, 1 + seconds, 100)], SELECTION, side, 5.0, 0)


def test_the_ratio_is_ours_against_by_hand() -> None:
    report = _report(Size(200, 100), [turn(OURS, 2.0), turn(BY_HAND, 1.0)], quick=True)
    assert [verdict.value for verdict in report.verdicts] == [0, 0.5]
    assert not report.met


def test_without_the_connector_lockstep_is_measured_alone_and_that_is_said() -> None:
    report = _report(Size(200, 100), [turn(OURS, 2.0)], quick=True)
    assert report.met
    assert any("could not be had" in note for note in report.notes)


def test_without_mvn_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    said: list[str] = []
    assert connector.connector_jars(said.append) is None
    assert len(said) == 1
    assert "mvn" in said[0]


def test_the_connector_is_fetched_without_what_pyspark_has() -> None:
    text = jars_pom(connector.JARS)
    assert text.count("<exclusion>") == len(connector.JARS)
    assert "http" not in text


def test_our_job_names_its_topics() -> None:
    text = job_text(TOTALS, "broker:1", "out-3")
    compile(text, "job.py", "exec")
    assert 'ls.kafka("out-3", servers="broker:1", key="user")' in text


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[tuple[str, Child]]]:
    found: list[tuple[str, Child]] = []
    yield found
    for _, child in found:
        child.kill()


def test_a_query_whose_process_ended_is_started_on_the_next_host(
    tmp_path: Path, started: list[tuple[str, Child]]
) -> None:
    def start(host: Machine) -> Child:
        child = Child("a query", ["-c", "import time; time.sleep(600)"], tmp_path / "log", tmp_path)
        started.append((host.name, child))
        return child

    loop = RestartLoop(start, [FolderMachine(name, tmp_path) for name in ("h1", "h2")])
    loop.start()
    first = loop.child
    first.kill()
    loop_waits = 0
    while loop.child is first:
        loop_waits += 1
        loop.join(0.05)
        assert loop_waits < 600, "it was not started again"
    loop.finish()
    assert [name for name, _ in started] == ["h1", "h2"]
    assert loop.starts == 2
    assert loop.child.ended


def found_by_hosts(**more: object) -> dict[str, object]:
    event = {
        "name": "host",
        "text": "a host was killed",
        "before_p99_s": 0.2,
        "after_max_s": 0.2,
        "ratio": 1.0,
        "back_s": 5.0,
        "figures": {},
    }
    check = {"users": 1, "lost": 0, "repeated": 0, "complaints": []}
    common = {"events": [event], "check": check, "latencies": [(0, 50.0)], "sent": 1, "rows": 1, "divergences": 0}
    return {**common, "on": "folders", **more}


def test_a_host_killed_under_both_is_one_table() -> None:
    by_hand = {"before_p99_s": 0.3, "after_max_s": 12.0, "ratio": 40.0, "starts": 2, "lost": 0, "repeated": 3}
    report = hosts_report(found_by_hosts(by_hand=by_hand), quick=True)
    (beside,) = [one for one in report.tables if "hand-written" in one.title]
    assert [row["gap_max_after_s"] for row in beside.rows] == [0.2, 12.0]


def test_hosts_without_the_connector_says_so() -> None:
    report = hosts_report(found_by_hosts(), quick=True)
    assert not [one for one in report.tables if "hand-written" in one.title]
    assert any("could not be had" in note for note in report.notes)
