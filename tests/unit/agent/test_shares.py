"""Shares of the processor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.agent.shares import _set_session, _threads, may_take_back, set_share

FAMILY = """
import subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"])
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
time.sleep(60)
"""


@pytest.fixture
def family() -> Iterator[int]:
    """A process with a thread of its own and a child, in a session of its own."""
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], start_new_session=True, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    yield parent.pid
    os.killpg(parent.pid, 9)
    parent.wait()
    parent.stdout.close()


def classes(pid: int) -> set[tuple[int, int]]:
    return {(os.sched_getscheduler(one), os.getpriority(os.PRIO_PROCESS, one)) for one in _threads(pid)}


def test_a_session_has_a_smaller_share_where_whole_sessions_are_scheduled(family: int) -> None:
    if _set_session(family, 5) is None:
        pytest.skip("this system does not group processes by session")
    path = Path(f"/proc/{family}/autogroup")
    assert path.read_text().strip().endswith("nice 5")
    assert _set_session(family, 0) is True
    assert path.read_text().strip().endswith("nice 0")


@pytest.mark.skipif(sys.platform != "linux", reason="classes of the scheduler are Linux's")
def test_every_thread_of_the_whole_tree_is_in_the_idle_class_and_leaves_it_again(family: int) -> None:
    if not may_take_back():
        pytest.skip("an ordinary user cannot take a lower priority back here")
    assert len(list(_threads(family))) >= 3
    assert set_share(family, "idle") and classes(family) == {(os.SCHED_IDLE, 0)}
    assert set_share(family, "gentle") and classes(family) == {(os.SCHED_OTHER, 5)}
    assert set_share(family, "full") and classes(family) == {(os.SCHED_OTHER, 0)}


def test_where_it_could_not_be_taken_back_threads_are_left_alone(family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.agent.shares.may_take_back", lambda: False)
    monkeypatch.setattr("lockstep.agent.shares._set_session", lambda pid, niceness: None)
    before = classes(family)
    assert not set_share(family, "idle")
    assert classes(family) == before


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give a right up")
def test_root_without_the_right_to_raise_a_priority_lowers_none(family: int) -> None:
    """As in a container: whoever enters the idle class there never leaves it."""
    before = classes(family)
    code = (
        "from lockstep.agent.shares import may_take_back, set_share\n"
        f"assert not may_take_back()\nset_share({family}, 'idle')\nset_share({family}, 'full')\n"
    )
    subprocess.run(["setpriv", "--bounding-set=-sys_nice", sys.executable, "-c", code], check=True)
    assert classes(family) == before


@pytest.mark.skipif(sys.platform != "linux", reason="classes of the scheduler are Linux's")
def test_a_share_that_cannot_be_taken_back_after_all_is_no_error(family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.agent.shares.may_take_back", lambda: True)
    monkeypatch.setattr("lockstep.agent.shares._set_session", lambda pid, niceness: None)
    assert set_share(family, "idle")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.sched_setscheduler", refuse)
    assert not set_share(family, "full")
    assert {scheduler for scheduler, _ in classes(family)} == {os.SCHED_IDLE}


def test_a_process_that_is_gone_is_no_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    set_share(gone.pid, "idle")
