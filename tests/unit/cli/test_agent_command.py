"""`lockstep agent` and `lockstep stop`: what is refused before anything listens, and stopping a job from outside."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from lockstep.runtime.desired_run import LEASE, DesiredRun, note_desired, wanted_run
from lockstep.store.opening import address_in, open_store
from tests.unit.cli.conftest import Call

ZOOKEEPER = "zookeeper://127.0.0.1:1/nowhere"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "LS0035"),
        (("--store", ZOOKEEPER, "--listen", "nonsense"), "LS0034"),
        (("--store", ZOOKEEPER, "--listen", "0.0.0.0:7411"), "LS0034"),
        (("--store", ZOOKEEPER, "--listen", "10.1.2.3:7411"), "LS0032"),
        (("--store", ZOOKEEPER, "--listen", "127.0.0.1:0", "--name", "a/b"), "LS0411"),
    ],
)
def test_what_an_agent_cannot_do_is_said_at_once(
    lockstep: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], code: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("LOCKSTEP_TOKEN", raising=False)
    said = lockstep("agent", *words)
    assert said.code == 2 and code in said.err


def test_a_job_is_stopped_from_outside_and_waited_for(lockstep: Call, tmp_path: Path) -> None:
    address = address_in(tmp_path / ".lockstep")
    store = open_store(address, "job")
    note_desired(store, DesiredRun("job", "code/ab/job.py:job", "hash", address, {}))
    assert store.acquire(LEASE, "somebody", 100.0)
    late = lockstep("stop", "--timeout", "0")
    assert late.code == 1 and "LS0688" in late.err and "somebody" in late.err

    def end() -> None:
        while wanted_run(store) is not None:
            time.sleep(0.01)
        store.release(LEASE, "somebody")

    ending = threading.Thread(target=end)
    ending.start()
    said = lockstep("stop", "job")
    ending.join()
    assert said.code == 0 and "job has stopped" in said.err
    store.close()
