"""Where an agent is reached, and what is shown to it."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lockstep.security import TlsFiles

UNIX = "unix:"


@dataclass(frozen=True)
class Contact:
    """One start of one agent."""

    address: str
    """``unix:PATH`` on this host, ``http://HOST:PORT`` or ``https://HOST:PORT`` on any."""
    token: str = field(repr=False)
    log: str
    """Where people find what it wrote."""
    host: str = ""
    """The name of its host; empty for the agent that `lockstep run` has built in."""
    instance: str = ""
    """Told apart from an earlier agent at the same address by this."""
    tls: TlsFiles | None = None

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """One that is not connected yet."""
        if self.address.startswith(UNIX):
            return _UnixConnection(self.address.removeprefix(UNIX), timeout_s)
        parts = urlsplit(self.address)
        if self.tls is not None:
            context = self.tls.for_asking()
            return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._socket_path = path

    def connect(self) -> None:
        """To the socket instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)
