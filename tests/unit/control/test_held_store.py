"""A replica that is stopped inside a transaction: it is found from outside, ended, and only then written about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lockstep.agent.leftovers import LockHolder, end_blocker, lock_holder
from lockstep.config import RunSettings, Settings
from lockstep.control.coordinator.taking_over import retire, take_over
from lockstep.control.supervise.supervision import Held, Kill, pass_by
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Surroundings
from lockstep.errors import StoreError
from lockstep.runtime.desired_run import LEASE
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.steps import run
from lockstep.store.patience import patience
from lockstep.store.protocols import Progress, Store
from lockstep.store.sqlite_store import ledger_file, open_store
from lockstep.store.write_lock import write_lock_pid

HOLD = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
while True:
    connection.execute("BEGIN IMMEDIATE")
    print("holds", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    connection.execute("ROLLBACK")
    print("let go", flush=True)
    sys.stdin.readline()
"""


class Child:
    """A process that holds the store's lock and is stopped, as the supervisor holds it."""

    gentle = False

    def __init__(self, database: Path) -> None:
        # The last words are those of a replica's driver, by which it is known.
        spec = database.parent / "replicas" / "r0" / "spec.json"
        command = [sys.executable, "-c", HOLD, str(database), "lockstep.runtime.start", str(spec)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        self.pid = self.process.pid
        self.handle, self.where = str(self.pid), f"pid {self.pid}"
        self._holds()

    def _holds(self) -> None:
        assert self.process.stdout is not None and self.process.stdout.readline() == "holds\n"
        while psutil.Process(self.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)

    def exit_code(self) -> int | None:
        return self.process.poll()

    def cpu_s(self) -> float:
        return 0.0

    def error(self) -> str:
        return ""

    def full_speed(self) -> None: ...

    def drain(self) -> None: ...

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        assert self.process.stdout is not None and self.process.stdout.readline() == "let go\n"

    def hold_again(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        self._holds()


@dataclass
class Scene:
    database: Path
    store: Store
    children: list[Child]

    def hold(self) -> Child:
        self.children.append(Child(self.database))
        return self.children[-1]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(ledger_file(tmp_path, "job"), open_store(tmp_path, "job"), [])
    yield made
    for child in made.children:
        child.kill()
        assert child.process.stdin is not None and child.process.stdout is not None
        child.process.stdin.close()
        child.process.stdout.close()
    made.store.close()


def test_the_kernel_tells_who_holds_the_write_lock(scene: Scene) -> None:
    assert write_lock_pid(scene.database) is None
    child = scene.hold()
    assert write_lock_pid(scene.database) == child.pid
    holder = lock_holder(scene.database)
    assert holder is not None and holder.stopped
    assert holder.pids[:2] == (child.pid, os.getpid())
    child.go_on()
    assert lock_holder(scene.database) is None


def test_a_call_waits_for_the_lock_no_longer_than_its_caller_would(scene: Scene) -> None:
    child = scene.hold()
    begun_s = time.monotonic()
    with patience(0.2), pytest.raises(StoreError) as raised:
        scene.store.set_fact("key", "value")
    assert time.monotonic() - begun_s < 10, "less than the 30 s of those who have time"
    assert raised.value.code == "LS0413"
    assert f"process {child.pid}" in str(raised.value)
    child.go_on()
    with patience(0.2):
        scene.store.set_fact("key", "value")


def test_the_supervisor_ends_a_stopped_replica_that_holds_the_lock_and_starts_it_again(
    scene: Scene, tmp_path: Path
) -> None:
    def start(spec: ReplicaSpec, *, gently: bool) -> Child:
        if len(scene.children) == 1:
            supervisor.stop()
            supervisor.stop()
        return scene.hold()

    spec = ReplicaSpec(str(tmp_path), str(tmp_path), "job", "job.py", "", "", "auto", {})
    around = Surroundings(start=start, lock_holder=lambda: lock_holder(scene.database))
    settings = Settings.model_validate({"run": {"replicas": 1, "lag_timeout_s": 0.5}})
    supervisor = Supervisor(scene.store, spec, settings, {}, {}, "me", around=around)
    supervisor.run(on_tick=lambda: None)
    told = [(kind, text) for _, _, kind, _, text in scene.store.events()]
    assert [kind for kind, _ in told][:4] == ["replica-started", "replica-killed", "replica-ended", "replica-started"]
    assert "stopped and has held the store's write lock" in told[1][1]
    assert len(scene.children) == 2
    assert scene.children[0].process.returncode == -signal.SIGKILL


def test_whoever_takes_a_job_over_ends_a_replica_that_is_stopped_in_a_transaction_before_it_writes(
    scene: Scene, tmp_path: Path
) -> None:
    child = scene.hold()
    other = tmp_path / "another" / "job"
    assert end_blocker(scene.database, other) is None, "whoever is no replica of this job is left alone"
    with patience(0.2):
        term = run(take_over(scene.store, "me", lambda: end_blocker(scene.database, scene.database.parent)))
    child.process.wait()
    assert scene.store.holder(LEASE) == "me"
    assert term == 1 and run(take_over(scene.store, "another", lambda: None)) == 2, "each has a newer term"


def test_nobody_acts_any_more_for_replicas_that_were_not_adopted(scene: Scene) -> None:
    kept, gone = scene.store.begin("r0", pid=1), scene.store.begin("r1", pid=2)
    for one in (kept, gone):
        scene.store.report(Progress(one.replica, one.incarnation, 1, "running"))
    run(retire(scene.store, {"r0"}))
    assert scene.store.is_live(kept) and not scene.store.is_live(gone)


def test_a_stopped_holder_is_passed_by_after_the_lag_timeout_and_another_only_when_it_hangs() -> None:
    settings, second = RunSettings(lag_timeout_s=3, hang_timeout_s=60), 1_000_000
    stopped, slow = Held("r0", 0, stopped=True), Held("r0", 0, stopped=False)
    assert pass_by(stopped, 2 * second, settings) is None
    assert isinstance(pass_by(stopped, 3 * second, settings), Kill)
    assert pass_by(slow, 59 * second, settings) is None, "it may be waiting for the disk"
    assert isinstance(pass_by(slow, 60 * second, settings), Kill)


def test_a_supervisor_that_waited_for_the_lock_itself_does_not_begin_to_count_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not look while it waited; everybody else waited as long."""
    now_s, killed_s = 0.0, list[float]()

    class Stopped:
        pid, handle, where, gentle = 4711, "a1", "pid 4711", False

        def exit_code(self) -> int | None:
            return -9 if killed_s else None

        def cpu_s(self) -> float:
            return 0.0

        def error(self) -> str:
            return ""

        def full_speed(self) -> None: ...

        def drain(self) -> None: ...

        def kill(self) -> None:
            killed_s.append(now_s)
            supervisor.stop()
            supervisor.stop()

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def locked(*_: object) -> None:
        nonlocal now_s
        if not killed_s:
            now_s += settings.run.lag_timeout_s
            raise StoreError("LS0413", "the store is locked")

    store = open_store(tmp_path, "job")
    spec = ReplicaSpec(str(tmp_path), str(tmp_path), "job", "job.py", "", "", "auto", {})
    settings = Settings.model_validate({"run": {"replicas": 1, "lag_timeout_s": 3.0}})
    around = Surroundings(
        elapsed_s=lambda: now_s,
        sleep=sleep,
        start=lambda spec, *, gently: Stopped(),
        lock_holder=lambda: None if killed_s else LockHolder((4711,), stopped=True),
    )
    monkeypatch.setattr(store, "add_event", locked)
    supervisor = Supervisor(store, spec, settings, {}, {}, "me", around=around)
    supervisor.run(on_tick=lambda: None)
    store.close()
    assert killed_s[0] == pytest.approx(3.1), "what its first write waited, and a tick"
