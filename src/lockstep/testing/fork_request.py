"""Started by Spark in Python's place: has a process forked that is warm already, and lasts as long as that one.

Run without site packages, and with few imports: its start is all that it costs.
"""

import json
import os
import socket
import sys


def main(arguments: list[str]) -> None:
    """Ask for the fork, and wait until it has ended."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(arguments[0])
        socket.send_fds(asked, [b"."], [sys.stderr.fileno()])
        asked.sendall(json.dumps({"module": arguments[1], "environment": dict(os.environ)}).encode() + b"\n")
        asked.recv(1)


if __name__ == "__main__":
    main(sys.argv[1:])
