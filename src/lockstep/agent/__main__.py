"""``python -m lockstep.agent FOLDER FD``: the agent that is described in a job's folder, on a socket that listens."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from lockstep.agent.description import PID_FILE, read
from lockstep.agent.hosting import Here, HostedJob
from lockstep.agent.leftovers import end_leftovers
from lockstep.agent.serving import Agent
from lockstep.agent.spare_processes import MachineProcesses
from lockstep.credentials import RedactedStream
from lockstep.runtime.process_environment import process_environment


def main() -> None:
    """End what an earlier agent left, then serve."""
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    sys.stderr = RedactedStream(sys.stderr)
    description = read(folder)
    assert description is not None, "whoever starts an agent describes it first"
    (folder / PID_FILE).write_text(f"{os.getpid()}\n", encoding="ascii")
    if left := end_leftovers(folder):
        print(f"ended what an earlier agent left: {left}", file=sys.stderr, flush=True)
    # Looking for Java takes a moment: now, while nobody waits.
    process_environment()
    job = HostedJob(
        description.job,
        MachineProcesses(folder),
        Here(Path.cwd(), folder.parent.parent),
        orphan_timeout_s=description.orphan_timeout_s,
        stop_timeout_s=description.stop_timeout_s,
    )
    agent = Agent({description.job: job})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: agent.stop())
    try:
        agent.serve(listening, description.token)
    finally:
        description.remove()


if __name__ == "__main__":
    main()
