"""Keeps a program running: when it dies it is started again at once, as a service manager would.

``python -m benchmarks.engines.keep_running PID_FILE PROGRAM ARGUMENT...``. Its process id is always in ``PID_FILE``.
SIGTERM ends the program and all that it started; so does the end of whoever started this. A program that keeps failing
right away is given up, so that a mistake does not look like a slow start.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from lockstep.agent.processes import kill_tree
from lockstep.bench.stopping import Stop

QUICK_S = 10.0
"""A program that lives shorter than this has not started properly."""
QUICK_ENDS_MAX = 3
_POLL_S = 0.005


def keep(pid_file: Path, arguments: list[str], stop: Stop) -> int:
    """Run it, again and again, until told to stop; 1 if it fails too often."""
    quick_ends = 0
    while not stop.wait(0):
        begun_s = time.monotonic()
        # A group of its own: whoever kills it kills all of it.
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True)
        _note(pid_file, process.pid)
        while process.poll() is None and not stop.wait(_POLL_S):
            pass
        if stop.wait(0):
            kill_tree(process.pid)
            process.wait()
            return 0
        print(f"the program ended with {process.returncode}, starting it again", file=sys.stderr, flush=True)
        quick_ends = quick_ends + 1 if time.monotonic() - begun_s < QUICK_S else 0
        if quick_ends >= QUICK_ENDS_MAX:
            return 1
    return 0


def _note(path: Path, pid: int) -> None:
    staged = path.with_suffix(".new")
    staged.write_text(str(pid), encoding="utf-8")
    staged.replace(path)


def main() -> None:
    """The process."""
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2:], Stop().on_signals()))


if __name__ == "__main__":
    main()
