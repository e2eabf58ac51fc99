"""A replica in a network namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from lockstep.chaos.actions.network import LAUNCHER, inside, namespace, namespaces_impossible
from lockstep.faults.switch import PREFIXES_FILE, command_prefix, switch

SPEAK = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
    print("spoke", flush=True)
sys.stdin.read()
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
except OSError:
    print("alone", flush=True)
"""


def test_a_replica_that_was_ordered_into_a_namespace_starts_with_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "folder", tmp_path)
    assert command_prefix("r0") == []
    (tmp_path / PREFIXES_FILE).write_text(json.dumps({"r0": LAUNCHER}))
    assert command_prefix("r0") == LAUNCHER
    assert command_prefix("r1") == []


@pytest.mark.skipif(namespaces_impossible() is not None, reason=str(namespaces_impossible()))
def test_a_process_in_a_namespace_reaches_itself_and_nobody_else() -> None:
    import socket
    import sys

    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        process = subprocess.Popen(
            [*LAUNCHER, sys.executable, "-c", SPEAK, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "spoke\n"
        assert namespace(process.pid) not in (None, namespace(os.getpid())), "and it kept its process id"
        inside(process.pid, ["ip", "link", "set", "lo", "down"])
        inside(process.pid, ["ip", "link", "set", "lo", "up"])
        process.stdin.close()
        assert process.stdout.readline() == "alone\n"
        process.stdout.close()
        assert process.wait(30) == 0
    inside(process.pid, ["ip", "link", "set", "lo", "up"])  # nothing happens once it is gone
