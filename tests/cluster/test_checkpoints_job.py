"""Whole jobs with checkpoints on HDFS and in S3: killed, seeded, started again; compared with plain Python."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep import services
from lockstep.bench.running import JobRun, Run
from lockstep.connect.disk import remove_folder
from lockstep.connect.reading import read
from lockstep.connect.remote.paths import location
from lockstep.control.start.checkpoints import CHECKPOINTS
from lockstep.errors import ConnectError, EnvironmentError_
from lockstep.faults.orders import Orders, Window, WindowOrder
from lockstep.faults.switch import FOLDER_VARIABLE
from lockstep.runtime.state.checkpoints_at_address import in_place
from lockstep.services.hosts import obstacle, own_network
from lockstep.services.installing import fetch_s3a
from tests.cluster import checkpoints_scenario, spark_job
from tests.cluster.checkpoint_job import JOB, TEXT, expected_totals, expected_windows, feed, newest

PHASE = 2_000
"""So many numbers more are read in each phase of the life."""
SETTINGS = {
    "heartbeat_interval_s": "2",
    "spares": "1",
    "boot_share": "gentle",
    "retention_epochs_min": "10",
    "seed_beyond_epochs": "2",
    "start_timeout_s": "600",
}
WAIT_S = 600.0
Start = Callable[..., JobRun]


def spark_can_s3() -> None:
    """Have Spark's client for S3 fetched, once; skip where it cannot be had."""
    try:
        fetch_s3a(print)
    except EnvironmentError_ as error:
        pytest.skip(f"{error.fact}: {error.why.splitlines()[0]}")


@pytest.fixture
def start(checkpoints: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the job, again and again in the same folder."""
    if checkpoints.startswith("s3a:"):
        spark_can_s3()
    monkeypatch.setenv(FOLDER_VARIABLE, str(Orders(tmp_path / "faults").folder))
    started: list[JobRun] = []

    def begin(**settings: str) -> JobRun:
        run = Run(JOB, TEXT, 2, settings={**SETTINGS, **settings}, checkpoints=checkpoints)
        started.append(JobRun(run, tmp_path))
        return started[-1]

    yield begin
    for run in started:
        run.kill()


def events(run: JobRun, kind: str, replica: str) -> list[str]:
    return [event[4] for event in run.store.events() if event[2] == kind and event[3] == replica]


def rows(run: JobRun, sink: str) -> list[dict[str, int]]:
    try:
        return read(run.folder / "out" / sink).to_pylist()  # type: ignore[no-any-return]
    except ConnectError as error:
        assert error.code == "LS0513", error
        return []


def phase(run: JobRun, number: int) -> None:
    """Feed more numbers; every total, which needs all that was fed before, has to follow, in both replicas."""
    feed(run.store_folder, range((number - 1) * PHASE, number * PHASE))
    wanted = expected_totals(number * PHASE)
    run.wait_until(lambda: newest(rows(run, "totals"), "total") == wanted, WAIT_S, f"the totals of phase {number}")
    head = run.store.head()
    assert head is not None
    run.wait_until(lambda: all(one.epoch >= head.epoch for one in run.store.progress()), WAIT_S, "both replicas")


def hit(run: JobRun, orders: Orders, window: Window) -> str:
    """Have whoever publishes killed there; who came back."""
    head = run.store.head()
    assert head is not None
    orders.give(WindowOrder(window.value, window, from_epoch=head.epoch + 1, leading=True))
    run.wait_until(lambda: orders.obeyed(window.value) is not None, WAIT_S, f"reaching {window}")
    done = orders.obeyed(window.value)
    assert done is not None

    def is_back() -> bool:
        victim = run.progress(done.replica)
        return victim is not None and victim.pid != done.pid and run.all_run()

    run.wait_until(is_back, WAIT_S, f"{done.replica} to come back after {window}")
    return done.replica


@pytest.mark.parametrize("checkpoints", ["hdfs", "s3"], indirect=True)
@pytest.mark.long
def test_a_whole_life_with_checkpoints_at_an_address_ends_with_what_plain_python_says(
    start: Start, tmp_path: Path
) -> None:
    run, orders = start(), Orders(tmp_path / "faults")
    phase(run, 1)
    run.wait_until(lambda: run.store.floor() > 0, WAIT_S, "a history that is trimmed")
    run.wait_until(lambda: any(event[2] == "spare-ready" for event in run.store.events()), WAIT_S, "a spare")
    # It comes back from the spare if that is still there, with its own state or, if that is too old, the other one's.
    victim = hit(run, orders, Window.PUBLISHED_NOT_COMMITTED)
    phase(run, 2)
    address = run.store.fact(CHECKPOINTS)
    assert address is not None
    run.kill()
    remove_folder(location(address) / victim)

    again = start()
    phase(again, 3)
    assert events(again, "seeded", victim), "there is no beginning any more: the other one's state was taken"
    again.stop()

    feed(tmp_path / ".lockstep", range(3 * PHASE, 4 * PHASE))
    last = start(until_done="true", spares="0")
    last.wait_end(WAIT_S)
    assert not last.store.divergences()
    assert newest(rows(last, "totals"), "total") == expected_totals(4 * PHASE)
    assert newest(rows(last, "windows"), "windows") == expected_windows(4 * PHASE)
    for replica in ("r0", "r1"):
        assert not [*(tmp_path / ".lockstep/jobs" / JOB / "replicas" / replica).glob("checkpoint*")]
        place = location(address) / replica
        assert [path for path in place.iterdir() if path != in_place(place)] == [], "older starts left nothing"


@pytest.mark.long
def test_executors_that_share_no_disk_with_the_driver_compute_with_checkpoints_on_hdfs(tmp_path: Path) -> None:
    if (why_not := obstacle() or services.missing("spark") or services.missing("hdfs")) is not None:
        pytest.skip(why_not)
    command = [*own_network(), sys.executable, checkpoints_scenario.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert spark_job.newest(seen["rows"]) == spark_job.expected(checkpoints_scenario.LIMIT)
