"""A whole job that publishes on HDFS and in S3: of two replicas the one that publishes is killed; no number is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import Reader, read
from lockstep.connect.sinks.compaction import compact
from lockstep.errors import ConnectError
from lockstep.faults.orders import Orders, Window, WindowOrder
from lockstep.faults.switch import FOLDER_VARIABLE
from lockstep.observe.promises import once, order

JOB = """
import lockstep as ls

job = ls.Job("numbers")
numbers = job.source("numbers", ls.rate(200))
numbers.filter("seq % 3 = 0").select("seq", lane="seq % 7").to(ls.files("FOLDER"), name="out")
"""
# Epochs of more than 5 rows are staged by Spark's workers, smaller ones are written by the driver.
SETTINGS = {"heartbeat_interval_s": "0.5", "spares": "0", "rows_through_driver_max": "5"}
WINDOWS = (Window.DIGEST_NOT_PUBLISHED, Window.PUBLISHED_NOT_NOTED)


@pytest.fixture
def run(folder: str, tmp_path: Path) -> Iterator[JobRun]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FOLDER_VARIABLE, str(Orders(tmp_path / "faults").folder))
        started = JobRun(Run("numbers", JOB.replace("FOLDER", folder), replicas=2, settings=SETTINGS), tmp_path)
    yield started
    started.kill()


def numbers(folder: str) -> list[int]:
    try:
        return [int(n) for n in read(folder)["seq"].to_pylist()]
    except ConnectError as error:
        assert error.code == "LS0513", error
        return []


def hit(run: JobRun, orders: Orders, window: Window) -> None:
    """Have whoever publishes killed there, and wait until two replicas run again."""
    head = run.store.head()
    assert head is not None
    orders.give(WindowOrder(window.value, window, from_epoch=head.epoch + 1, leading=True))
    run.wait_until(lambda: orders.obeyed(window.value) is not None, 120, f"reaching {window}")
    done = orders.obeyed(window.value)
    assert done is not None

    def is_back() -> bool:
        victim = run.progress(done.replica)
        return victim is not None and victim.pid != done.pid and run.all_run()

    run.wait_until(is_back, 180, f"{done.replica} to come back after {window}")


@pytest.mark.parametrize("folder", ["hdfs", "s3"], indirect=True)
@pytest.mark.long
def test_a_publisher_that_is_killed_is_not_seen_in_the_output(run: JobRun, folder: str, tmp_path: Path) -> None:
    run.wait_running()
    run.wait_until(lambda: len(numbers(folder)) > 100, 120, "the first numbers")
    for window in WINDOWS:
        hit(run, Orders(tmp_path / "faults"), window)
        before = len(numbers(folder))
        run.wait_until(lambda seen=before: len(numbers(folder)) > seen + 200, 120, "numbers after the kill")  # type: ignore[misc]
    run.wait_until(lambda: compact(folder, keep_last=5) > 5, 60, "a turn to compact, beside the job's own compaction")
    before = len(numbers(folder))
    run.wait_until(lambda: len(numbers(folder)) > before, 60, "numbers after the compaction")

    found = numbers(folder)
    assert sorted(found) == list(range(0, 3 * len(found), 3)), "each number once"
    reader = Reader(folder)
    epochs = reader.epochs()
    assert (order(epochs), once(epochs)) == ([], [])
    firsts = [min(table["seq"].to_pylist()) for epoch in epochs if (table := reader.table(epoch)).num_rows]
    assert firsts == sorted(firsts), "epochs in order"
    assert max(reader.table(epoch).num_rows for epoch in epochs) > 5, "some were staged by workers"
    assert not run.store.divergences()

    shown = subprocess.run(
        [sys.executable, "-m", "lockstep", "--project", str(tmp_path), "tail", folder, "--epochs", "0:0", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count('"epoch": 0') == reader.table(0).num_rows
