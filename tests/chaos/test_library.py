"""Jobs run from Python, in scripts that are interrupted and killed: the right rows, and nothing is left behind."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import lockstep as ls
from lockstep.agent.leftovers import leftovers
from lockstep.errors import LockstepError
from lockstep.store.home import job_folder
from lockstep.store.sqlite_store import open_store
from tests.chaos.jobs import PATIENCE_S

MARK = "LOCKSTEP_TEST_LIBRARY"
WORDS = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"]
HELPERS = """
def split(record):
    return [{"word": word} for word in record["line"].split()]
"""
BOUNDED = """
import json, sys
from pathlib import Path

import lockstep as ls
from helpers import split

with Path("executed").open("a") as log:      # a script does more than describe a job: replicas must not do it again
    log.write("once\\n")
job = ls.Job("words")
lines = job.source("lines", ls.collection([{"line": sys.argv[1]}], schema="line string"))
counts = lines.flat_map(split, schema="word string").key_by("word").count()
counts.to(ls.files("counts"), name="counts")
result = job.run(replicas=2)
print(json.dumps({"rows": list(result.read("counts")), "project": str(result.project)}))

broken = ls.Job("broken")
numbers = broken.source("numbers", ls.collection([{"n": 0}], schema="n bigint"))
numbers.map(lambda record: {"n": 1 // record["n"]}, schema="n bigint", name="divide").to(ls.files("out"))
try:
    broken.run()
except ls.LockstepError as error:
    print(json.dumps({"code": error.code, "fact": error.fact, "why": error.why}))
"""
LIVE = """
import json, signal, sys, time
import lockstep as ls

# Whoever starts the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

job = ls.Job("live")
words = job.source("words", ls.journal("words", schema="word string"))
words.key_by("word").count().to(ls.files("counts"), name="counts")
project = sys.argv[1] or None
with job.start(project=project, replicas=1, spares=0) as running:
    running.put("words", [{"word": word} for word in sys.argv[2].split()])
    running.catch_up()
    print(json.dumps({"rows": list(running.read("counts")), "project": str(running.project)}), flush=True)
    while True:
        time.sleep(0.1)
"""


class Script:
    """A program that runs a job; all processes that come of it are known by a mark in their environment."""

    def __init__(self, folder: Path, text: str, *arguments: str) -> None:
        self._mark = uuid.uuid4().hex
        (folder / "script.py").write_text(text)
        (folder / "helpers.py").write_text(HELPERS)
        self.log = folder / "script.err"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "script.py", *arguments],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, MARK: self._mark, "TMPDIR": str(folder)},
                text=True,
            )

    def line(self) -> Any:
        """The next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def family(self) -> list[psutil.Process]:
        """The program and all that it has started, whoever their parents are by now."""
        return [one for one in psutil.process_iter() if self._is_ours(one)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE)
        except (psutil.Error, OSError):
            return False

    def end(self) -> None:
        for one in self.family():
            one.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


Start = Callable[..., Script]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    scripts: list[Script] = []

    def started(text: str, *arguments: str) -> Script:
        scripts.append(Script(tmp_path, text, *arguments))
        return scripts[-1]

    yield started
    for one in scripts:
        one.end()


def _newest(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The last count of each word: rolling results come as updates."""
    return {row["word"]: row["count"] for row in rows}


def _wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


@pytest.mark.timeout(1800)
def test_a_script_without_a_guard_runs_its_job_once_and_gets_rows_and_errors(start: Start, tmp_path: Path) -> None:
    script = start(BOUNDED, " ".join(WORDS))
    said = script.line()
    assert _newest(said["rows"]) == Counter(WORDS)
    error = script.line()
    assert error["code"] == "LS0301" and '"divide"' in error["fact"]
    assert script.process.wait(PATIENCE_S) == 0, script.log.read_text()
    assert (tmp_path / "executed").read_text() == "once\n"
    assert not Path(said["project"]).exists()
    assert script.family() == []


@pytest.mark.timeout(1800)
def test_an_interrupted_script_drains_its_job_and_the_next_one_goes_on_until_it_is_killed(
    start: Start, tmp_path: Path
) -> None:
    project = tmp_path / "shop"
    script = start(LIVE, str(project), " ".join(WORDS[:6]))
    assert _newest(script.line()["rows"]) == Counter(WORDS[:6])
    assert len(script.family()) > 3, "the script, its supervisor, an agent and a replica"
    script.process.send_signal(signal.SIGINT)
    # A process that ends by SIGINT says so; Python has raised KeyboardInterrupt out of the block.
    assert script.process.wait(PATIENCE_S) == -signal.SIGINT
    assert "KeyboardInterrupt" in script.log.read_text()
    assert script.family() == []
    store = open_store(project / ".lockstep", "live")
    assert [one.state for one in store.progress()] == ["stopped"], "it finished its epoch"
    store.close()

    script = start(LIVE, str(project), " ".join(WORDS[6:]))
    assert _newest(script.line()["rows"]) == Counter(WORDS), "it went on from its state"
    os.kill(script.process.pid, signal.SIGKILL)
    _wait_until(lambda: script.family() == [], "the supervisor sees that the script is gone, and ends all")
    store = open_store(project / ".lockstep", "live")
    assert [one.state for one in store.progress()] == ["stopped"], "in a project folder it drains"
    store.close()


@pytest.mark.timeout(1800)
def test_of_a_killed_script_with_a_temporary_folder_nothing_is_left(start: Start, tmp_path: Path) -> None:
    script = start(LIVE, "", " ".join(WORDS))
    said = script.line()
    folder = Path(said["project"])
    assert _newest(said["rows"]) == Counter(WORDS) and folder.is_relative_to(tmp_path)
    os.kill(script.process.pid, signal.SIGKILL)
    _wait_until(lambda: script.family() == [], "the supervisor sees that the script is gone, and ends all")
    _wait_until(lambda: not folder.exists(), "the folder is removed")


@pytest.mark.timeout(1800)
def test_a_job_that_this_process_holds_is_fed_looked_at_and_told_if_its_supervisor_is_killed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    job = ls.Job("held", heartbeat_interval="300 ms")
    words = job.source("words", ls.journal("words", schema="word string"))
    words.key_by("word").count().to(ls.files("counts"), name="counts")
    words.to(ls.console(), name="printed")
    with pytest.raises(LockstepError) as caught, job.start() as running:
        assert len(running.read("counts")) == 0
        for batch in (WORDS[:4], WORDS[4:]):
            assert running.put("words", ({"word": word} for word in batch)) == len(batch)
        running.catch_up()
        frame = running.read("counts").pandas()
        assert dict(zip(frame["word"], frame["count"], strict=True)) == Counter(WORDS)
        assert running.status().keys() == _status_of_the_command(running.project).keys()
        assert running.status()["state"] == "healthy" and "held: healthy" in repr(running)
        assert "<svg" in running._repr_html_() and str(running.project) in running._repr_html_()
        assert running.wait("100 ms") is False and running.is_running
        with pytest.raises(LockstepError, match="LS0624"):
            running.put("word", [])
        with pytest.raises(LockstepError, match="LS0403"):
            running.put("words", [{"word": 5}])
        project = running.project
        folder = job_folder(project / ".lockstep", "held")
        os.kill(running._process.pid, signal.SIGKILL)
        running.wait()
    assert caught.value.code == "LS0698"
    assert leftovers(folder) == []
    assert not running.is_running
    with pytest.raises(LockstepError, match="LS0698"):
        running.put("words", [{"word": "more"}])
    assert "question" in capfd.readouterr().out, "the console sink writes to this process's output"
    del running, caught
    # Errors hold frames, and those hold what was called in them.
    gc.collect()
    assert not project.exists()


def _status_of_the_command(project: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "lockstep", "--project", str(project), "status", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    status: dict[str, Any] = json.loads(done.stdout)
    return status
