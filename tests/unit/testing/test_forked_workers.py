"""Spark's processes for a query, forked from one that is warm: for Spark there is no difference."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Protocol

import pytest

from lockstep.testing.forked_workers import FORKED, forked_workers


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    with forked_workers() as program:
        yield program


@pytest.mark.parametrize("module", FORKED)
def test_a_worker_of_a_query_connects_as_one_that_was_started_and_ends_with_its_connection(
    program: str, module: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        environment = {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
        }
        started = subprocess.Popen([program, "-m", module], env=environment, stderr=subprocess.DEVNULL)
        connection, _ = listening.accept()
        with connection, connection.makefile("rwb") as jvm:
            assert _text(jvm) == b"secret"
            jvm.write(struct.pack("!i", 2) + b"ok")
            jvm.flush()
            assert _number(jvm) not in (started.pid, os.getpid()), "it is another process that works"
        assert started.wait(60) == 0


def test_everything_else_is_python_itself(program: str) -> None:
    said = subprocess.run([program, "-c", "import sys; print(sys.executable)"], capture_output=True, check=True)
    assert said.stdout.decode().strip() == sys.executable


class Readable(Protocol):
    """What the JVM's end of a connection is read by."""

    def read(self, size: int, /) -> bytes:
        """So many bytes."""


def _text(file: Readable) -> bytes:
    return file.read(_number(file))


def _number(file: Readable) -> int:
    (number,) = struct.unpack("!i", file.read(4))
    return int(number)
