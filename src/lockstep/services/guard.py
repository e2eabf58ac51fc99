"""``python guard.py STOP_SIGNAL GRACE_S UID GID COMMAND...``: runs a server, and sees to it that it ends.

It stands between a server and whoever started it, and holds a pipe to the latter: the line "stop" asks the server to
end and kills it after the grace, the pipe's end (the starter is gone, however) kills it at once. If the guard itself
is killed, the kernel kills the server. Whatever the server started falls to the guard (Linux: it is their reaper),
which kills that too: Postgres gives each of its processes a group of its own. The standard library alone, and not a
thread of the starter: Linux's parent-death signal comes when the *thread* ends that started a process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SWEEPS_MAX = 100
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def main(arguments: list[str]) -> int:
    """Run the server until it ends or has to; the server's exit code."""
    stop_signal, grace_s, uid, gid = int(arguments[0]), float(arguments[1]), int(arguments[2]), int(arguments[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server = subprocess.Popen(
        arguments[4:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        user=uid if uid >= 0 else None,
        group=gid if gid >= 0 else None,
        extra_groups=[] if gid >= 0 else None,
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - no other thread runs yet
    )
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.flush()
    threading.Thread(target=_obey, args=(server, stop_signal, grace_s), daemon=True).start()
    code = server.wait()
    _sweep()
    return code if code >= 0 else 128 - code


def _die_with_guard() -> None:
    # After the change of user: that would take the wish back.
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _obey(server: subprocess.Popen[bytes], stop_signal: int, grace_s: float) -> None:
    if sys.stdin.readline().strip() == "stop":
        server.send_signal(stop_signal)
        # One that was paused has to go on in order to end.
        server.send_signal(signal.SIGCONT)
        try:
            server.wait(grace_s)
        except subprocess.TimeoutExpired:
            server.kill()
    else:
        server.kill()


def _sweep() -> None:
    """Kill what the server left; each has become a child of this process."""
    for _ in range(_SWEEPS_MAX if sys.platform == "linux" else 0):
        left = _children()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                continue
        time.sleep(0.01)


def _children() -> list[int]:
    own = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()]
    except OSError:  # a kernel without this file
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
