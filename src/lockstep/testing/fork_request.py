"""Started by Spark in Python's place: has a process forked that is warm already, and lasts as long as that one.

Run without site packages, and with few imports: its start is all that it costs.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    socket.send_fds(asked, [b"."], [sys.stderr.fileno()])
    asked.sendall(json.dumps({"module": sys.argv[2], "environment": dict(os.environ)}).encode() + b"\n")
    asked.recv(1)
