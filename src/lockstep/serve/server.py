"""The service as a process: where it listens, its web server, and the keeper of jobs beside it."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from lockstep.errors import ServiceError
from lockstep.runtime.desired_run import LEASE
from lockstep.security import is_loopback
from lockstep.serve.app import create_app
from lockstep.serve.keeper import Keeper
from lockstep.serve.service import Service
from lockstep.serve.tokens import TokenBook

SHUTDOWN_S = 2
"""How long requests that are under way may take when the service ends; streams never end by themselves."""


@dataclass(frozen=True)
class Listening:
    """An address, and the files of its TLS."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @staticmethod
    def parsed(text: str, certificate: Path | None = None, key: Path | None = None) -> Listening:
        """``HOST:PORT`` as people write it.

        >>> Listening.parsed("[::1]:8470").host, Listening.parsed("127.0.0.1:0").port
        ('::1', 0)
        """
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65_535 or not host:
            raise _refused(f"{text!r} is no address", "it has to be HOST:PORT, like 127.0.0.1:8470.")
        if (certificate is None) != (key is None):
            raise _refused("TLS needs both --tls-certificate and --tls-key", "one of them is missing.")
        return Listening(host.strip("[]"), int(port), certificate, key)

    def check(self, *, has_tokens: bool, insecure: bool) -> None:
        """Refuse to listen where others can reach it without being asked who they are, or can listen in. LS0771.

        ``insecure`` does without TLS, where something else has it; nothing does without tokens.

        >>> Listening.parsed("127.0.0.1:8470").check(has_tokens=False, insecure=False)
        >>> Listening.parsed("0.0.0.0:8470").check(has_tokens=True, insecure=True)
        """
        if is_loopback(self.host):
            return
        if not has_tokens:
            raise _refused(f"{self.host} may not be listened on without tokens", "others could run code here.")
        if self.certificate is None and not insecure:
            raise _refused(f"{self.host} may not be listened on without TLS", "others could read tokens on the way.")

    def url(self, port: int) -> str:
        """Where the service is then."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{port}"

    def opened(self) -> socket.socket:
        """The socket, LS0771 if the address is taken."""
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            raise _refused(
                f"cannot listen on {self.host}:{self.port}", f"{error.strerror or error}: perhaps a service runs there."
            ) from None


class Served:
    """One service, from its start to its end."""

    def __init__(self, project: Path, book: TokenBook, place: Listening) -> None:
        self.service = Service(project)
        # The app closes its own one when the server ends; then there are still jobs to be spoken of.
        self._app = create_app(Service(project), book, needs_token=not is_loopback(place.host))
        self._place = place
        self._socket = place.opened()
        self._keeper = Keeper(self.service)
        self.port: int = self._socket.getsockname()[1]

    def run(self, say: Callable[[str], None]) -> None:
        """Until a signal ends it."""
        ended = threading.Event()
        keeper = threading.Thread(target=self._keeper.run, args=[ended, say], name="keeper", daemon=True)
        before = signal.signal(signal.SIGTERM, _interrupt)
        keeper.start()
        try:
            # The server gives the signal that ended it on to whoever was there before: that is us.
            with suppress(KeyboardInterrupt):
                uvicorn.Server(self._config()).run(sockets=[self._socket])
        finally:
            ended.set()
            keeper.join()
            self._socket.close()
            signal.signal(signal.SIGTERM, before)

    def kept(self) -> list[str]:
        """The jobs that go on."""
        return self._keeper.kept()

    def running(self, jobs: list[str]) -> list[str]:
        """Those of them that somebody coordinates."""
        return [job for job in jobs if self.service.store(job).holder(LEASE) is not None]

    def close(self) -> None:
        """Give the stores back."""
        self.service.close()

    def _config(self) -> uvicorn.Config:
        try:
            return uvicorn.Config(
                self._app,
                log_level="warning",
                access_log=False,
                server_header=False,
                # Addresses of callers are those of the connection: whoever is behind a proxy counts as the proxy.
                proxy_headers=False,
                timeout_graceful_shutdown=SHUTDOWN_S,
                ssl_certfile=self._place.certificate,
                ssl_keyfile=self._place.key,
            )
        except (OSError, ssl.SSLError) as error:
            raise _refused("the certificate or its key cannot be used", f"{error}.") from None


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _refused(fact: str, why: str) -> ServiceError:
    return ServiceError(
        "LS0771",
        fact,
        why=why,
        hint="--listen 127.0.0.1:8470 is for this machine alone; `lockstep service-token create NAME`, "
        "--tls-certificate and --tls-key are for others; --insecure does without TLS, if that is meant.",
    )
