"""Hosts that are made on one machine can be killed, switched on again and cut off, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lockstep import services
from lockstep.errors import EnvironmentError_
from lockstep.services.hosts import hosts, obstacle, own_network
from tests.cluster import hosts_scenario

GONE_TIMEOUT_S = 20.0


@pytest.fixture(autouse=True)
def permitted() -> None:
    if (why_not := obstacle() or services.missing("zookeeper")) is not None:
        pytest.skip(why_not)


def scenario(folder: Path) -> list[str]:
    return [*own_network(), sys.executable, hosts_scenario.__file__, str(folder)]


def test_an_ensemble_outlives_a_host_and_a_cable(tmp_path: Path) -> None:
    done = subprocess.run(scenario(tmp_path), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "here": "10.83.0.254",
        "on hosts of their own": ["10.83.0.1", "10.83.0.2", "10.83.0.3"],
        "seen from another host": "leader",
        "files that others see": [],
        "goes on without its host": True,
        "its disk after the power cut": "yes",
        "cut off": True,
        "plugged in again": True,
        "on a full disk": "No space left on device",
        "on the disk after that": "",
    }


def test_nothing_is_left_of_hosts_whose_maker_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(scenario(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as maker:
        known = psutil.Process(maker.pid)
        family: list[psutil.Process] = []
        while [_name(one) for one in family].count("java") < 3:
            assert maker.poll() is None
            family = known.children(recursive=True)
        os.kill(maker.pid, signal.SIGKILL)
    assert psutil.wait_procs(family, GONE_TIMEOUT_S)[1] == []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def test_the_machines_own_network_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentError_, match="LS0024"), hosts(1, tmp_path):
        pass
