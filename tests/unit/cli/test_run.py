"""`lockstep run` with replicas that are only pretended: what it refuses, what it shows, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli.plain_lines import JsonLines, PlainLines
from lockstep.clock import wall_us
from lockstep.config import STORE_FOLDER
from lockstep.control.hosts import agents, job_agent
from lockstep.control.supervise import supervisor
from lockstep.errors import FunctionError
from lockstep.runtime.spec import EXIT_JOB_ERROR, ReplicaSpec
from lockstep.store.protocols import Entry, Progress, Published
from lockstep.store.sqlite_store import open_store
from tests.unit.agent.pretended import PretendedMachine, started
from tests.unit.cli.conftest import Call, Said

JOB = """
import lockstep as ls
job = ls.Job("ticks")
job.source("ticks", ls.rate(10)).to(ls.{sink})
"""


class PretendedReplica:
    """Seals and publishes one epoch each time the supervisor looks at it."""

    fails_at = -1
    on_epoch = staticmethod(lambda epoch: None)

    gentle = False
    share = "full"

    def __init__(self, spec: ReplicaSpec, **_: Any) -> None:
        self._spec = spec
        self._code: int | None = None
        self._store = open_store(Path(spec.home), spec.job)
        self._holder = self._store.begin(spec.replica, os.getpid())
        self.pid = os.getpid()

    def exit_code(self) -> int | None:
        """Does an epoch's work, and says how it ended."""
        if self._code is None:
            self._epoch()
        return self._code

    def _epoch(self) -> None:
        head = self._store.head()
        epoch, now = head.epoch + 1 if head else 0, wall_us()
        if epoch == self.fails_at:
            self._fail()
            return
        self._store.seal(Entry(epoch, now, {"ticks": {"0": epoch}}, {}, 10, now, now), self._holder)
        self._store.add_published(Published(epoch, self._spec.replica, now + 2000, 10, now, now, 0.1))
        self._store.report(
            Progress(
                self._spec.replica, self._holder.incarnation, self.pid, "running", epoch, 0.1, updated_us=wall_us()
            )
        )
        self.on_epoch(epoch)

    def _fail(self) -> None:
        error = FunctionError("LS0301", 'the function of step "map" raised KeyError', why="at job.py:4")
        self._spec.folder.mkdir(parents=True, exist_ok=True)
        (self._spec.folder / "error.json").write_text(json.dumps({"error": error.to_wire()}))
        self._code = EXIT_JOB_ERROR

    def full_speed(self) -> None:
        """It has it."""

    def cpu_s(self) -> float:
        """It uses none of its own."""
        return 0.0

    def drain(self) -> None:
        """It ends well."""
        self._code = 0

    def kill(self) -> None:
        """Nothing is left of it."""
        self._store.close()


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[PretendedReplica]:
    """Replicas without Spark, and a job for them."""

    class Fresh(PretendedReplica):
        pass

    monkeypatch.setattr(job_agent, "start_agent", started(PretendedMachine(Fresh)))
    monkeypatch.setattr(agents, "with_jvm", lambda spec: spec)
    monkeypatch.setattr(supervisor, "TICK_S", 0.005)
    for display in (PlainLines, JsonLines):
        monkeypatch.setattr(display, "interval_s", 0.02)
    (tmp_path / "job.py").write_text(JOB.format(sink='files("out/ticks")'))
    return Fresh


def _json_lines(said: Said, kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, said.out.splitlines()) if line["type"] == kind]


def test_until_epoch_stops_gracefully_when_that_epoch_is_published(
    lockstep: Call, pretended: type[PretendedReplica], tmp_path: Path
) -> None:
    said = lockstep("run", "job.py", "-n", "1", "--until-epoch", "3")
    assert said.code == 0, said.err
    store = open_store(tmp_path / STORE_FOLDER, "ticks")
    last = store.published(0, 1000)[-1].epoch
    store.close()
    assert last >= 3
    assert "epoch 3 is published: stopping" in said.err
    assert f"stopped after epoch {last}; the next run goes on from there" in said.err
    assert said.out == "", "stdout is for data"


def test_the_start_says_where_output_and_logs_are(lockstep: Call, pretended: type[PretendedReplica]) -> None:
    said = lockstep("run", "job.py", "--until-epoch", "1")
    assert "job ticks: 2 replicas on local[1], from the beginning" in said.err
    assert "files out/ticks (parquet), exactly-once" in said.err
    assert ".lockstep/jobs/ticks/replicas/r0/log.txt" in said.err
    again = lockstep("run", "job.py", "--until-epoch", "1")
    assert re.search(r"going on after epoch \d+", again.err)


