"""Stopping a job: whoever computes finishes its epoch, and nobody waits for a replica that is still booting."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.config import Settings
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Process, Surroundings
from lockstep.errors import StoreError
from lockstep.runtime.spec import EXIT_DRAINED, ReplicaSpec
from lockstep.store.protocols import Progress
from lockstep.store.sqlite_store import open_store
from tests.unit.control.known_by_pid import KnownByPid


class Pretended(KnownByPid):
    """A replica that ends when it is told to, unless it is booting: then it does not listen."""

    gentle = False

    def __init__(self, pid: int, *, listens: bool) -> None:
        self.pid = pid
        self.heard: list[str] = []
        self._listens = listens

    def exit_code(self) -> int | None:
        return EXIT_DRAINED if self._listens and self.heard else None

    def cpu_s(self) -> float:
        return 0.0

    def error(self) -> str:
        return ""

    def full_speed(self) -> None: ...

    def drain(self) -> None:
        self.heard.append("drain")

    def kill(self) -> None:
        self.heard.append("kill")


def test_a_replica_that_boots_is_not_waited_for(tmp_path: Path) -> None:
    now_s = 0.0
    replicas = {"r0": Pretended(1, listens=True), "r1": Pretended(2, listens=False)}
    store = open_store(tmp_path, "job")

    def start(spec: ReplicaSpec, *, gently: bool) -> Process:
        process = replicas[spec.replica]
        holder = store.begin(spec.replica, process.pid)
        state = "running" if spec.replica == "r0" else "starting"
        store.report(Progress(spec.replica, holder.incarnation, process.pid, state, -1, process=process.handle))
        return process

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        if now_s > 2.0:
            supervisor.stop()

    spec = ReplicaSpec(str(tmp_path), str(tmp_path), "job", "job.py", "", "", "auto", {})
    around = Surroundings(elapsed_s=lambda: now_s, sleep=sleep, start=start)
    settings = Settings.model_validate({"run": {"replicas": 2}})
    supervisor = Supervisor(store, spec, settings, {}, {}, "me", around=around)
    supervisor.run(on_tick=lambda: None)
    states = {one.replica: one.state for one in store.progress()}
    store.close()
    assert [one.heard[0] for one in replicas.values()] == ["drain", "drain"]
    assert now_s < 2.0 + settings.run.stop_timeout_s / 2
    assert states == {"r0": "stopped", "r1": "stopped"}


def test_spares_are_tended_while_the_store_answers_and_ended_before_anybody_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, tended_s, ended_s = 0.0, list[float](), list[float]()
    store = open_store(tmp_path, "job")

    class Pool:
        def tend(self, *, orders: bool = True) -> None:
            tended_s.append(now_s)

        def close(self) -> None:
            ended_s.append(now_s)

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        if now_s > 3.0:
            supervisor.stop()

    def progress() -> list[Progress]:
        if 1.0 < now_s < 2.0:
            raise StoreError("LS0413", "the store is locked")
        return []

    spec = ReplicaSpec(str(tmp_path), str(tmp_path), "job", "job.py", "", "", "auto", {})
    replica = Pretended(1, listens=True)
    around = Surroundings(elapsed_s=lambda: now_s, sleep=sleep, start=lambda spec, *, gently: replica, reserve=Pool())
    monkeypatch.setattr(store, "progress", progress)
    settings = Settings.model_validate({"run": {"replicas": 1}})
    supervisor = Supervisor(store, spec, settings, {}, {}, "me", around=around)
    supervisor.run(on_tick=lambda: None)
    store.close()
    assert tended_s and max(tended_s) < 3.1
    assert not [at_s for at_s in tended_s if 1.0 < at_s < 2.0], "whoever keeps the store locked is looked for instead"
    assert ended_s[0] == pytest.approx(3.1, abs=0.15)
