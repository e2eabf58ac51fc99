"""What holds for every ring of tests: nothing they start outlives them, and each ring says how long it took."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from lockstep import credentials

LEFT_BEHIND_GRACE_S = 10.0
"""A JVM that was told to end needs a moment; one that lives longer was forgotten."""
SESSION_VARIABLE = "LOCKSTEP_TEST_SESSION"
RINGS = ("unit", "sim", "spark", "chaos", "cluster")

pytest_plugins = ["lockstep.testing.fixtures"]
# On a busy machine an example may wait for the processor for longer than Hypothesis would let it.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")

_ring_seconds: dict[str, float] = {}
# Every process that a test starts inherits this, also one whose parent was killed and that is nobody's child any more.
os.environ[SESSION_VARIABLE] = uuid.uuid4().hex


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fails the run if a process that a test started is alive at the end."""
    yield
    deadline_s = time.monotonic() + LEFT_BEHIND_GRACE_S
    while (left := _left_behind()) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    if left:
        listed = "\n".join(f"  {process.pid} {_command(process)}" for process in left)
        pytest.fail(f"tests left {len(left)} processes behind:\n{listed}", pytrace=False)


@pytest.fixture(autouse=True)
def secrets_of_a_test_are_its_own() -> Iterator[None]:
    """A process that knows a secret starts its JVM differently: the tests that come later must not notice."""
    before = set(credentials._hidden)
    yield
    credentials._hidden.clear()
    credentials._hidden.update(before)


def _left_behind() -> list[psutil.Process]:
    spared = _shared_jvm() | {os.getpid()}
    return [
        process
        for process in psutil.process_iter()
        if process.pid not in spared and _is_ours(process) and "resource_tracker" not in _command(process)
    ]


def _is_ours(process: psutil.Process) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return bool(process.environ().get(SESSION_VARIABLE) == os.environ[SESSION_VARIABLE])
    except (psutil.Error, OSError):
        return False


def _shared_jvm() -> set[int]:
    """The JVM of this process's own Spark session and what it started: it ends when Python exits."""
    early = sys.modules.get("lockstep.runtime.spark.boot")
    context = sys.modules.get("pyspark.core.context")
    gateway = getattr(getattr(context, "SparkContext", None), "_gateway", None)
    found = [one._process for one in getattr(early, "_in_use", ())] + [getattr(gateway, "proc", None)]
    return {pid for jvm in found if jvm is not None and jvm.poll() is None for pid in _family(jvm.pid)}


def _family(pid: int) -> set[int]:
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.Error:
        return set()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:160]
    except psutil.Error:
        return "(ended meanwhile)"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's time to its ring."""
    parts = Path(report.nodeid.partition("::")[0]).parts
    ring = parts[1] if len(parts) > 2 and parts[0] == "tests" and parts[1] in RINGS else "examples in docstrings"
    _ring_seconds[ring] = _ring_seconds.get(ring, 0.0) + report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long each ring took, above pytest's closing line."""
    terminalreporter.section("time per ring")
    for ring, seconds in _ring_seconds.items():
        terminalreporter.write_line(f"{ring:<24}{seconds:8.1f} s")
