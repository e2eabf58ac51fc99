"""A process that is slowed down is stopped now and then, and runs when it is needed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import psutil
import pytest

from lockstep.runtime.spark.duty_cycle import DutyCycle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and states of processes as Linux has them")


def test_it_is_stopped_now_and_then_and_runs_at_the_end() -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        over = threading.Event()
        cycle = DutyCycle(child.pid, over)
        cycle.start()
        seen: set[str] = set()
        while not {psutil.STATUS_STOPPED, psutil.STATUS_RUNNING} <= seen:
            seen.add(psutil.Process(child.pid).status())
            time.sleep(0.001)
        over.set()
        cycle.join()
        while psutil.Process(child.pid).status() == psutil.STATUS_STOPPED:
            time.sleep(0.001)
    finally:
        child.kill()
        child.wait()


def test_one_that_has_ended_is_no_error() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    cycle = DutyCycle(child.pid, threading.Event())
    cycle.start()
    cycle.join()
