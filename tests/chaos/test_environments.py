"""A job goes on in another environment: replicas of both run side by side, and their digests are compared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import lockstep as ls
from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import Reader
from lockstep.control.operations.environments import with_environment
from lockstep.control.operations.model import Operation
from lockstep.control.operations.verbs import JobVerbs
from lockstep.observe.promises import once, order
from lockstep.runtime.desired_run import last_run
from lockstep.runtime.replica_environments import environment_text
from tests.chaos.jobs import PATIENCE_S, append
from tests.chaos.test_adoption import RECORDS, SETTINGS, Start, is_published, start
from tests.spark.wheel_environment import WheelEnvironment

__all__ = ["start"]

OTHER_ARROW = "25.0.1"
STAMPED = """
import lockstep as ls
import pyarrow as pa

def stamp(record):
    return {"user": record.user, "arrow": pa.__version__}

job = ls.Job("stamped")
events = job.source("events", ls.journal("events", schema="user string, amount bigint"))
events.map(stamp, schema="user string, arrow string").to(ls.files("out"))
"""
"""What no honest job does: its results depend on what is installed."""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The wheel in an environment of its own, with another Arrow than this one's."""
    environment = WheelEnvironment(tmp_path_factory.mktemp("other"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(environment.site)]
    done = subprocess.run([*pip, f"pyarrow=={OTHER_ARROW}"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pyarrow {OTHER_ARROW} cannot be installed: {done.stderr[-300:]}")
    assert pa.__version__ != OTHER_ARROW
    return str(environment.python)


def _upgraded(run: JobRun, job: str, python: str) -> Callable[[], Operation]:
    """Ask for it; what it has become."""
    before = last_run(run.store)
    assert before is not None
    verbs = JobVerbs(run.store, job)
    asked = verbs.upgrade(with_environment(before, python), same_results=True)

    def found() -> Operation:
        one = verbs.book.find(asked.number)
        assert one is not None
        return one

    return found


def _versions(run: JobRun) -> set[str]:
    """The Arrow of each replica that lives."""
    said = [(one.replica, one.pid) for one in run.store.progress() if psutil.pid_exists(one.pid)]
    texts = [environment_text(run.store, replica, pid) for replica, pid in said]
    return {version for version in (pa.__version__, OTHER_ARROW) for text in texts if f"Arrow {version}," in text}


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_both_environments_run_side_by_side_until_the_new_one_has_agreed(
    start: Start, tmp_path: Path, other_python: str
) -> None:
    append(tmp_path, RECORDS[:100])
    run = start(1)
    run.wait_until(run.all_run, PATIENCE_S, "starting the replica")
    assert _versions(run) == {pa.__version__}
    found = _upgraded(run, "counts", other_python)
    append(tmp_path, RECORDS[100:200])
    run.wait_until(lambda: _versions(run) == {pa.__version__, OTHER_ARROW}, PATIENCE_S, "running both")
    run.wait_until(lambda: not found().is_open, PATIENCE_S, "being done")
    assert found().state == "done", found().error
    append(tmp_path, RECORDS[200:])
    run.wait_until(lambda: is_published(run, 500), PATIENCE_S, "publishing all that came")
    assert _versions(run) == {OTHER_ARROW}
    epochs = list(Reader(tmp_path / "out").epochs())
    assert once(epochs) == order(epochs) == [] == run.store.divergences()
    spec = last_run(run.store)
    assert spec is not None and spec.environment == {"python": other_python} and spec.results_of == 1
    run.stop()


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_an_environment_that_computes_something_else_or_cannot_start_is_rolled_back(
    tmp_path: Path, other_python: str
) -> None:
    append(tmp_path, RECORDS[:50])
    run = JobRun(Run("stamped", STAMPED, 1, settings=SETTINGS), tmp_path)
    try:
        run.wait_until(run.all_run, PATIENCE_S, "starting the replica")
        for number, python in enumerate((other_python, str(_broken(tmp_path)))):
            found = _upgraded(run, "stamped", python)
            given = 50
            while found().is_open:
                append(tmp_path, RECORDS[given : given + 1])
                given += 1
                _pause(run)
            assert found().state == "rolled-back"
            expected = ("something else", "given up")[number]
            assert expected in found().error
        spec = last_run(run.store)
        assert spec is not None and spec.environment == {}
        assert _versions(run) == {pa.__version__}
        rows = ls.read(tmp_path / "out").column("arrow").to_pylist()
        assert set(rows) == {pa.__version__}, "nothing of the other environment was published"
        run.stop()
    finally:
        run.kill()


def _pause(run: JobRun) -> None:
    """One more epoch, at least a heartbeat."""
    head = run.store.head()
    epoch = head.epoch if head is not None else -1
    run.wait_until(lambda: (one := run.store.head()) is not None and one.epoch > epoch, PATIENCE_S, "the next epoch")


def _broken(folder: Path) -> Path:
    """A Python that has everything installed, and in which no replica can start."""
    path = folder / "broken-python"
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\nexit 1\n')
    path.chmod(0o755)
    return path