def test_json_lines_hold_the_begin_each_event_and_the_status(lockstep: Call, pretended: type[PretendedReplica]) -> None:
    said = lockstep("run", "job.py", "-n", "1", "--until-epoch", "3", "--json")
    assert said.code == 0
    (begin,) = _json_lines(said, "begin")
    assert begin["sinks"] == [{"sink": "files", "place": "files out/ticks (parquet)", "guarantee": "exactly-once"}]
    assert _json_lines(said, "event")[0]["kind"] == "replica-started"
    last = _json_lines(said, "status")[-1]
    assert last["job"] == "ticks"
    assert last["head"]["epoch"] >= 3
    assert last["latency_last_minute_ms"]["p50"] == 2.0


def test_a_job_that_prints_its_rows_leaves_stdout_to_them(
    lockstep: Call, pretended: type[PretendedReplica], tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB.format(sink="console()"))
    said = lockstep("run", "job.py", "-n", "1", "--until-epoch", "2", "--json")
    assert said.out == ""
    assert json.loads(said.err.splitlines()[0])["type"] == "begin"


def test_a_signal_stops_gracefully_and_says_so(lockstep: Call, pretended: type[PretendedReplica]) -> None:
    pretended.on_epoch = staticmethod(lambda epoch: os.kill(os.getpid(), signal.SIGINT) if epoch == 4 else None)
    said = lockstep("run", "job.py", "-n", "1")
    assert said.code == 0
    assert "Ctrl-C again stops at once" in said.err


def test_a_second_signal_stops_at_once_and_the_exit_code_says_it(
    lockstep: Call, pretended: type[PretendedReplica], monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(epoch: int) -> None:
        if epoch in (3, 6):
            os.kill(os.getpid(), signal.SIGINT)

    pretended.on_epoch = staticmethod(signalled)
    monkeypatch.setattr(pretended, "drain", lambda self: None)
    said = lockstep("run", "job.py", "-n", "1")
    assert said.code == 1
    assert "Ctrl-C again stops at once" in said.err
    assert "stopping at once" in said.err
    assert "stopped at once after epoch" in said.err


def test_a_job_that_fails_ends_with_1_and_the_error(lockstep: Call, pretended: type[PretendedReplica]) -> None:
    pretended.fails_at = 2
    said = lockstep("run", "job.py", "-n", "1")
    assert said.code == 1
    assert 'LS0301 the function of step "map" raised KeyError' in said.err
    assert ".lockstep/jobs/ticks/replicas/*/log.txt" in said.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--set", "replicas=none"), "LS0006"),
        (("--set", "replicaz=2"), "LS0006"),
        (("--set", "replicas"), "LS0007"),
        (("--spark-conf", "spark.sql.session.timeZone=Europe/Berlin"), "LS0611"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    lockstep: Call, pretended: type[PretendedReplica], arguments: tuple[str, ...], code: str
) -> None:
    said = lockstep("run", "job.py", *arguments)
    assert said.code == 2
    assert said.err.startswith(code)


def test_settings_of_the_command_line_reach_the_run(lockstep: Call, pretended: type[PretendedReplica]) -> None:
    for text in ("0.5", "500 ms"):
        said = lockstep("run", "job.py", "-n", "1", "--set", f"epoch_interval_s={text}", "--until-epoch", "1")
        assert said.code == 0, said.err


def test_spark_settings_of_the_command_line_join_those_of_the_file(tmp_path: Path) -> None:
    from lockstep.config import load_settings

    (tmp_path / "lockstep.toml").write_text(
        '[spark]\nmaster = "local[2]"\n[spark.conf]\n"spark.a" = "1"\n"spark.b" = "1"\n'
    )
    spark = load_settings(tmp_path, spark_overrides={"conf": {"spark.b": "2"}}).spark
    assert (spark.master, dict(spark.conf)) == ("local[2]", {"spark.a": "1", "spark.b": "2"})


def test_a_changed_plan_is_refused_with_what_differs(
    lockstep: Call, pretended: type[PretendedReplica], tmp_path: Path
) -> None:
    assert lockstep("run", "job.py", "-n", "1", "--until-epoch", "1").code == 0
    (tmp_path / "job.py").write_text(JOB.format(sink='files("out/ticks")').replace('source("ticks"', 'source("tocks"'))
    said = lockstep("run", "job.py", "-n", "1")
    assert said.code == 2
    assert said.err.startswith("LS0609")
    assert "the sources were: ticks; they are: tocks" in said.err


def test_a_job_that_has_no_hosts_cannot_be_handed_over(lockstep: Call, pretended: type[PretendedReplica]) -> None:
    said = lockstep("run", "job.py", "--detach")
    assert said.code == 2 and "LS0689" in said.err
