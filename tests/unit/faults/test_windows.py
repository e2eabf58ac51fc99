"""What happens at a crash window: nothing without an order, and with one exactly what it says, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lockstep.errors import RunError
from lockstep.faults.orders import Harm, Orders, Window, WindowOrder
from lockstep.faults.switch import FOLDER_VARIABLE, Switch, replica_environment, switch
from lockstep.faults.windows import reached

WALK = """
import subprocess, sys
from lockstep.faults.windows import Window, reached
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
for epoch in range(5):
    for window in (Window.SEALED_NOT_RUN, Window.DIGEST_NOT_PUBLISHED):
        reached(window, "r0", epoch, leading=lambda: epoch >= 3)
        print(epoch, window, flush=True)
child.kill()
child.wait()
"""
"""A process that has a child and lives through five epochs."""


def walk(folder: Path) -> tuple[int, list[str]]:
    """How it ended, and what it said before that; its child must be gone."""
    command = [sys.executable, "-c", WALK]
    environment = {**os.environ, FOLDER_VARIABLE: str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    child, *said = done.stdout.splitlines()
    assert is_gone(int(child))
    assert "FAULTS ARE ON" in done.stderr
    return done.returncode, said


def is_gone(pid: int) -> bool:
    try:
        _, alive = psutil.wait_procs([psutil.Process(pid)], timeout=10)
    except psutil.NoSuchProcess:
        return True
    return not alive


def test_a_replica_is_killed_with_all_below_it_in_the_window_and_from_the_epoch_that_was_ordered(
    tmp_path: Path,
) -> None:
    orders = Orders(tmp_path)
    orders.give(WindowOrder("end", Window.DIGEST_NOT_PUBLISHED, replica="r0", from_epoch=2))
    orders.give(WindowOrder("for-another", Window.SEALED_NOT_RUN, replica="r1"))
    code, said = walk(tmp_path)
    assert code == -signal.SIGKILL
    assert said[-1] == "2 sealed-not-run"
    done = orders.obeyed("end")
    assert done is not None
    assert (done.window, done.replica, done.epoch) == ("digest-not-published", "r0", 2)
    assert orders.obeyed("for-another") is None
    code, said = walk(tmp_path)
    assert (code, said[-1]) == (0, "4 digest-not-published"), "an order is obeyed once"


def test_an_order_for_whoever_leads_waits_until_it_does(tmp_path: Path) -> None:
    Orders(tmp_path).give(WindowOrder("end", Window.SEALED_NOT_RUN, leading=True))
    code, said = walk(tmp_path)
    assert code == -signal.SIGKILL
    assert said[-1] == "2 digest-not-published"


def test_a_pause_holds_the_thread_and_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("lockstep.faults.windows.time.sleep", slept.append)
    monkeypatch.setattr(switch, "folder", tmp_path)
    Orders(tmp_path).give(WindowOrder("wait", Window.RUN_NO_DIGEST, Harm.PAUSE, pause_s=2.5))
    reached(Window.RUN_NO_DIGEST, "r0", 1)
    reached(Window.RUN_NO_DIGEST, "r0", 2)
    assert slept == [2.5]


def test_while_faults_are_off_no_order_is_even_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "folder", None)
    Orders(tmp_path).give(WindowOrder("end", Window.SEALED_NOT_RUN))

    def fail() -> bool:
        raise AssertionError("nobody asks")

    reached(Window.SEALED_NOT_RUN, "r0", 1, leading=fail)
    assert replica_environment("r0") == {}


def test_a_variable_that_names_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="LS0670"):
        Switch({FOLDER_VARIABLE: str(tmp_path / "nowhere")})
    assert Switch({}).folder is None
