"""The processes of the benches and the command line around them: nothing is left behind, failures are told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from lockstep.bench import benches
from lockstep.bench.children import Child, killed, running
from lockstep.bench.report import Report, Verdict
from lockstep.bench.store_workers import pass_through, seal
from lockstep.bench.workspace import workspace
from lockstep.errors import RunError
from lockstep.store.sqlite_store import open_store
from tests.unit.cli.conftest import Call, lockstep

__all__ = ["lockstep"]

_SLEEPER = ("-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])")


def _tree(child: Child) -> list[psutil.Process]:
    """The process and the one it starts, as soon as that runs."""
    process = psutil.Process(child.pid)
    while not process.children():
        child.check()
    return [process, *process.children()]


def test_a_process_that_ends_by_itself_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = Child("the feeder", ["-c", "raise SystemExit('the disk is full')"], tmp_path / "log", tmp_path)
    with killed(child), pytest.raises(RunError) as raised:
        child.wait_until(lambda: False, timeout_s=30, what="nothing")
    assert raised.value.code == "LS0630"
    assert "exit code 1" in raised.value.fact
    assert "the disk is full" in raised.value.why


def test_waiting_ends_with_what_took_too_long(tmp_path: Path) -> None:
    child = Child("the query", _SLEEPER, tmp_path / "log", tmp_path)
    with killed(child), pytest.raises(RunError, match="the first batch took longer than 0 s"):
        child.wait_until(lambda: False, timeout_s=0.05, what="the first batch")


def test_an_interrupted_bench_leaves_no_process_behind(tmp_path: Path) -> None:
    tree: list[psutil.Process] = []
    with pytest.raises(KeyboardInterrupt), running(Child("a", _SLEEPER, tmp_path / "log", tmp_path)) as child:
        tree += _tree(child)
        raise KeyboardInterrupt
    _, alive = psutil.wait_procs(tree, timeout=10)
    assert len(tree) == 2
    assert alive == []


def test_a_terminated_bench_removes_its_folder_too() -> None:
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt), workspace("store", said.append, keep=False) as folder:
        (folder / "file").touch()
        os.kill(os.getpid(), signal.SIGTERM)
    assert not folder.exists()


def test_a_folder_that_is_kept_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said: list[str] = []
    with workspace("store", said.append, keep=True) as folder:
        pass
    assert folder.exists()
    assert said == [f"kept {folder}"]


def test_a_sealer_alone_wins_every_epoch(tmp_path: Path) -> None:
    found = seal(tmp_path, "r0", begin_us=0, seconds=0.2)
    took_ms = found["took_ms"]
    assert isinstance(took_ms, list)
    assert found["won"] == len(took_ms) > 0


def test_sealers_that_propose_the_same_epochs_win_each_of_them_once(tmp_path: Path) -> None:
    answers = [seal(tmp_path, replica, begin_us=0, seconds=0.1) for replica in ("r0", "r1")]
    store = open_store(tmp_path, "bench-store")
    head = store.head()
    store.close()
    assert head is not None
    assert [answer["won"] for answer in answers] == [head.epoch + 1 - int(str(answers[1]["won"])), answers[1]["won"]]


def test_records_that_pass_through_are_trimmed_behind_the_reader(tmp_path: Path) -> None:
    samples = pass_through(tmp_path, records=100_000)
    assert [sample["records"] for sample in samples] == list(range(0, 100_001, 10_000))


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (3.0, 1)])
def test_the_exit_code_tells_whether_all_targets_were_met(
    lockstep: Call, monkeypatch: pytest.MonkeyPatch, value: float, code: int
) -> None:
    def measure(_folder: Path, _say: object, *, quick: bool) -> Report:
        return Report("store", quick=quick, settings={}, tables=(), verdicts=[Verdict("gap", value, 2.0)])

    monkeypatch.setitem(benches.BENCHES, "store", lambda: measure)
    said = lockstep("bench", "store", "--json", "--quick")
    assert said.code == code
    assert said.json()["targets"][0]["met"] is (code == 0)
    assert said.json()["quick"] is True


def test_without_a_name_the_benches_are_listed(lockstep: Call) -> None:
    said = lockstep("bench")
    for name in (*benches.BENCHES, "all"):
        assert f" {name} " in said.out + said.err
