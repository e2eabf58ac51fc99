"""A store that speaks like S3, for tests; one that ignores conditions; and a process that publishes there and dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lockstep.connect.protocols import Place, SinkSide
from lockstep.connect.registry import sink_side
from lockstep.connect.remote.paths import RemotePath, location
from lockstep.connect.specs import files
from lockstep.services.running import free_ports
from lockstep.store.protocols import Holder
from tests.unit.connect.sinks_for_connect import SCHEMA, publish

BUCKET = "shop"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "no-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
CHANGES = ("put_if_absent", "write", "remove")
"""What publishing does to a remote system."""


@contextmanager
def moto(folder: Path) -> Iterator[str]:
    """moto's server of S3 with one bucket; its address."""
    import boto3

    (port,) = free_ports(1)
    command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(port)]
    with (folder / "moto.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + 60
        while not _listens(port):
            assert process.poll() is None, (folder / "moto.log").read_text()
            assert time.monotonic() < deadline_s, "moto does not start"
            time.sleep(0.05)
        address = f"http://127.0.0.1:{port}"
        names = {"aws_access_key_id": "tests", "aws_secret_access_key": "no-secret", "region_name": "us-east-1"}
        boto3.session.Session(**names).client("s3", endpoint_url=address).create_bucket(Bucket=BUCKET)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Careless(BaseHTTPRequestHandler):
    """Keeps objects, and looks at no condition."""

    objects: dict[str, bytes]
    conditions: Callable[[], tuple[int, str]] | None = None

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "If-None-Match" in self.headers and self.conditions is not None:
            status, code = type(self).conditions()  # type: ignore[misc]
            self._answer(status, f"<Error><Code>{code}</Code><Message>no conditions</Message></Error>".encode())
            return
        self.objects[urlsplit(self.path).path] = body
        self._answer(200, b"", ETag='"1"')

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if "list-type" in parse_qs(parts.query):
            self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        elif parts.path in self.objects:
            self._answer(200, self.objects[parts.path], ETag='"1"')
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")

    def do_DELETE(self) -> None:
        self.objects.pop(urlsplit(self.path).path, None)
        self._answer(204, b"")

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def careless_store(conditions: tuple[int, str] | None = None) -> Iterator[tuple[str, dict[str, bytes]]]:
    """A store that ignores conditions, or answers puts that have one so; its address and what it holds."""
    objects: dict[str, bytes] = {}
    answer = staticmethod(lambda: conditions) if conditions is not None else None
    handler = type("Handler", (_Careless,), {"objects": objects, "conditions": answer})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def remote_sink(folder: str, place: Place, format: Any = "parquet") -> SinkSide:
    """A files sink at an address, opened."""
    side = sink_side(files(folder, format=format), "alerts", place)
    side.open(SCHEMA)
    return side


def kill_around_change(folder: str, number: int) -> None:
    """Kill this process, hard, at the ``number``-th moment: odd ones before, even ones after a change."""
    path = location(folder)
    assert isinstance(path, RemotePath)
    system = type(path.system)
    moments = 0

    def moment() -> None:
        nonlocal moments
        moments += 1
        if moments == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            moment()
            done = real(*arguments, **named)
            moment()
            return done

        return call

    for name in CHANGES:
        setattr(system, name, deadly(getattr(system, name)))


def main(folder: str, project: str, replica: str, epochs: str) -> None:
    """Publish epochs 0 to n-1 as fast as possible: started twice at the same time."""
    place = Place(Path(project), Path(project) / ".lockstep", "job")
    side = remote_sink(folder, place)
    holder = Holder(replica, 1)
    won = sum(publish(side, epoch, holder).by == str(holder) for epoch in range(int(epochs)))
    sys.stdout.write(str(won))


if __name__ == "__main__":
    main(*sys.argv[1:])
