from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Call
from tests.unit.cli.test_loading import PIPELINE


def test_plan_as_json_has_every_step_and_marks_those_that_run_python(lockstep: Call, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PIPELINE)
    plan = lockstep("plan", "job.py", "--json").json()
    assert plan["job"] == "failed-logins"
    assert [step["id"] for step in plan["steps"] if step["python"]] == ["enrich"]


def test_plan_of_a_file_that_is_not_there_ends_with_2(lockstep: Call) -> None:
    said = lockstep("plan", "job.py")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("LS0123 no job file job.py")
