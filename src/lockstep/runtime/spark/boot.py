"""Starting Spark's JVM before Python has loaded what it needs to talk to it.

PySpark starts it through two shell scripts and a JVM that only works out the command, and waits meanwhile. A replica's
process starts that command itself, before anything else, and loads its modules beside it (``start.py``). Light on
purpose: whatever is imported here delays the JVM.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lockstep.credentials import knows_secrets, relay, write_private

_CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Where the JVM writes its port and secret, when it listens."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""Where PySpark looks for a JVM that is there already."""
PROPERTIES = "{properties}"
"""In a command: the file with the JVM's settings. Not arguments: everybody on the machine can read those."""
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_POLL_S = 0.01
_TIMEOUT_S = 120.0


def submit_options(properties: Path) -> list[str]:
    """What Spark's launcher is asked for: PySpark's server, with settings from a file (and its own default ones)."""
    return ["--load-spark-defaults", "--properties-file", str(properties), "pyspark-shell"]


def properties_text(conf: Mapping[str, str]) -> str:
    r"""Settings as a file of properties, everything but plain letters and digits as Java's escapes.

    >>> properties_text({"spark.a": "b c"})
    'spark.a=b\\u0020c\n'
    """
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())


def _escaped(text: str) -> str:
    return "".join(map(_escaped_character, text))


def _escaped_character(one: str) -> str:
    if one.isascii() and (one.isalnum() or one in "._-/"):
        return one
    data = one.encode("utf-16-be")
    return "".join(f"\\u{int.from_bytes(data[at : at + 2]):04x}" for at in range(0, len(data), 2))


class Jvm:
    """A JVM that boots. It ends with this process: its standard input is our end of a pipe."""

    def __init__(
        self, command: Sequence[str], folder: Path, conf: Mapping[str, str], before: Callable[[], None] | None = None
    ) -> None:
        # In the folder of whoever boots, not in /tmp: if it is killed meanwhile, this goes with the rest.
        self._folder = Path(tempfile.mkdtemp(prefix="jvm-", dir=folder))
        self._connection = self._folder / "connection"
        # With a home Spark gives its Python processes an archive of sources to import PySpark from, and each of them
        # compiles what it imports, a second of work; without one they import the installed package, compiled once.
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        environment |= {"SPARK_CONNECT_MODE": "0", _CONNECTION: str(self._connection)}
        environment |= executors_home(conf.get("spark.master", ""), command, folder)
        properties = self._folder / "spark.properties"
        write_private(properties, properties_text(conf))
        words = [str(properties) if word == PROPERTIES else word for word in command]
        output = subprocess.PIPE if knows_secrets() else None
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stderr=output,
            env=environment,
            preexec_fn=before,  # noqa: PLW1509 - there is one thread yet
        )
        if self._process.stderr is not None:
            relay(self._process.stderr, sys.stderr.fileno())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def connection(self) -> tuple[int, str] | None:
        """Its port and secret, once it listens; None if it has ended instead."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        try:
            while not self._connection.exists():
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    self._end()
                    return None
                time.sleep(_POLL_S)
            return _read(self._connection.read_bytes())
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def executors_home(master: str, command: Sequence[str], folder: Path) -> dict[str, str]:
    """What a JVM has to know that starts executors itself (`local-cluster[...]`) or sends Spark to them (`yarn`).

    With `local-cluster` its home is a folder with a link to Spark's jars: executors write their logs below it, and
    those are not to be among the installed packages.
    """
    if not master.startswith("local-cluster") and master != "yarn":
        return {}
    entries = [entry for word in command for entry in word.split(os.pathsep)]
    jars = Path(next(entry for entry in entries if entry.endswith("/jars/*"))).parent
    scala = next(jars.glob("spark-core_*.jar")).name.removeprefix("spark-core_").partition("-")[0]
    if master == "yarn":
        return {"SPARK_HOME": str(jars.parent), "SPARK_SCALA_VERSION": scala}
    home = folder / "spark-home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / "jars").symlink_to(jars, target_is_directory=True)
    return {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala}


def _read(body: bytes) -> tuple[int, str]:
    """Port, length of the secret, secret.

    >>> _read(struct.pack("!ii", 4040, 3) + b"abc")
    (4040, 'abc')
    """
    port, length = struct.unpack("!ii", body[:8])
    return port, body[8 : 8 + length].decode()


_booting: list[Jvm] = []
_in_use: list[Jvm] = []
"""Held for as long as this process lives: a JVM whose pipe is let go ends."""


def boot(command: Sequence[str], folder: Path, conf: Mapping[str, str], *, starved: bool = False) -> None:
    """Start the JVM that the next session of this process uses.

    Its port and secret and its settings are in ``folder`` for a moment. One that may be ``starved`` of the processor
    would see the end of its pipe late: Linux ends it with this process.
    """
    for left in folder.glob("jvm-*"):
        shutil.rmtree(left, ignore_errors=True)
    _booting.append(Jvm(command, folder, conf, end_with_parent if starved else None))


def booting_pid() -> int | None:
    """The process id of the JVM that was started and is not used yet."""
    return _booting[-1].pid if _booting else None


def end_with_parent() -> None:
    """Have Linux end this process at once when its parent is gone."""
    _at_parents_end(signal.SIGKILL)


def outlive_parent() -> None:
    """See to its own end again: whoever publishes finishes the epoch under way."""
    _at_parents_end(0)


def _at_parents_end(number: int) -> None:
    # Called between fork and exec too, where nothing may be imported.
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


@contextmanager
def booted() -> Iterator[None]:
    """In here PySpark finds the JVM that was started early; without one, or if it failed, it starts its own."""
    early = _booting.pop() if _booting else None
    found = early.connection() if early is not None else None
    if found is None:
        if early is not None:
            print("the JVM that was started early has ended: another one is started", file=sys.stderr, flush=True)
        yield
        return
    assert early is not None
    _in_use.append(early)
    os.environ[_PORT], os.environ[_SECRET] = str(found[0]), found[1]
    try:
        yield
    finally:
        # Not for those that this process starts.
        del os.environ[_PORT], os.environ[_SECRET]
