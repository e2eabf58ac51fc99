"""Stopping a job: whoever computes finishes its epoch, and nobody waits for a replica that is still booting."""

from __future__ import annotations

from pathlib import Path

from lockstep.config import Settings
from lockstep.control.supervisor import Process, Supervisor, Surroundings
from lockstep.runtime.spec import EXIT_DRAINED, ReplicaSpec
from lockstep.store.protocols import Progress
from lockstep.store.sqlite_store import open_store


class Pretended:
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
        store.report(Progress(spec.replica, holder.incarnation, process.pid, state, -1))
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
    assert replicas["r0"].heard[0] == "drain", "a kill clears up after it has ended"
    assert replicas["r1"].heard == ["kill"]
    assert now_s < 2.0 + settings.run.stop_timeout_s / 2
    assert states == {"r0": "stopped", "r1": "stopped"}
