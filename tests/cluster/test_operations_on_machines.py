"""A job on three hosts is moved and rescaled while it runs, and its coordinator is killed in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import services
from lockstep.services.hosts import obstacle, own_network
from tests.cluster import operations_on_machines_scenario


@pytest.mark.long
@pytest.mark.timeout(1600)
def test_a_host_is_emptied_and_a_rescale_outlives_the_coordinator(tmp_path: Path) -> None:
    if (why_not := obstacle() or services.missing("kafka") or services.missing("zookeeper")) is not None:
        pytest.skip(why_not)
    services.fetch_ahead("kafka", print)
    words = [*own_network(), sys.executable, operations_on_machines_scenario.__file__, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("another one coordinates after s") > 0
    assert seen == {
        "published": True,
        "moved": "done",
        "lives where it was told": True,
        "the host is empty": True,
        "published after the move": True,
        "published without the first coordinator": True,
        "rescaled": "done",
        "published in the new shape": True,
        "each step once": True,
        "stopped": 0,
        "each once": True,
        "diverged": 0,
    }
