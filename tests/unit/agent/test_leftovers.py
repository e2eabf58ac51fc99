"""What an agent that died left: found by what it was started with, waited for, and ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from lockstep.agent.leftovers import end_blocker, end_leftovers, leftovers
from lockstep.store.opening import address_in, lock_file, open_store

STOPS_INSIDE = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
"""


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


def test_a_supervisor_that_stands_still_inside_a_transaction_is_ended_by_whoever_takes_its_place(
    tmp_path: Path,
) -> None:
    open_store(address_in(tmp_path), "job").close()
    database = lock_file(address_in(tmp_path), "job")
    with subprocess.Popen([sys.executable, "-c", STOPS_INSIDE, str(database)]) as supervisor:
        while psutil.Process(supervisor.pid).status() != psutil.STATUS_STOPPED:
            assert supervisor.poll() is None
        try:
            assert end_blocker(database, tmp_path) is None, "nobody takes its place"
            assert end_blocker(database, tmp_path, replaced=1) is None, "somebody else's place is taken"
            assert end_blocker(database, tmp_path, replaced=supervisor.pid) == supervisor.pid
            assert supervisor.wait(30) == -9
        finally:
            supervisor.kill()
