"""A server ends with whoever started it, and so does everything that it started, in groups of its own or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lockstep.services.descriptions import Launch
from lockstep.services.running import Node

# Like Postgres: a server whose children are in sessions of their own, and which does not end by itself.
SERVER = ("sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600 & wait; wait; sleep 600")
STARTER = """
import sys, time
from pathlib import Path
from tests.unit.services.test_guard import node
started = node(Path(sys.argv[1]))
started.start()
print(started.pid, flush=True)
time.sleep(600)
"""


def node(folder: Path) -> Node:
    return Node(Launch("server-1", folder, 1, SERVER, lambda host, port: True))


def _family(pid: int) -> list[psutil.Process]:
    server = psutil.Process(pid)
    guard = server.parent()
    assert guard is not None
    while len(found := [guard, *guard.children(recursive=True)]) < 4:
        pass
    return found


def test_killed_without_warning_the_starter_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        family = _family(int(starter.stdout.readline()))
        starter.kill()
    assert psutil.wait_procs(family, 10)[1] == []


def test_a_guard_that_is_killed_takes_the_server_along(tmp_path: Path) -> None:
    made = node(tmp_path)
    made.start()
    family = _family(made.pid)
    guard, server = family[0], psutil.Process(made.pid)
    guard.kill()
    assert psutil.wait_procs([server], 10)[1] == []
    for left in family:
        if left.is_running():
            left.kill()
    made.stop()


def test_a_killed_server_takes_what_it_started_along_and_can_be_started_again(tmp_path: Path) -> None:
    made = node(tmp_path)
    for _ in range(2):
        made.start()
        family = _family(made.pid)
        made.kill()
        assert psutil.wait_procs(family, 1)[1] == []
    with pytest.raises(Exception, match="LS0023 server-1 ended by itself"):
        made.check_alive()
