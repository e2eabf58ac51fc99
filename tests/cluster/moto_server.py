"""`python moto_server.py PORT`: moto's server, which says "100 Continue" once to whoever expects it.

Python's server and the one on top of it both say it; clients that read on while they send take the second for the
answer, and wait for ever.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler

from moto.server import main


def leave_it_to_the_other(self: BaseHTTPRequestHandler) -> bool:
    return True


if __name__ == "__main__":
    BaseHTTPRequestHandler.handle_expect_100 = leave_it_to_the_other  # type: ignore[method-assign]
    main(["-H", "127.0.0.1", "-p", sys.argv[1]])
