"""A job on three hosts outlives whoever coordinates it, a host, and a cable; its output is right all the time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import services
from lockstep.services.hosts import obstacle, own_network
from tests.cluster import machines_scenario


@pytest.mark.timeout(1500)
def test_a_job_outlives_its_coordinator_a_host_and_a_cable(tmp_path: Path) -> None:
    if (why_not := obstacle() or services.missing("kafka") or services.missing("zookeeper")) is not None:
        pytest.skip(why_not)
    services.fetch_ahead("kafka", print)
    words = [*own_network(), sys.executable, machines_scenario.__file__, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    took = {what: seen.pop(what) for what in list(seen) if what.endswith(" s")}
    assert all(seconds > 0 for seconds in took.values())
    assert seen == {
        "published": True,
        "published without the first coordinator": True,
        "adopted": True,
        "published without a host": True,
        "published while a host is cut off": True,
        "published when it is back": True,
        "stopped": [0, True],
        "each once": True,
        "diverged": 0,
    }
