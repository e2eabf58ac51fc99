"""A host in this process: a small HTTP server on the loopback with a replica's checkpoints behind it."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import cast

from lockstep.runtime.state.checkpoint import write_fingerprint
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.transfer.manifest import Wanted
from lockstep.runtime.transfer.offers import Offers, Peer
from lockstep.runtime.transfer.serving import Answer, answer
from lockstep.security import TlsFiles
from lockstep.store.protocols import Holder
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint

TOKEN = "t" * 43
PLAN: dict[str, object] = {"format": 1, "output_mode": "append", "sources": ["logins"], "stateful": []}
WANTED = Wanted("job", "r0", 7)
ENVIRONMENT = "cafe"

Change = Callable[[bytes], bytes]


def _unchanged(data: bytes) -> bytes:
    return data


@dataclass
class Network:
    """What happens between the two: after so many bytes of bodies the connection is cut, once for each number."""

    cuts: list[int] = field(default_factory=list)
    change: Change = _unchanged
    sent: int = 0
    connections: int = 0
    ranges: list[str] = field(default_factory=list)

    def pass_on(self, data: bytes, wire: BufferedIOBase) -> bool:
        """Write what comes through; False if the connection was cut in it."""
        data = self.change(data)
        if self.cuts and self.sent + len(data) > self.cuts[0]:
            wire.write(data[: max(0, self.cuts.pop(0) - self.sent)])
            self.sent = 0
            return False
        self.sent += len(data)
        wire.write(data)
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._host.network.connections += 1

    @property
    def _host(self) -> Server:
        return cast("Server", self.server)

    def _answer(self) -> None:
        if "Range" in self.headers:
            self._host.network.ranges.append(self.headers["Range"])
        given = self._host.mounted(self.command, self.path, self.headers, self.rfile)
        self.send_response(given.status)
        for name, value in given.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.closing(given.body):
            for data in given.body:
                if not self._host.network.pass_on(data, self.wfile):
                    self.close_connection = True
                    return

    do_GET = do_PUT = do_DELETE = _answer  # noqa: N815 - the base class wants these names

    def log_message(self, format: str, *args: object) -> None:
        """Tests read no logs."""


class Server(ThreadingHTTPServer):
    """Mounts the plain function, as an agent does."""

    daemon_threads = True

    def __init__(self, mounted: Callable[..., Answer], tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mounted = mounted
        self.network = Network()
        self.scheme = "http"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that hangs up is what some tests are about."""


@dataclass
class FakePeers:
    """The replicas of a host; a test retires them."""

    peer: Peer | None

    def find(self, job: str, replica: str) -> Peer | None:
        return self.peer if (job, replica) == (WANTED.job, WANTED.replica) else None


@contextlib.contextmanager
def serving(offers: Offers, token: str | None = TOKEN, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(partial(answer, offers, token), tls)
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_replica(folder: Path, stages: int = 2, incarnation: int = WANTED.incarnation) -> FakePeers:
    """Checkpoints of a replica, as a living one has them."""
    folders = checkpoint_folders(folder, stages)
    for number, path in enumerate(folders):
        write_checkpoint(path, 5 + number, base=4)
        write_fingerprint(path, PLAN, "v1", incarnation)
    return FakePeers(Peer(Holder(WANTED.replica, incarnation), folders, ENVIRONMENT))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for what is different in every copy."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in files.items() if not name.endswith("/metadata") or "state" in name
    }


def certificates(folder: Path) -> TlsFiles:
    """An authority and a certificate of it for 127.0.0.1."""
    folder.mkdir()
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made = ["openssl", "req", "-x509", *key, "-days", "2"]
    authority = [*made, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"]
    host = [*made, *signed, "-addext", "basicConstraints=critical,CA:FALSE", "-subj", "/CN=host"]
    for command in (authority, [*host, "-keyout", "host.key", "-out", "host.pem"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return TlsFiles(folder / "host.pem", folder / "host.key", folder / "ca.pem")
