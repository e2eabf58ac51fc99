"""What is ordered for a job that is started from Python, and how a handle ends: with a supervisor that is pretended."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import lockstep as ls
from lockstep.errors import LockstepError, RunError
from lockstep.library import running


class Pretended:
    """A supervisor that does what it is told at once."""

    orders: ClassVar[list[Mapping[str, Any]]] = []
    words: ClassVar[list[str]] = []
    interrupts: ClassVar[list[str]] = []
    """The words that are interrupted by Ctrl-C."""
    failure: LockstepError | None = None

    def __init__(self, order: Mapping[str, Any], folder: Path) -> None:
        assert Path(order["job_file"].removesuffix(":job")).is_file(), "the code is there while it starts"
        self.orders.append(order)
        self.ended = False

    def wait_ready(self) -> None:
        pass

    def look(self, timeout_s: float | None) -> bool:
        if timeout_s is None:
            self._told("wait")
        return self.ended

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self._told("stop")

    def kill(self) -> None:
        self._told("kill")

    def _told(self, word: str) -> None:
        self.words.append(word)
        if word in self.interrupts:
            raise KeyboardInterrupt
        self.ended = True


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> type[Pretended]:
    class Own(Pretended):
        orders: ClassVar[list[Mapping[str, Any]]] = []
        words: ClassVar[list[str]] = []
        interrupts: ClassVar[list[str]] = []

    monkeypatch.setattr(running, "SupervisorProcess", Own)
    return Own


def _job(**options: Any) -> ls.Job:
    job = ls.Job("ordered", **options)
    job.source("users", ls.collection([{"user": "ann"}], schema="user string")).to(ls.files("out"))
    return job


def test_in_a_temporary_folder_one_replica_computes_unless_the_job_or_the_call_says_otherwise(
    pretended: type[Pretended],
) -> None:
    temporary = dict(running.IN_A_TEMPORARY_FOLDER)
    _job().start().stop()
    _job(replicas=3).start(spares=1, epoch_interval="200 ms").stop()
    first, second = pretended.orders
    assert first["temporary"] and first["run"] == temporary
    # The job's own options are in the job, and hold.
    assert second["run"] == {"orphan_timeout_s": 10.0, "spares": 1, "epoch_interval_s": 0.2}
    assert first["project"] != second["project"]


def test_in_a_project_nothing_is_said_that_was_not_asked_for(pretended: type[Pretended], tmp_path: Path) -> None:
    _job().start(project=tmp_path / "shop", master="local[2]", spark_conf={"spark.ui.enabled": "true"}).stop()
    (order,) = pretended.orders
    assert (order["project"], order["temporary"], order["run"]) == (str(tmp_path / "shop"), False, {})
    assert order["spark"] == {"master": "local[2]", "conf": {"spark.ui.enabled": "true"}}


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ({}, {"until_done": True}),
        ({"available_now": True}, {"available_now": True}),
        ({"project": "."}, {}),
        ({"project": ".", "until_done": True}, {"until_done": True}),
    ],
)
def test_a_run_without_a_project_ends_by_itself(
    given: dict[str, Any],
    ends: dict[str, bool],
    pretended: type[Pretended],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    _job().run(**given)
    (order,) = pretended.orders
    assert {name: order["run"][name] for name in ("until_done", "available_now") if name in order["run"]} == ends
    assert pretended.words == ["wait"]


def test_records_are_put_into_a_journal_that_says_itself_when_they_came(
    pretended: type[Pretended], tmp_path: Path
) -> None:
    job = ls.Job("ordered")
    spec = ls.journal("hits", schema="page string", timestamp_column="arrived")
    job.source("hits", spec).to(ls.files("out"))
    running = job.start(project=tmp_path)
    assert running.put("hits", [{"page": "a"}]) == 1
    with ls.Journal("hits", project=tmp_path) as journal:
        assert journal.put([{"page": "b"}]).records == 1
    running.stop()


def test_ctrl_c_ends_a_run_gracefully_and_is_the_end_of_one_that_has_no_other(
    pretended: type[Pretended], tmp_path: Path
) -> None:
    pretended.interrupts.append("wait")
    with pytest.raises(KeyboardInterrupt):
        _job().run()
    assert pretended.words == ["wait", "stop"]
    result = _job().run(project=tmp_path)
    assert pretended.words == ["wait", "stop"] * 2 and result.project == tmp_path


def test_a_second_ctrl_c_ends_it_at_once(pretended: type[Pretended]) -> None:
    pretended.interrupts += ["wait", "stop"]
    with pytest.raises(KeyboardInterrupt):
        _job().run()
    assert pretended.words == ["wait", "stop", "kill"]


def test_a_failed_job_is_told_at_the_end_of_the_block_unless_the_block_failed_first(
    pretended: type[Pretended],
) -> None:
    pretended.failure = RunError("LS0641", "replicas disagree")
    with pytest.raises(RunError, match="LS0641"), _job().start():
        pass
    with pytest.raises(ZeroDivisionError), _job().start():
        print(1 // 0)
    assert pretended.words == ["stop", "stop"]


def test_a_handle_that_nobody_keeps_does_not_end_its_job(pretended: type[Pretended]) -> None:
    _job().start()
    gc.collect()
    (held,) = running._running
    assert pretended.words == [] and held.is_running
    folder = held.project
    held.stop()
    del held
    gc.collect()
    assert not running._running and not folder.exists()
