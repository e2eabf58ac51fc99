"""``python -m lockstep.chaos.ends_with_parent PID ARGUMENTS...``: runs ``python ARGUMENTS...`` until PID is gone.

A chaos that is itself killed with -9 must not leave a job behind. The kernel sends SIGTERM to the job then (Linux's
parent-death signal, which outlives ``exec``), and `lockstep run` stops gracefully. Elsewhere this does nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def bind(parent: int) -> bool:
    """Have this process ended when its parent is gone; False if that is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # Between our start and the call it may have gone: then nobody will ever send the signal.
    return os.getppid() == parent


if __name__ == "__main__":
    if not bind(int(sys.argv[1])):
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])  # noqa: S606  (no shell, our own arguments)
