"""The checks that look into sinks: each of them has to fail on a sink that is broken in its way."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from lockstep.chaos import checking, recomputing
from lockstep.chaos.checking import Evidence, Verdict, check_output, check_promises
from lockstep.chaos.runner import Runner
from lockstep.chaos.subject import Subject, load_subject
from lockstep.chaos.timeline import Timeline
from lockstep.chaos.watching import Reader, SeenEpoch
from lockstep.connect.protocols import Output, Place, Publication, SinkSide
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks.compaction import compact
from lockstep.errors import RunError
from lockstep.observe.promises import order
from lockstep.plan.steps import Sink
from lockstep.store.protocols import Entry, Holder
from lockstep.store.sqlite_store import open_store

SCHEMA = pa.schema([("n", pa.int64())])
HOLDER = Holder("r0", 1)
EPOCHS = 4
JOB = """
import lockstep as ls
job = ls.Job("held")
numbers = job.source("numbers", ls.journal("numbers", schema="n bigint"))
numbers.to(ls.files("out", format="jsonl"), name="files")
numbers.to(ls.sqlite("out.db", table="plain"), name="table")
numbers.to(ls.sqlite("out.db", table="keyed", key=["n"]), name="keyed")
numbers.to(ls.console(), guarantee="at-least-once", name="shown")
"""


def answer(inputs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    everything = [{"n": epoch * 10 + index} for epoch in range(EPOCHS) for index in range(2)]
    return {"files": everything, "table": everything, "keyed": everything}


def side_of(sink: Sink, project: Path) -> SinkSide:
    side = sink_side(sink.spec, sink.id, Place(project, project / ".lockstep", "held"), sink.given)
    side.open(SCHEMA)
    return side


def publish(sink: Sink, project: Path, epochs: Sequence[int]) -> None:
    side = side_of(sink, project)
    for epoch in epochs:
        rows = pa.table({"n": [epoch * 10, epoch * 10 + 1]}, SCHEMA)
        side.publish(Publication(epoch, f"digest-{epoch}", 2, "r0.1", "v1"), Output(SCHEMA, rows), HOLDER)
    side.close()


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("subject")
    job, reference = folder / "job.py", folder / "answers.py"
    job.write_text(JOB)
    reference.write_text("def reference(inputs): return {}\n")
    loaded = load_subject(str(job), reference)
    return Subject(loaded.loaded, loaded.graph, loaded.feds, answer, "the test")


@pytest.fixture(scope="module")
def whole(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project after a run of four epochs in which nothing went wrong."""
    project = tmp_path_factory.mktemp("whole")
    store = open_store(project / ".lockstep", "held")
    holder = store.begin("r0", 1)
    for epoch in range(EPOCHS):
        store.seal(Entry(epoch, epoch + 1, {"numbers": {"0": 2 * epoch + 2}}), holder, ())
    store.close()
    for sink in subject.sinks:
        publish(sink, project, range(EPOCHS))
    return project


@pytest.fixture
def evidence(subject: Subject, whole: Path, tmp_path: Path) -> Iterator[Evidence]:
    """What is left of such a run, for one test to spoil."""
    project = tmp_path / "project"
    shutil.copytree(whole, project)
    store = open_store(project / ".lockstep", "held")
    seen = [SeenEpoch(epoch, epoch, None, 2, "r0.1", f"digest-{epoch}") for epoch in range(EPOCHS)]
    runner = Runner(cast("Any", None), Timeline(lambda _: None), cast("Any", None), 2)
    yield Evidence(subject, project, store, runner, seen, {}, {}, EPOCHS - 1)
    store.close()


def verdict(evidence: Evidence, name: str) -> Verdict:
    return next(one for one in check_promises(evidence) if one.name == name)


def output(evidence: Evidence) -> Verdict:
    return check_output(evidence, {}, evidence.project.parent / "again", lambda _: None)[0]


def manifest(project: Path, epoch: int) -> Path:
    return project / "out" / "_lockstep" / "manifests" / f"{epoch:012}.json"


def execute(project: Path, statement: str) -> None:
    with sqlite3.connect(project / "out.db") as connection:
        connection.executescript(statement)
    connection.close()


