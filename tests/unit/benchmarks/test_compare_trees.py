"""CPU and memory of whole process trees, with real small processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil

from benchmarks.compare.process_trees import Seen, TreeMeter, total_cpu_s

_BURN = "import time; end = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
_PARENT = """
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", {burn!r}]) for _ in range({children})]
for child in children:
    child.wait()
print("burnt", flush=True)
time.sleep(60)
"""
_SLEEPER = "import time; time.sleep(60)"
_MIDDLE = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {_SLEEPER!r}]); time.sleep(1)"
_PARENT_OF_ORPHAN = (
    f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {_MIDDLE!r}]); time.sleep(60)"
)
_FORKED = """
import os, time
block = bytearray(os.urandom(1 << 20)) * 40
os.fork()
os.write(1, b"there" + bytes([10]))
time.sleep(60)
"""


def _started(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True)


def _ended(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert condition()


def test_children_that_ended_count_whether_they_were_seen_or_not() -> None:
    """Two children burn 0.3 s each; the meter looks only before and after, so it sees neither of them."""
    parent = _started(_PARENT.format(burn=_BURN.format(seconds=0.3), children=2))
    try:
        meter = TreeMeter(parent.pid)
        before = meter.sample()
        assert parent.stdout is not None
        assert parent.stdout.readline() == "burnt\n"
        after = meter.sample()
    finally:
        _ended(parent)
    assert after.cpu_s - before.cpu_s >= 0.55


def test_children_that_were_seen_are_not_counted_twice() -> None:
    parent = _started(_PARENT.format(burn=_BURN.format(seconds=0.6), children=1))
    try:
        with TreeMeter(parent.pid, interval_s=0.02) as meter:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "burnt\n"
        used_s = meter.costs[-1].cpu_s
    finally:
        _ended(parent)
    # What the system itself has on the account of the whole tree, interpreter starts included.
    assert max(cost.processes for cost in meter.costs) >= 2
    assert 0.55 <= used_s <= 1.2


def test_a_process_that_lost_its_parent_stays_in_the_tree() -> None:
    parent = _started(_PARENT_OF_ORPHAN)
    try:
        with TreeMeter(parent.pid, interval_s=0.02) as meter:
            _until(lambda: len(meter.living()) == 3)
            middle = psutil.Process(parent.pid).children()[0]
            _until(lambda: not middle.is_running() or middle.status() == psutil.STATUS_ZOMBIE)
            living = [one for one in meter.living() if one.status() != psutil.STATUS_ZOMBIE]
    finally:
        _ended(parent)
    assert len(living) == 2


def test_memory_is_that_of_all_processes_and_shared_pages_count_once() -> None:
    parent = _started(_FORKED)
    try:
        assert parent.stdout is not None
        for _ in range(2):
            assert parent.stdout.readline() == "there\n"
        cost = TreeMeter(parent.pid).sample()
    finally:
        _ended(parent)
    assert cost.processes == 2
    assert 40e6 < cost.memory_bytes < 80e6, "the 40 MB are shared by both and count once"


def test_a_grandchild_on_its_parents_account_counts_once() -> None:
    """The root waited for a child (2.5 s) that had waited for its own (1.0 s of them)."""
    root, child, grandchild = (1, 0.0), (2, 0.0), (3, 0.0)
    seen = [
        Seen(root, None, 1.0, 2.5),
        Seen(child, root, 1.5, 1.0, alive=False),
        Seen(grandchild, child, 1.0, 0.0, alive=False),
    ]
    assert total_cpu_s(seen) == 3.5
