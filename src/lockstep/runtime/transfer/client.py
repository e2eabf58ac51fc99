"""Asking another host over HTTP: with the token, with TLS if there is any, again and again for a limited time."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from typing import NoReturn
from urllib.parse import urlsplit

from lockstep.errors import EnvironmentError_, RunError, from_wire
from lockstep.runtime.transfer.manifest import MANIFEST_BYTES_MAX, refused

TIMEOUT_S = 15.0
"""For one connection, and for one read from it: a host that is silent for so long is asked anew."""
PATIENCE_S = 60.0
"""Without a single byte for so long, a host is taken for lost; longer than it takes to start an agent again."""
CHUNK_BYTES = 256 * 1024
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 5.0
_BUSY = 503
_REFUSAL_BYTES_MAX = 64 * 1024


class HostClient:
    """One other host, at ``http://HOST:PORT`` or ``https://HOST:PORT``. Not for several threads at once."""

    def __init__(
        self,
        address: str,
        token: str | None,
        tls: ssl.SSLContext | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise EnvironmentError_(
                "LS0034",
                f'"{address}" is no address of a host',
                hint="write it as http://HOST:PORT, or with TLS as https://HOST:PORT.",
            )
        self.address = address
        self._patience_s = patience_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        )

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> HostClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, patience_s: float | None = None
    ) -> tuple[int, bytes]:
        """Ask until there is an answer; its status and body. What it refuses is raised."""
        patience = _Patience(self, self._patience_s if patience_s is None else patience_s)
        while True:
            try:
                response = self._send(method, path, body, {})
                data = response.read(MANIFEST_BYTES_MAX + 1)
                if response.length and len(data) <= MANIFEST_BYTES_MAX:
                    # Else the beginning of a manifest would be taken for all of it.
                    raise http.client.IncompleteRead(data, response.length)
            except (OSError, http.client.HTTPException) as error:
                patience.wait(error)
                continue
            if len(data) > MANIFEST_BYTES_MAX:
                self.close()
                raise refused(f"an answer is longer than {MANIFEST_BYTES_MAX:,} bytes")
            if response.status != _BUSY:
                return response.status, self._accepted(response.status, data)
            patience.wait(from_wire(data.decode(errors="replace")) or OSError("it is busy"))

    def read(self, path: str, first: int, end: int) -> Iterator[bytes]:
        """The bytes from ``first`` to ``end``; where a connection breaks, another one goes on."""
        patience = _Patience(self, self._patience_s)
        while first < end:
            try:
                for data in self._read_once(path, first, end):
                    first += len(data)
                    patience.begin()
                    yield data
            except (OSError, http.client.HTTPException) as error:
                patience.wait(error)

    def _read_once(self, path: str, first: int, end: int) -> Iterator[bytes]:
        response = self._send("GET", path, None, {"Range": f"bytes={first}-"})
        if response.status == _BUSY:
            raise OSError("it is busy")
        if response.status != http.client.PARTIAL_CONTENT:
            self._accepted(response.status, response.read(_REFUSAL_BYTES_MAX))
            self.close()
            raise refused(f"it was asked for a part of a file and answered {response.status}")
        if response.headers.get("Content-Range") != f"bytes {first}-{end - 1}/{end}":
            self.close()
            raise refused(f"a file is another one than the manifest says: {response.headers.get('Content-Range')}")
        while first < end:
            data = response.read(min(CHUNK_BYTES, end - first))
            if not data:
                raise ConnectionResetError("the connection ended in the middle of a file")
            first += len(data)
            yield data
        response.read()  # nothing: it lets the connection be used again

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request(method, path, body, {**self._headers, **headers})
        return self._connection.getresponse()

    def _accepted(self, status: int, data: bytes) -> bytes:
        if status < http.client.BAD_REQUEST:
            return data
        self.close()
        if status == http.client.UNAUTHORIZED:
            raise RunError(
                "LS0667",
                f"the host at {self.address} does not know the token of this one",
                why="all hosts of a cluster share one token.",
                hint="copy the file that `lockstep token` names from one host to all others, and start agents anew.",
            )
        said = from_wire(data.decode(errors="replace"))
        raise said if said is not None else refused(f"{self.address} answered {status}")


class _Patience:
    """How long a host is asked again, counted from the last byte that came from it."""

    def __init__(self, host: HostClient, patience_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._patience_s = patience_s
        self._now_s = now_s
        self.begin()

    def begin(self) -> None:
        """Something came."""
        self._until_s = self._now_s() + self._patience_s
        self._backoff_s = _BACKOFF_S

    def wait(self, error: Exception) -> None:
        """Something went wrong: hang up, and wait a little, or give up."""
        self._host.close()
        if isinstance(error, ssl.SSLCertVerificationError) or self._now_s() + self._backoff_s > self._until_s:
            self._give_up(error)
        time.sleep(self._backoff_s)
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_MAX_S)

    def _give_up(self, error: Exception) -> NoReturn:
        if isinstance(error, RunError):
            raise error
        raise RunError(
            "LS0660",
            f"no snapshot could be fetched from {self._host.address}",
            why=f"the last thing that happened there: {type(error).__name__}: {error}.",
            hint="is that host up, and can it be reached from here? The replica is tried again after a pause.",
        ) from None
