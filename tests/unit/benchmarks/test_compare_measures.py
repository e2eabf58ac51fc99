"""The measures on a small engine with real processes: fed, watched, killed, verified, nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchmarks.compare.measures import MEASURE, Task
from benchmarks.compare.plan import QUICK
from benchmarks.engines.catalogue import workload
from benchmarks.engines.feeder import LOADING_S, RAMP_S
from tests.unit.benchmarks.small_engine import CAREFUL, FORGETFUL, SmallEngine

WARM_S = LOADING_S + RAMP_S + 0.3
SHORT = replace(QUICK, warm_up_s=WARM_S, measured_s=1.0, before_s=0.5, after_s=2.0, bulk_records=60_000, settle_s=0.5)


ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The observer is a process of its own and has to find the small engine."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def _task(engine: SmallEngine, folder: Path) -> Task:
    return Task(engine, workload("chain_1", quick=True), folder / "cell", SHORT, quick=True)


def _left(folder: Path) -> list[psutil.Process]:
    """Processes that work in the folder."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.cwd().startswith(str(folder)):
                found.append(one)
        except psutil.Error:
            continue
    return found


@pytest.mark.long
def test_a_kill_is_seen_from_outside_and_repeats_are_counted(tmp_path: Path) -> None:
    found = MEASURE["failover"](_task(FORGETFUL, tmp_path))
    assert found.check["live_repeated"] > 0
    assert not found.check["right"]
    assert found.check["lost"] == found.check["wrong"] == 0
    assert found.figures["kills"] == 1
    assert _left(tmp_path) == []


@pytest.mark.long
def test_after_a_restart_of_everything_a_careful_engine_goes_on(tmp_path: Path) -> None:
    found = MEASURE["restart"](_task(CAREFUL, tmp_path))
    assert found.check["right"], found.check
    assert found.check["expected"] >= 5_000
    assert isinstance(found.figures["fresh_result_s"], float)
    assert _left(tmp_path) == []


def test_throughput_counts_what_comes_after_the_warm_up(tmp_path: Path) -> None:
    found = MEASURE["throughput"](_task(CAREFUL, tmp_path))
    assert found.check["right"], found.check
    assert found.check["expected"] == 60_000
    assert isinstance(found.figures["records_per_s"], float)
    assert found.figures["records_per_s"] > 1000
