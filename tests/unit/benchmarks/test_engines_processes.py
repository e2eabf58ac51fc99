"""The feeder's files, the readers of engines' output, the loop that keeps programs running, and what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.engines import environments
from benchmarks.engines.adapters.programs import program
from benchmarks.engines.catalogue import ENGINES, engine, workload, workloads
from benchmarks.engines.contract import Options
from benchmarks.engines.feeder import LOADING_S, RAMP_S, feed
from benchmarks.engines.input import make_folders, read_input, write_all
from benchmarks.engines.keep_running import keep
from benchmarks.engines.readers import GrowingFiles, WholeFiles
from benchmarks.errors import BenchmarkError
from lockstep.bench.stopping import Stop


class Ticks:
    """A clock that goes on by what is waited for."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def wait(self, seconds: float) -> bool:
        self.now_us += round(seconds * 1e6)
        return False

    def clock(self) -> int:
        return self.now_us


def test_the_feeder_writes_what_is_due_in_whole_files_and_closes_at_the_end(tmp_path: Path) -> None:
    one, ticks = workload("tumbling_window"), Ticks()
    make_folders(one, tmp_path)
    sent = feed(one, tmp_path, RAMP_S + 0.6, 0.1, ticks.wait, ticks.clock)
    assert 170 <= sent["events"] <= 200
    files = sorted((tmp_path / "input/events").iterdir())
    assert [path.name for path in files] == [f"{number:08d}.jsonl" for number in range(len(files))]
    assert list((tmp_path / "staging").iterdir()) == []
    rows = read_input(one, tmp_path)["events"]
    assert [row["seq"] for row in rows] == list(range(sent["events"] + 250))
    assert all(0 <= row["sent_us"] // 1000 - row["at_ms"] < 300 for row in rows[: sent["events"]])
    assert one.expected({"events": rows})


def test_a_quiet_source_is_fed_nothing_while_it_is_quiet(tmp_path: Path) -> None:
    one, ticks = workload("quiet_input", quick=True), Ticks()
    begun_us = ticks.now_us + round((LOADING_S + 0.9 * RAMP_S) * 1e6)
    make_folders(one, tmp_path)
    feed(one, tmp_path, 34.0, 0.02, ticks.wait, ticks.clock)
    for source, silence in (("steady", False), ("moody", True)):
        after_s = [(row["sent_us"] - begun_us) / 1e6 for row in read_input(one, tmp_path)[source][:-250]]
        assert any(11 < at < 24 for at in after_s) != silence
        assert any(at > 26 for at in after_s)


def test_all_input_at_once_is_as_many_records_as_asked_for(tmp_path: Path) -> None:
    one = workload("two_rates")
    make_folders(one, tmp_path)
    assert write_all(one, tmp_path, 30) == 60
    assert [len(rows) for rows in read_input(one, tmp_path).values()] == [280, 280]


def test_whole_files_are_read_once_and_work_under_way_is_not_seen(tmp_path: Path) -> None:
    reader = WholeFiles(tmp_path)
    (tmp_path / ".part-0.inprogress").write_text('{"n": 0}\n')
    assert reader.poll() == []
    (tmp_path / "batch-9").mkdir()
    (tmp_path / "batch-9/part-0.json").write_text('{"n": 1}\n{"n": 2}\n')
    (tmp_path / "batch-9/_SUCCESS").write_text("")
    assert [row["n"] for row in reader.poll()] == [1, 2]
    assert reader.poll() == []


def test_growing_files_give_whole_lines_only(tmp_path: Path) -> None:
    path, reader = tmp_path / "rows.jsonl", GrowingFiles(tmp_path)
    path.write_text('{"n": 1}\n{"n"')
    assert [row["n"] for row in reader.poll()] == [1]
    with path.open("a") as file:
        file.write(": 2}\n")
    assert [row["n"] for row in reader.poll()] == [2]


def test_a_reader_of_a_file_that_is_cut_back_sees_rows_again(tmp_path: Path) -> None:
    path, reader = tmp_path / "rows.jsonl", GrowingFiles(tmp_path)
    path.write_text('{"n": 1}\n{"n": 2}\n')
    assert len(reader.poll()) == 2
    path.write_text('{"n": 1}\n')
    assert reader.poll() == []
    with path.open("a") as file:
        file.write('{"n": 2}\n')
    assert [row["n"] for row in reader.poll()] == [2]


def test_a_program_that_dies_is_started_again_and_its_process_is_known(tmp_path: Path) -> None:
    pid_file, stop = tmp_path / "pid", Stop()
    code = "import time; time.sleep(60)"
    thread = threading.Thread(target=keep, args=(pid_file, [sys.executable, "-c", code], stop))
    thread.start()
    try:
        first = _pid(pid_file, 0)
        subprocess.run(["kill", "-9", str(first)], check=True)
        assert _pid(pid_file, first) != first
    finally:
        stop.asked = True
        thread.join(10)
    assert not thread.is_alive()


def _pid(path: Path, other_than: int) -> int:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        if path.exists() and int(path.read_text()) != other_than:
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError("the program was not started")


def test_a_program_that_fails_right_away_is_given_up(tmp_path: Path) -> None:
    assert keep(tmp_path / "pid", [sys.executable, "-c", "raise SystemExit(3)"], Stop()) == 1


def test_an_engine_without_its_environment_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_ENGINES", str(tmp_path))
    for name in environments.FOREIGN:
        assert engine(name).missing() in (
            f"not installed; run: python -m benchmarks install {name}",
            "it needs Java, and there is none on the path",
        )
    assert engine("lockstep-1").missing() is None
    assert engine("spark").missing() is None


def test_only_engines_that_live_apart_can_be_installed() -> None:
    with pytest.raises(BenchmarkError, match="BM02 there is no engine flank to install"):
        environments.install(["flank"], print)


def test_pins_are_exact_and_name_no_place() -> None:
    for name in environments.FOREIGN:
        lines = (environments.PROGRAMS / f"{name}.txt").read_text().splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert pins
        assert all(line.count("==") == 1 and "/" not in line and not line.startswith("-") for line in pins)


def test_every_engine_does_the_first_three_workloads() -> None:
    for one in ENGINES.values():
        for name in ("word_count", "tumbling_window", "keyed_function"):
            assert one.supports(workload(name)) is None


def test_an_engine_says_which_workloads_it_does_not_do() -> None:
    assert engine("bytewax").supports(workload("nexmark_q8")) is not None
    assert all(engine("lockstep-2").supports(one) is None for one in workloads().values())


def test_lockstep_is_started_as_a_user_would_start_it(tmp_path: Path) -> None:
    one = workload("chain_2")
    launch = engine("lockstep-2").launch(one, tmp_path, Options(settings={"epoch_interval_s": "0.05"}))
    words = " ".join(launch.arguments)
    assert f"--project {tmp_path} run {program('lockstep', one)} --replicas 2 --master local[2]" in words
    assert "--set epoch_interval_s=0.05" in words
    assert launch.environment["BENCH_WORKLOAD"] == "chain_2"


def test_there_is_nobody_to_kill_before_an_engine_has_started(tmp_path: Path) -> None:
    for one in ENGINES.values():
        assert one.victim(tmp_path) is None
        assert not one.ready(tmp_path)
        assert one.rows(workload("word_count"), tmp_path) == []


def test_flink_names_the_task_manager_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "/jobs/j": {"vertices": [{"id": "v"}]},
        "/jobs/j/vertices/v": {"subtasks": [{"taskmanager-id": "tm-1"}, {"taskmanager-id": "tm-1"}]},
    }
    monkeypatch.setattr("benchmarks.engines.adapters.flink.rest", lambda _port, path: answers[path])
    (tmp_path / "work").mkdir()
    state = {"rest_port": 1, "job": "j", "pids": {"jobmanager": 10, "tm-0": 11, "tm-1": 12}}
    (tmp_path / "work/cluster.json").write_text(json.dumps(state))
    assert engine("flink").victim(tmp_path) == 12
