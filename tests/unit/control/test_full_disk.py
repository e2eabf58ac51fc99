"""The supervisor on a disk that is full: replicas that cannot be started are tried again, and the job goes on."""

from __future__ import annotations

import errno
from pathlib import Path

from lockstep.config import Settings
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Process, Surroundings
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.sqlite_store import open_store


class Paper:
    """A started replica that does nothing."""

    gentle = False
    pid, handle, where = 4711, "a1", "pid 4711"

    def exit_code(self) -> int | None:
        return None

    def cpu_s(self) -> float:
        return 0.0

    def error(self) -> str:
        return ""

    def full_speed(self) -> None: ...

    def drain(self) -> None: ...

    def kill(self) -> None: ...


def test_a_replica_whose_log_cannot_be_written_is_started_when_there_is_room_again(tmp_path: Path) -> None:
    now_s, full, tries = 0.0, True, 0

    def start(spec: ReplicaSpec, *, gently: bool) -> Process:
        nonlocal tries
        tries += 1
        if full:
            raise OSError(errno.ENOSPC, "No space left on device", "log.txt")
        return Paper()

    def sleep(seconds: float) -> None:
        nonlocal now_s, full
        now_s += seconds
        full = now_s < 3.0
        if now_s > 10.0:
            supervisor.stop()
            supervisor.stop()

    store = open_store(tmp_path, "job")
    spec = ReplicaSpec(str(tmp_path), str(tmp_path), "job", "job.py", "", "", "auto", {})
    around = Surroundings(elapsed_s=lambda: now_s, sleep=sleep, start=start)
    settings = Settings.model_validate({"run": {"replicas": 1}})
    supervisor = Supervisor(store, spec, settings, {}, {}, "me", around=around)
    supervisor.run(on_tick=lambda: None)
    kinds = [kind for _, _, kind, _, text in store.events() if "No space" in text or kind == "replica-started"]
    store.close()
    assert supervisor.failure is None
    assert 2 <= tries <= 6, "with a pause between them that grows"
    assert kinds == ["replica-not-started"] * (tries - 1) + ["replica-started"]