def test_nothing_is_said_of_sinks_that_are_whole(evidence: Evidence) -> None:
    assert [one.complaints for one in check_promises(evidence)] == [()] * 5
    assert output(evidence).passed
    assert "not compared: shown" in output(evidence).looked_at


def a_manifest_under_another_name(project: Path) -> None:
    manifest(project, 4).write_bytes(manifest(project, 1).read_bytes())


def rows_appended_to_a_data_file(project: Path) -> None:
    name = json.loads(manifest(project, 2).read_text())["files"][0]["name"]
    file = project / "out" / "data" / name
    file.write_bytes(file.read_bytes() * 2)


def one_data_file_in_two_epochs(project: Path) -> None:
    taken, other = (json.loads(manifest(project, epoch).read_text()) for epoch in (1, 2))
    manifest(project, 2).write_text(json.dumps({**other, "files": taken["files"]}))


def a_data_file_that_is_gone(project: Path) -> None:
    for file in (project / "out" / "data").iterdir():
        file.unlink()


def rows_inserted_twice(project: Path) -> None:
    execute(project, "INSERT INTO plain SELECT * FROM plain WHERE lockstep_epoch = 2")


def rows_of_no_epoch(project: Path) -> None:
    execute(project, "INSERT INTO keyed VALUES (999, 77)")


def a_fence_that_is_there_twice(project: Path) -> None:
    execute(
        project,
        "CREATE TABLE copied AS SELECT * FROM _lockstep_epochs; DROP TABLE _lockstep_epochs; "
        "ALTER TABLE copied RENAME TO _lockstep_epochs; "
        "INSERT INTO _lockstep_epochs SELECT * FROM _lockstep_epochs WHERE epoch = 1",
    )


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (a_manifest_under_another_name, "files: once: epoch 1 was published 2 times"),
        (rows_appended_to_a_data_file, "epoch 2 was published with 2 rows and has 4"),
        (one_data_file_in_two_epochs, "2 epochs name the data file"),
        (a_data_file_that_is_gone, "epoch 0 cannot be read"),
        (rows_inserted_twice, "table: once: epoch 2 was published with 2 rows and has 4"),
        (rows_of_no_epoch, "keyed: once: 1 rows are of epoch 77, which was never published"),
        (a_fence_that_is_there_twice, "table: once: epoch 1 was published 2 times"),
    ],
)
def test_an_epoch_that_is_there_twice_or_with_other_rows_is_found(
    evidence: Evidence, harm: Callable[[Path], None], said: str
) -> None:
    harm(evidence.project)
    assert any(said in one for one in verdict(evidence, "once").complaints), verdict(evidence, "once").complaints


def test_what_a_killed_compaction_left_is_no_second_publication_unless_it_differs(evidence: Evidence) -> None:
    left = manifest(evidence.project, 1)
    text = left.read_text()
    assert compact(evidence.project / "out", keep_last=1) == EPOCHS - 1
    left.write_text(text)
    assert verdict(evidence, "once").passed
    left.write_text(json.dumps({**json.loads(text), "by": "r1.1"}))
    assert "files: once: epoch 1 was published 2 times" in verdict(evidence, "once").complaints


@pytest.mark.parametrize("changed", [{"by": "r1.1"}, {"digest": "other"}])
def test_a_publication_that_was_replaced_after_it_was_seen_is_found(
    evidence: Evidence, changed: dict[str, str]
) -> None:
    path = manifest(evidence.project, 3)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    (complaint,) = verdict(evidence, "once").complaints
    assert complaint.startswith("files: once: epoch 3 was seen with 2 rows by r0.1 (digest digest-3), and is now")


@pytest.mark.parametrize(
    ("harm", "sink"),
    [
        (lambda project: manifest(project, 1).unlink(), "files"),
        (lambda project: execute(project, "DELETE FROM _lockstep_epochs WHERE epoch = 1"), "table"),
    ],
)
def test_a_gap_in_a_sink_breaks_order_and_completeness(
    evidence: Evidence, harm: Callable[[Path], None], sink: str
) -> None:
    harm(evidence.project)
    assert f"{sink}: order: epoch 2 was published after 0" in verdict(evidence, "order").complaints
    assert (
        f"{sink}: completeness: epoch 1 was sealed and never published" in verdict(evidence, "completeness").complaints
    )


