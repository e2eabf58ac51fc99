"""`lockstep check`: as a process of its own, which starts and ends a JVM and prints nothing of Spark's; and what it
says of the job that `lockstep new` writes, and of one that Spark refuses."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lockstep.cli.main import main
from lockstep.connect.tables import look_in
from lockstep.control.start import check as control_check
from lockstep.runtime.epoch.source import LockstepSource
from tests.spark.guides import own_modules

SOUND = """
import random
import lockstep as ls
from lockstep import F

job = ls.Job("logins")
logins = job.source("logins", ls.journal("logins", schema="user string, ok boolean, at timestamp"))
logins.map(lambda r: {"score": random.random()}, schema="score double", name="score").to(ls.console())
logins.to(ls.console(), name="screen", guarantee="at-most-once")
(logins.event_time("at", out_of_order="5 seconds").filter(~F.col("ok")).key_by("user")
    .window(ls.tumbling("1 minute")).agg(failures=F.count("*")).to(ls.files("out/alerts"), guarantee="at-least-once"))
"""


def _check(folder: Path, job: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(job)
    command = [sys.executable, "-m", "lockstep", "check", "job.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_a_sound_job_is_described_with_types_guarantees_and_doubts(tmp_path: Path) -> None:
    done = _check(tmp_path, SOUND, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    schemas = {step["step"]: step["schema"] for step in found["steps"]}
    assert schemas["agg"] == "user string, window_start timestamp, window_end timestamp, failures bigint"
    assert {sink["sink"]: sink["guarantee"] for sink in found["sinks"]} == {
        "console": "at-least-once",
        "screen": "at-most-once",
        "files": "exactly-once",
    }
    whys = {sink["sink"]: sink["why"] for sink in found["sinks"]}
    assert "asks only for at-least-once" in whys["files"]
    assert "noted as taken before it is written" in whys["screen"]
    (python,) = found["python"]
    assert (python["step"], [one["what"] for one in python["suspicions"]]) == ("score", ["random.random"])
    assert found["output_mode"] == "append"
    assert found["checkpoint_epoch"] is None
    assert not (tmp_path / ".lockstep").exists(), "a check writes nothing"


@pytest.fixture
def in_shared_session(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check without a JVM of its own: the one above has shown that it starts and ends, and is quiet."""
    own = session.newSession()
    own.dataSource.register(LockstepSource)
    monkeypatch.setattr(control_check, "_session", lambda *_: contextlib.nullcontext(own))


def _checked(folder: Path, *arguments: str) -> int:
    try:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(folder), "check", str(folder / "job.py"), *arguments])
    finally:
        # A command ends its process; here others go on in it, and look for their tables elsewhere.
        look_in(Path())
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("in_shared_session")
def test_a_job_that_spark_refuses_is_explained_in_the_words_of_the_job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.py").write_text(SOUND.replace('~F.col("ok")', '"ok > interval 1 day"'))
    code, said = _checked(tmp_path), capfd.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith("LS0209")
    assert 'step "filter"' in said.err


@pytest.mark.usefixtures("in_shared_session")
def test_the_job_of_a_new_project_is_sound_and_exactly_once_and_its_test_passes(
    session: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with contextlib.chdir(tmp_path), contextlib.suppress(SystemExit):
        main(["new", "shop"])
    capfd.readouterr()
    assert _checked(tmp_path / "shop", "--json") == 0
    (sink,) = json.loads(capfd.readouterr().out)["sinks"]
    assert (sink["sink"], sink["guarantee"]) == ("revenue", "exactly-once")
    with own_modules(tmp_path / "shop"):
        (test,) = (one for name, one in vars(import_module("test_job")).items() if name.startswith("test_"))
        test(session)
