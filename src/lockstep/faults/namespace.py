"""Runs a command in a network namespace of its own, in which only its own loopback is up.

``python -m lockstep.faults.namespace COMMAND...``. It becomes the command (same process id), so the namespace has no
name, nothing has to be removed, and it ends with the last process in it. From outside it is reached by process id:
``nsenter --net --target PID ip link show``.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 0x1
_REQUEST = "16sH22x"
"""``struct ifreq``: the interface's name, its flags, and room for what else it may hold."""


def unshare_network() -> None:
    """Move this process into a new network namespace and bring its loopback up; OSError if that is not permitted."""
    if sys.platform != "linux":
        raise OSError("network namespaces are Linux's")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack(_REQUEST, b"lo", 0))
        _, flags = struct.unpack(_REQUEST, answer)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack(_REQUEST, b"lo", flags | _IFF_UP))


def main() -> None:
    """Unshare, then become the command."""
    unshare_network()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  (a list of words, no shell)


if __name__ == "__main__":
    main()
