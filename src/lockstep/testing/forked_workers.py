"""Python processes that Spark starts for every query, forked instead of started.

A query starts an interpreter for its source and one for each operator in Python, which import PySpark, pandas and Arrow
to be asked one question: most of a second of work each, every time. Tests start many queries. Here one process has
imported all that, and what Spark starts in Python's place asks it for a copy of itself.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORKED = {
    "pyspark.sql.streaming.transform_with_state_driver_worker": -1,
    "pyspark.sql.streaming.python_streaming_source_runner": None,
}
"""Modules that Spark runs in a process of their own, and the time limit that each sets for its connection."""
_IMPORTED = (*FORKED, "pandas", "pyarrow", "lockstep.compile.keyed", "lockstep.runtime.epoch.source")
_READY = b"."

_IN_PYTHONS_PLACE = """\
#!/bin/sh
case "$2" in {modules}) exec {python} -I -S {request} {socket} "$2" ;; esac
exec {python} "$@"
"""


@contextmanager
def forked_workers() -> Iterator[str]:
    """What Spark shall start in Python's place, for as long as the block lasts."""
    if sys.platform != "linux":
        # A process that has loaded pandas cannot be forked everywhere.
        yield sys.executable
        return
    # A socket's path has to be short: in a test's own folder it may not be.
    with tempfile.TemporaryDirectory(prefix="lockstep-fork-") as folder, _served(Path(folder)) as program:
        yield program


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    path, program = folder / "socket", folder / "python"
    request = str(Path(__file__).parent / "fork_request.py")
    words = {"python": sys.executable, "request": request, "socket": str(path)}
    quoted = {name: shlex.quote(word) for name, word in words.items()}
    program.write_text(_IN_PYTHONS_PLACE.format(modules="|".join(FORKED), **quoted), encoding="utf-8")
    program.chmod(stat.S_IRWXU)
    server = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import serve; serve({str(path)!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        assert server.stdout.read(1) == _READY, "the process that Spark's workers are forked from has ended"
        yield str(program)
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


def serve(path: str) -> None:
    """Fork for whoever asks. When standard input ends, whoever started this is gone."""
    for name in _IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Ctrl-C is for whoever started this, and ends it soon enough.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    os.write(1, _READY)
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        asking, _ = listening.accept()
        _, files, _, _ = socket.recv_fds(asking, 1, 1)
        if os.fork() == 0:
            listening.close()
            _work(asking, files)
        asking.close()
        os.close(files[0])


def _end_with(asking: socket.socket) -> None:
    """Spark ends the process that it started, which is the one that asked: a source would wait for ever."""
    asking.recv(1)
    os._exit(0)


def _work(asking: socket.socket, files: list[int]) -> None:
    """What the process that was not started would have done. The one that asked waits for the end of this one."""
    with asking.makefile("rb") as given:
        wish = json.loads(given.readline())
    threading.Thread(target=_end_with, args=[asking], daemon=True).start()
    os.environ.clear()
    os.environ.update(wish["environment"])
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
    os.dup2(files[0], sys.stderr.fileno())
    # There it only tells how it gets on, four lines for each operator.
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        worker_util = importlib.import_module("pyspark.worker_util")
        with worker_util.get_sock_file_to_executor(timeout=FORKED[wish["module"]]) as connection:
            importlib.import_module(wish["module"]).main(connection, connection)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
