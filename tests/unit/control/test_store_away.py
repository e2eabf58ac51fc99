"""The supervisor while the store does not answer whoever shows the job: replicas are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.config import Settings
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Process, Surroundings
from lockstep.errors import StoreError
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.sqlite_store import open_store
from tests.unit.control.test_full_disk import Paper


class Killed(Paper):
    """Notes when it is killed."""

    def __init__(self, ends: list[float], now_s: list[float]) -> None:
        self._ends, self._now_s = ends, now_s

    def kill(self) -> None:
        self._ends.append(self._now_s[0])


def supervised(folder: Path, code: str) -> list[float]:
    """When replicas were killed, in a job that is stopped after 10 s and cannot be shown from 2 s to 8 s."""
    now_s, ends = [0.0], list[float]()

    def start(spec: ReplicaSpec, *, gently: bool) -> Process:
        return Killed(ends, now_s)

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        if now_s[0] > 10.0:
            supervisor.stop()
            supervisor.stop()

    def show() -> None:
        if 2.0 < now_s[0] < 8.0:
            raise StoreError(code, "the store did not answer")

    store = open_store(folder, "job")
    spec = ReplicaSpec(str(folder), str(folder), "job", "job.py", "", "", "auto", {})
    around = Surroundings(elapsed_s=lambda: now_s[0], sleep=sleep, start=start)
    settings = Settings.model_validate({"run": {"replicas": 1}})
    supervisor = Supervisor(store, spec, settings, {}, {}, "me", around=around)
    try:
        supervisor.run(show)
    finally:
        store.close()
    return ends


@pytest.mark.parametrize("code", ["LS0413", "LS0421"])
def test_a_job_that_cannot_be_shown_for_a_while_goes_on(tmp_path: Path, code: str) -> None:
    assert [ended_s > 10.0 for ended_s in supervised(tmp_path, code)] == [True]


def test_what_does_not_pass_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="LS0402"):
        supervised(tmp_path, "LS0402")
