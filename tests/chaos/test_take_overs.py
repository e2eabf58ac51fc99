"""`lockstep chaos operations`: whoever coordinates is killed at every step of every operation, and the next goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.chaos.take_overs import Row, table
from tests.chaos.jobs import PATIENCE_S, PATIENT

LASTS_S_MAX = 8 * PATIENCE_S
ROLLS = {"asked", "join", "replace r0", "leave"}
STEPS = {
    "rescale-partitions": ROLLS,
    "upgrade": ROLLS,
    "restart": ROLLS,
    "rescale-replicas": {"asked", "grow"},
    "upgrade-in-shadow": {*ROLLS, "compare", "switch", "confirm"},
}


def _operations(folder: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "lockstep",
        "--project",
        str(folder),
        "chaos",
        "operations",
        "--seed",
        "1",
        "--json",
    ]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, said = process.communicate(timeout=LASTS_S_MAX)
    except subprocess.TimeoutExpired:
        # Asked to end, it leaves nothing behind.
        process.terminate()
        out, said = process.communicate()
    assert process.returncode == 0, said
    outcome: dict[str, Any] = json.loads(out)
    return outcome


@pytest.mark.long
@pytest.mark.timeout(2 * LASTS_S_MAX)
def test_the_coordinator_is_killed_at_every_step_and_no_operation_is_lost_or_done_twice(tmp_path: Path) -> None:
    settings = "".join(f"{name} = {value}\n" for name, value in PATIENT.items())
    (tmp_path / "lockstep.toml").write_text(f"[run]\n{settings}")
    outcome = _operations(tmp_path)
    kills = outcome["take_overs"]
    print(f"\n{table([Row(**one) for one in kills])}")
    assert len(kills) >= 10
    hit: dict[str, set[str]] = {}
    for one in kills:
        hit.setdefault(one["name"], set()).add(one["step"])
    assert hit.keys() == STEPS.keys()
    done = {one["name"] for one in kills if one["outcome"] == "done"}
    # An operation may be taken up between the moment when it is asked for and the kill.
    assert all(steps - {"asked"} <= hit[name] <= steps for name, steps in STEPS.items() if name in done), hit
    # On a machine that is busy with other things one may not be done by its deadline: then it is rolled back.
    assert {one["outcome"] for one in kills} <= {"done", "rolled-back"}
    assert all(one["taken_over_s"] is not None for one in kills)
    assert sum(one["lost"] + one["repeated"] for one in kills) == 0
    assert {"operations", "once", "order", "output"} <= {one["name"] for one in outcome["verdicts"]}
    assert outcome["passed"]
