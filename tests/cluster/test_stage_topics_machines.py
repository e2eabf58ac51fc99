"""A job of two stages on three hosts: its journals are topics, so it outlives a host as any other job does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import services
from lockstep.services.hosts import obstacle, own_network
from tests.cluster import stages_on_machines_scenario


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_two_stages_outlive_a_host(tmp_path: Path) -> None:
    if (why_not := obstacle() or services.missing("kafka") or services.missing("zookeeper")) is not None:
        pytest.skip(why_not)
    services.fetch_ahead("kafka", print)
    words = [*own_network(), sys.executable, stages_on_machines_scenario.__file__, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {"refused": "LS0686", "wrong": [], "each once": True, "letters": [10, 10], "diverged": 0}
