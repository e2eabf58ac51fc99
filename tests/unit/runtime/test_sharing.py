"""Executors are asked whether they see the job's folders; one that does not is refused with the place and its host."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.runtime import executor_watch
from lockstep.runtime.spark import sharing
from lockstep.runtime.spark.environment import environment_hash
from lockstep.runtime.spark.sharing import Place, ask, forget, machine, unshared
from lockstep.runtime.spec import ReplicaSpec


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "ANSWER_S_MAX", 0.2)


def test_an_executor_on_the_same_disk_answers_and_nothing_stays(tmp_path: Path) -> None:
    asked = ask([Place("checkpoints", str(tmp_path / "made"))])
    answer = asked.answered("0")
    assert (answer.unseen, answer.host, answer.environment) == ((), socket.gethostname(), environment_hash())
    assert unshared(asked, [answer]) is None
    forget(asked)
    assert list((tmp_path / "made").iterdir()) == []


def test_one_that_does_not_see_the_question_is_refused(tmp_path: Path) -> None:
    place = Place("checkpoints", str(tmp_path))
    asked = ask([place])
    # Its disk has no such folder.
    (asked.folder(place) / "question").unlink()
    answer = asked.answered("7")
    refusal = unshared(asked, [replace(answer, host="w2")])
    assert refusal is not None
    assert str(refusal).startswith(f"LS0690 executor 7 on host w2 does not share {tmp_path} with the driver")
    assert "checkpoints" in refusal.why and "FileNotFoundError" in refusal.why


def test_one_whose_answer_does_not_arrive_is_refused(tmp_path: Path) -> None:
    place = Place("checkpoints", str(tmp_path))
    asked = ask([place])
    answer = asked.answered("7")
    (asked.folder(place) / "7").unlink()
    refusal = unshared(asked, [answer])
    assert refusal is not None and "does not come to the driver" in refusal.why


def test_in_a_folder_that_is_only_read_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    asked = ask([Place("input", str(tmp_path), read_only=True)])
    assert unshared(asked, [asked.answered("0")]) is None
    assert [one.name for one in tmp_path.iterdir()] == ["a.jsonl"]
    (tmp_path / "a.jsonl").unlink()
    refusal = unshared(asked, [asked.answered("0")])
    assert refusal is not None and "it has no a.jsonl" in refusal.why


def test_what_a_killed_driver_left_is_removed_and_a_question_of_another_replica_is_not(tmp_path: Path) -> None:
    old, new = tmp_path / ".lockstep-probe-old", tmp_path / ".lockstep-probe-new"
    old.mkdir()
    new.mkdir()
    long_ago_s = time.time() - 2 * sharing.LEFT_S
    os.utime(old, (long_ago_s, long_ago_s))
    forget(ask([Place("checkpoints", str(tmp_path))]))
    assert [one.name for one in tmp_path.iterdir()] == [new.name]


def spec(folder: Path) -> ReplicaSpec:
    return ReplicaSpec(str(folder), str(folder / ".lockstep"), "job", "job.py", "hash", "r0", "auto", {})


def test_every_folder_of_a_job_that_executors_use_is_asked_about(tmp_path: Path) -> None:
    job = ls.Job("job")
    job.source("in", ls.files("in", schema="a bigint")).to(ls.files("out/a"), name="a")
    found = {place.folder: place for place in executor_watch.places(spec(tmp_path), job.graph())}
    home = tmp_path / ".lockstep"
    assert set(found) == {
        str(home / "jobs" / "job" / "replicas" / "r0"),
        str(home / "jobs" / "job"),
        str(home / "journals"),
        str(tmp_path / "in"),
        str(tmp_path),
    }
    assert found[str(tmp_path / "in")].read_only


def at_address(folder: Path, **more: str) -> ReplicaSpec:
    return replace(spec(folder), settings={"checkpoints": "hdfs://n1:8020/lockstep/job.1a2b", **more})


def test_with_checkpoints_at_an_address_executors_need_no_folder_of_the_driver(tmp_path: Path) -> None:
    job = ls.Job("job")
    job.source("in", ls.rate(1)).to(ls.files("s3a://bucket/out"), name="out")
    assert [one.folder for one in executor_watch.places(at_address(tmp_path), job.graph())] == [
        "s3a://bucket/out/_lockstep"
    ]
    staging = ls.Job("job")
    staging.source("in", ls.rate(1)).to(ls.console(), name="out", guarantee="at-least-once")
    assert [one.folder for one in executor_watch.places(at_address(tmp_path), staging.graph())] == [
        "hdfs://n1:8020/lockstep/job.1a2b"
    ]


def test_with_checkpoints_at_an_address_embedded_journals_are_still_asked_about(tmp_path: Path) -> None:
    job = ls.Job("job")
    timed = job.source("in", ls.rate(1)).event_time("at")
    windows = timed.key_by("seq").window(ls.tumbling("1 minute")).agg(n=ls.F.count("*"))
    windows.key_by("seq").agg(n=ls.F.count("*")).to(ls.files("s3a://bucket/out"), name="out")
    home = tmp_path / ".lockstep"
    found = {one.folder for one in executor_watch.places(at_address(tmp_path), job.graph())}
    assert {str(home / "jobs" / "job"), str(home / "journals")} < found
    topics = at_address(tmp_path, journals="kafka://h1:9092/lockstep.job.1a2b")
    assert not {one for one in executor_watch.places(topics, job.graph()) if one.folder.startswith("/")}


def test_a_job_with_sqlite_files_is_refused_on_executors_of_another_machine(tmp_path: Path) -> None:
    job = ls.Job("job")
    job.source("in", ls.journal("in", schema="a bigint")).to(ls.files("out"), name="out")
    assert executor_watch.embedded_parts(job.graph()) == ['source "in" (a journal)']
    careful = ls.Job("job")
    careful.source("in", ls.files("in", schema="a bigint", on_bad_record="stop")).to(ls.files("out"), name="out")
    assert executor_watch.embedded_parts(careful.graph()) == []
    careless = ls.Job("job")
    rows = careless.source("in", ls.files("in", schema="a bigint"))
    rows.map(lambda row: row, schema="a bigint", on_error="skip", name="try").to(ls.files("out"), name="out")
    assert [part.split(" (")[0] for part in executor_watch.embedded_parts(careless.graph())] == [
        'source "in"',
        'step "try"',
    ]


def test_executors_of_one_machine_may_open_them_whatever_their_names(tmp_path: Path) -> None:
    answer = ask([Place("checkpoints", str(tmp_path))]).answered("0")
    assert executor_watch.why_not_alike([replace(answer, host="w2")], ["a journal"]) is None
    elsewhere = executor_watch.why_not_alike([replace(answer, machine="another")], ["a journal"])
    assert elsewhere is not None and elsewhere.code == "LS0692"
    assert executor_watch.why_not_alike([replace(answer, machine="another")], []) is None
    older = executor_watch.why_not_alike([replace(answer, environment="older")], [])
    assert older is not None and older.code == "LS0694"
    assert answer.machine == machine()
