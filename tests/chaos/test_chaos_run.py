"""`lockstep chaos run` as a user runs it: a fixed seed, a few actions, all checkers; and that it can say no."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.jobs import PATIENCE_S, PATIENT

LASTS_S_MAX = 3 * PATIENCE_S
"""Beside the minutes of the chaos itself: starting, recovering and checking."""
ACTIONS = (
    "kill-supervisor",
    "kill-jvm",
    "damage-checkpoint",
    "pause-replica",
    "add-load",
    "feed-late",
    "feed-malformed",
)


SLICE = (512, 0.4, {"damage-checkpoint", "add-load", "feed-late", "feed-malformed"})
"""A seed, minutes, and what that seed does in them: what chaos alone can do to a job (damage, load, bad and late
records). A killed JVM, a killed supervisor and a killed driver have tests of their own in this folder."""
WHOLE = (1, 1.8, set(ACTIONS))


def chaos(folder: Path, minutes: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it; if it takes too long, ask it to end, so that it leaves nothing behind."""
    command = [sys.executable, "-m", "lockstep", "--project", str(folder), "chaos", "run", *arguments, "--json"]
    command += ["--minutes", str(minutes)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, said = process.communicate(timeout=LASTS_S_MAX + 60 * minutes)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, said = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, said)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("seed", "minutes", "wanted"), [SLICE, pytest.param(*WHOLE, marks=pytest.mark.long)], ids=["slice", "whole"]
)
def test_a_short_run_with_a_fixed_seed_loses_nothing(
    tmp_path: Path, seed: int, minutes: float, wanted: set[str]
) -> None:
    settings = "".join(f"{name} = {value}\n" for name, value in PATIENT.items())
    (tmp_path / "lockstep.toml").write_text(f"[run]\n{settings}")
    only = [word for name in ACTIONS for word in ("--only", name)]
    done = chaos(tmp_path, minutes, "--seed", str(seed), "--rate", "100", *only)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["passed"] and outcome["seed"] == seed
    assert {verdict["name"] for verdict in outcome["verdicts"]} == {
        "output", "input", "completeness", "order", "once", "equality", "progress", "the run",
    }  # fmt: skip
    assert {action["action"] for action in outcome["actions"]} == wanted
    done_to_it = [action["action"] for action in outcome["actions"] if "left_out" not in action]
    assert "damage-checkpoint" in done_to_it
    # On a machine that is busy with other things recoveries take longer, and the last actions find no time.
    assert {action.get("left_out", "") for action in outcome["actions"]} <= {"", "no time was left"}
    assert all(sink["expected"] == sink["found"] > 20 for sink in outcome["sinks"])
    assert "plain Python" in outcome["compared_with"]
    report = (tmp_path / "chaos-report.html").read_text(encoding="utf-8")
    assert "<svg" in report and f"--seed {seed}" in report and "every check passed" in report
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", report), "the report loads nothing from elsewhere"