class Appearing:
    """A sink whose epochs appear in any order."""

    def __init__(self) -> None:
        self.there: set[int] = set()

    def publication(self, epoch: int) -> Publication | None:
        return Publication(epoch, "d", 1, "r0.1", "v1") if epoch in self.there else None


def test_a_reader_sees_an_epoch_that_appears_before_the_one_before_it(subject: Subject, tmp_path: Path) -> None:
    reader, side = Reader(subject.sinks[0], tmp_path, "held"), Appearing()
    for there in ({0}, {0, 1}, {0, 1, 3}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}):
        side.there = there
        reader._look(cast("SinkSide", side))
    assert [one.epoch for one in reader.seen_epochs()] == [0, 1, 3, 4]
    assert order([one.epoch for one in reader.seen_epochs()]) == ["order: epoch 3 was published after 1"]


def computed_again(subject: Subject, project: Path, folder: Path, last: int, note: Callable[[str], None]) -> None:
    """What an undisturbed run publishes."""
    for sink in subject.sinks:
        publish(sink, folder, range(last + 1))


def test_only_epochs_that_all_sinks_have_are_computed_again(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = evidence.subject.sinks[0]
    publish(files, evidence.project, [EPOCHS])  # sealed late, and only one sink has it yet
    monkeypatch.setattr(checking, "recompute", computed_again)
    bare = with_reference(evidence, None)
    found = output(bare)
    assert found.passed
    assert found.looked_at.startswith("24 rows of 3 sinks")
    late = output(Evidence(**{**vars(bare), "settled_epoch": EPOCHS}))
    assert late.complaints[0].startswith("not every sink has all epochs to 4, compared is to 3")


def test_a_table_with_a_key_that_went_on_is_named_as_not_compared(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(evidence.subject.sinks[2], evidence.project, [EPOCHS])
    monkeypatch.setattr(checking, "recompute", computed_again)
    found = output(with_reference(evidence, None))
    assert found.passed
    assert found.looked_at.endswith("not compared: keyed, shown")


def with_reference(evidence: Evidence, reference: Any) -> Evidence:
    subject = evidence.subject
    changed = Subject(subject.loaded, subject.graph, subject.feds, reference, "the test")
    return Evidence(**{**vars(evidence), "subject": changed})


def fails(inputs: object) -> dict[str, Any]:
    raise ValueError("no answer")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (lambda _: {"files": answer({})["files"]}, "the reference answers for ['files']"),
        (lambda inputs: {**answer(inputs), "alerts": []}, "the reference answers for ['alerts',"),
        (lambda _: {"files": [], "table": [], "keyed": []}, "no row was expected in any sink"),
        (fails, "ValueError: no answer"),
    ],
)
def test_a_comparison_that_says_nothing_does_not_pass(evidence: Evidence, reference: Any, said: str) -> None:
    complaints = output(with_reference(evidence, reference)).complaints
    assert any(said in one for one in complaints), complaints


def test_a_second_computation_that_fails_is_a_complaint_and_not_the_end(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RunError("LS0652", "the undisturbed run ended with exit code 1")

    monkeypatch.setattr(checking, "recompute", broken)
    (complaint,) = output(with_reference(evidence, None)).complaints
    assert "could not be compared: LS0652" in complaint


def test_the_second_computation_ends_with_chaos_and_goes_no_further_than_it_is_told(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    class Noted:
        def __init__(self, name: str, arguments: list[str], *_: object) -> None:
            started.append(arguments)

        def wait_end(self, timeout_s: float) -> None:
            pass

        def kill(self) -> None:
            pass

    monkeypatch.setattr(recomputing, "JobProcess", Noted)
    folder = evidence.project.parent / "again"
    recomputing.recompute(evidence.subject, evidence.project, folder, 2, lambda _: None)
    (arguments,) = started
    assert arguments[:3] == ["-m", "lockstep.chaos.ends_with_parent", str(os.getpid())]
    assert arguments[arguments.index("--until-epoch") + 1] == "2"
    fresh = open_store(folder / ".lockstep", "held")
    assert [entry.epoch for entry in fresh.entries(0, 99)] == [0, 1, 2]
    fresh.close()
