"""HTTP with JSON bodies over a Unix socket (or any other): a table of routes, and a token that every request brings."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from lockstep.errors import LockstepError, RunError
from lockstep.security import is_same_token

BODY_BYTES_MAX = 4_000_000
"""A replica's spec with all its settings has some thousands."""
IDLE_S_MAX = 600.0
"""A connection on which nothing comes for so long is closed; whoever had it opens another."""
TERM_HEADER = "Lockstep-Term"


@dataclass(frozen=True)
class Request:
    """What came."""

    parameters: Mapping[str, str]
    """The parts of the path that the route names in braces."""
    term: int
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Route:
    """One thing that can be asked for."""

    method: str
    path: str
    """``/jobs/{job}/processes``."""
    answer: Callable[[Request], Mapping[str, Any]]

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """The parameters in a path, None if this route is not meant.

        >>> Route("GET", "/jobs/{job}/processes", lambda request: {}).match("GET", "/jobs/my%20counts/processes")
        {'job': 'my counts'}
        >>> Route("GET", "/agent", lambda request: {}).match("POST", "/agent")
        """
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path)
        found = re.fullmatch(pattern, path) if method == self.method else None
        return {name: unquote(part) for name, part in found.groupdict().items()} if found is not None else None


class AgentServer(ThreadingHTTPServer):
    """Answers on a socket that listens already."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, routes: Sequence[Route], token: str) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._over = False
        self.routes = routes
        self.token = token

    def answer(self) -> None:
        """Answer until :meth:`end`. No polling: an agent that nobody asks sleeps."""
        while not self._over:
            self.handle_request()
        self.server_close()

    def end(self, path: str) -> None:
        """Answer no more; whoever waits for the next connection on this socket is woken by one."""
        self._over = True
        # If the path is gone, nobody can come any more, and the thread that waits ends with the process.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waker:
            waker.settimeout(1.0)
            waker.connect(path)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked has gone before it had the answer: no reason for a page of traceback."""
        del request, client_address
        print(f"a connection broke: {sys.exc_info()[1]!r}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "lockstep"
    timeout = IDLE_S_MAX
    # The whole answer in one write.
    wbufsize = -1
    server: AgentServer

    def _answer(self) -> None:
        try:
            status, answer = HTTPStatus.OK, self._found()(self._request())
        except LockstepError as error:
            status, answer = HTTPStatus.CONFLICT, {"error": error.to_wire()}
        except LookupError as error:
            status, answer = HTTPStatus.NOT_FOUND, {"trouble": f"{error}"}
        except Exception as error:
            # A full disk, no more processes, a body that says nothing: whoever asked decides what that means.
            status, answer = HTTPStatus.INTERNAL_SERVER_ERROR, {"trouble": f"{type(error).__name__}: {error}"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 (the names are the library's)

    def _found(self) -> Callable[[Request], Mapping[str, Any]]:
        self._parameters: dict[str, str] = {}
        for route in self.server.routes:
            if (parameters := route.match(self.command, self.path)) is not None:
                self._parameters = parameters
                return route.answer
        return _unknown

    def _request(self) -> Request:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= BODY_BYTES_MAX:
            self.close_connection = True
            raise ValueError(f"a body of {length} bytes; at most {BODY_BYTES_MAX} are read")
        body = self.rfile.read(length)
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not is_same_token(given, self.server.token):
            raise RunError(
                "LS0683",
                "the agent does not know this token",
                why="whoever commands it has to have the token in agent.json of the job's folder.",
                hint="run the command as the user who runs the job.",
            )
        term = int(self.headers.get(TERM_HEADER) or 0)
        return Request(self._parameters, term, json.loads(body) if body else {})

    def log_message(self, format: str, *args: object) -> None:
        """Ten requests a second: not in the log."""

    def address_string(self) -> str:
        """A Unix socket has none."""
        return "local"


def _unknown(request: Request) -> Mapping[str, Any]:
    del request
    raise LookupError("there is nothing at this path")
