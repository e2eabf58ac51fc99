"""`lockstep new`: what it writes, and that it overwrites nothing. That it runs is in ``tests/spark/test_wheel.py``."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.loading import load_job
from lockstep.cli import new, new_files
from lockstep.config import RunSettings, SparkSettings, load_settings
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import batch_from_json_lines
from tests.unit.cli.conftest import Call


def test_a_new_project_can_be_planned_and_says_what_to_do_next(lockstep: Call, tmp_path: Path) -> None:
    said = lockstep("new", "shop")
    assert said.code == 0
    assert {tmp_path / file for file in said.out.split()} == set((tmp_path / "shop").iterdir())
    for command in ("cd shop", "lockstep run job.py", "| lockstep put orders", "lockstep tail out/revenue"):
        assert command in said.err
    planned = lockstep("plan", "shop/job.py", "--json").json()
    assert (planned["job"], [step["id"] for step in planned["steps"] if step["python"]]) == ("shop", [])


def test_the_orders_that_it_makes_fit_its_journal(tmp_path: Path) -> None:
    files = new_files.project_files("shop")
    (tmp_path / "make_orders.py").write_text(files["make_orders.py"])
    maker = subprocess.Popen([sys.executable, "make_orders.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    with maker.stdout as lines:
        made = [next(lines) for _ in range(3)]
    # Whoever reads has gone, as `lockstep put` does at Ctrl-C: it ends without a complaint.
    assert maker.wait(timeout=60) == 0
    schema = parse_schema(files["job.py"].split('schema="')[1].split('"')[0])
    assert batch_from_json_lines(made, schema).num_rows == 3


def test_its_settings_are_valid_and_every_default_in_a_comment_is_the_default(tmp_path: Path) -> None:
    text = new_files.project_files("shop")["lockstep.toml"]
    (tmp_path / "lockstep.toml").write_text(text)
    assert load_settings(tmp_path).run == RunSettings(replicas=2)
    proposals = tomllib.loads("\n".join(line.removeprefix("# ") for line in text.splitlines() if " = " in line))
    defaults = {**RunSettings().model_dump(), **SparkSettings().model_dump()}
    own = {name: value for name, value in proposals.items() if "." not in name}
    assert len(own) > 5
    assert own == {name: defaults[name] for name in own}


def test_what_is_there_is_never_touched(lockstep: Call, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "job.py").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("shop", "file", "dangling"):
        said = lockstep("new", name)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"LS0019 {tmp_path / name} is there already")
    assert (tmp_path / "shop" / "job.py").read_text() == (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "near"),
    [("My Shop", "my-shop"), ("../shop", "shop"), ("a/b", "a-b"), ("9lives", "lives"), ("x" * 64, "x" * 63)],
)
def test_a_name_that_a_job_cannot_have_is_refused_with_one_that_it_can(
    lockstep: Call, tmp_path: Path, name: str, near: str
) -> None:
    said = lockstep("new", name)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("LS0102") and f"lockstep new {near}" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_leaves_nothing_half_made(
    lockstep: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_text(self: Path, *arguments: Any, **options: Any) -> int:
        if self.name == "lockstep.toml":
            raise OSError(28, "No space left on device")
        return self.write_bytes(b"")

    monkeypatch.setattr(Path, "write_text", write_text)
    said = lockstep("new", "shop")
    assert said.code == 2
    assert "cannot be made" in said.err and "No space left on device" in said.err
    assert list(tmp_path.iterdir()) == []


def test_the_project_option_says_where(lockstep: Call, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    assert lockstep("--project", "elsewhere", "new", "shop").code == 0
    assert load_job(str(tmp_path / "elsewhere" / "shop" / "job.py")).job.name == "shop"
    assert new.make_project(tmp_path / "other")[1] == "job.py"
