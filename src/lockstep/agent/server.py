"""HTTP over a Unix socket or a port: a table of routes with JSON bodies, and a token that every request brings.

What is larger than a few megabytes (bundles, snapshots) is mounted beside the table, by the beginning of its path.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from lockstep.errors import LockstepError, RunError
from lockstep.security import is_same_token

if TYPE_CHECKING:
    from lockstep.runtime.transfer.serving import Answer

BODY_BYTES_MAX = 4_000_000
"""A replica's spec with all its settings has some thousands."""
IDLE_S_MAX = 600.0
"""A connection on which nothing comes for so long is closed; whoever had it opens another."""
TERM_HEADER = "Lockstep-Term"
BUNDLES = "/bundles/"
"""Where bundles are put: ``/bundles/JOB/DIGEST``."""
Mount = Callable[[str, str, Mapping[str, str], IO[bytes]], "Answer"]
"""Answers all requests below a path: method, path, headers and body."""


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

    def __init__(
        self,
        listening: socket.socket,
        routes: Sequence[Route],
        token: str | None,
        *,
        mounts: Mapping[str, Mount] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.over = False
        self.idle: set[socket.socket] = set()
        """Connections on which nothing is being answered."""
        self._tls = tls
        self.routes = routes
        self.mounts = dict(mounts or {})
        self.token = token
        """None: whoever connects has shown a certificate, or listens on loopback."""

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection. Its handshake is done by the thread that answers it, so that nobody holds up others."""
        connection, address = self.socket.accept()
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self.idle.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """A connection is over."""
        self.idle.discard(request)
        super().shutdown_request(request)

    def answer(self) -> None:
        """Answer until :meth:`end`. No polling: an agent that nobody asks sleeps."""
        while not self.over:
            self.handle_request()
        self.server_close()

    def end(self) -> None:
        """Answer no more; whoever waits for the next connection on this socket is woken by one."""
        self.over = True
        # If its path is gone, nobody can come any more, and the thread that waits ends with the process.
        with suppress(OSError), socket.socket(self.socket.family, socket.SOCK_STREAM) as waker:
            waker.settimeout(1.0)
            waker.connect(self.socket.getsockname())
        for connection in self.idle.copy():
            # Whoever comes again on one of them would wait for an answer that nobody gives.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

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
        self.server.idle.discard(self.connection)
        self._answer_request()
        self.wfile.flush()
        self.server.idle.add(self.connection)
        self.close_connection = self.close_connection or self.server.over

    def _answer_request(self) -> None:
        mount = next((self.server.mounts[path] for path in self.server.mounts if self.path.startswith(path)), None)
        if mount is not None:
            self._answer_mounted(mount)
            return
        try:
            status, answer = HTTPStatus.OK, self._found()(self._request())
        except LockstepError as error:
            status, answer = HTTPStatus.CONFLICT, {"error": error.to_wire()}
        except LookupError as error:
            status, answer = HTTPStatus.NOT_FOUND, {"trouble": f"{error}"}
        except Exception as error:
            # A full disk, no more processes, a body that says nothing: whoever asked decides what that means.
            status, answer = HTTPStatus.INTERNAL_SERVER_ERROR, {"trouble": f"{type(error).__name__}: {error}"}
        self._say(status, answer)

    def _say(self, status: HTTPStatus, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer_mounted(self, mount: Mount) -> None:
        try:
            self._check_token()
        except RunError as error:
            # The body was not read: nothing else can follow on this connection.
            self.close_connection = True
            self._say(HTTPStatus.UNAUTHORIZED, {"error": error.to_wire()})
            return
        answer = mount(self.command, self.path, dict(self.headers.items()), cast("IO[bytes]", self.rfile))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = self.close_connection or answer.headers.get("Connection") == "close"
        try:
            for piece in answer.body:
                self.wfile.write(piece)
        finally:
            answer.body.close()

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 (the names are the library's)

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
        self._check_token()
        term = int(self.headers.get(TERM_HEADER) or 0)
        return Request(self._parameters, term, json.loads(body) if body else {})

    def _check_token(self) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.server.token is not None and not is_same_token(given, self.server.token):
            raise RunError(
                "LS0683",
                "the agent does not know this token",
                why="whoever commands it shows its token: the one in agent.json of the job's folder, or that of all "
                "hosts (`lockstep token`).",
                hint="run the command as the user who runs the job; all hosts have the same token file.",
            )

    def log_message(self, format: str, *args: object) -> None:
        """Ten requests a second: not in the log."""

    def address_string(self) -> str:
        """A Unix socket has none."""
        return str(self.client_address[0]) if self.client_address else "local"


def _unknown(request: Request) -> Mapping[str, Any]:
    del request
    raise LookupError("there is nothing at this path")
