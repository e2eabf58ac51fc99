"""What an agent that died left: found by what it was started with, waited for, and ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lockstep.agent.leftovers import end_leftovers, leftovers


def test_drivers_of_a_job_that_nobody_holds_are_found_and_ended_and_others_are_left_alone(tmp_path: Path) -> None:
    folder, other = tmp_path / "jobs" / "one", tmp_path / "jobs" / "other"
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", "lockstep.runtime.start"]
    driver, stranger = (
        subprocess.Popen([*sleep, str(of / "replicas" / "r0" / "spec.json")], stdout=-1, start_new_session=True)
        for of in (folder, other)
    )
    try:
        for one in (driver, stranger):
            assert one.stdout is not None and one.stdout.readline()
        assert [one.pid for one in leftovers(folder)] == [driver.pid]
        assert end_leftovers(folder, patience_s=0.1) == [driver.pid]
        assert driver.wait(30) == -9 and stranger.poll() is None
        assert end_leftovers(folder, patience_s=0.1) == []
    finally:
        for one in (driver, stranger):
            one.kill()
            one.communicate()
