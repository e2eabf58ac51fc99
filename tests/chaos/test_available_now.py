"""`lockstep run --available-now`, day after day: each run takes what is there, and windows live on between them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import lockstep as ls
from lockstep.store.sqlite_store import open_store

JOB = """\
import lockstep as ls
from lockstep import F

job = ls.Job("days")
logins = job.source("logins", ls.journal("logins", schema="user string, at timestamp"))
counts = logins.event_time("at").key_by("user").window(ls.tumbling("1 hour")).agg(n=F.count("*"))
counts.to(ls.files("counts"), name="counts")
"""
PATIENCE_S = 300


def _lockstep(folder: Path, *arguments: str, text: str | None = None) -> str:
    command = [sys.executable, "-m", "lockstep", *arguments]
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def _put(folder: Path, *minutes: int) -> None:
    rows = [{"user": "ann", "at": f"2026-01-01T{m // 60:02}:{m % 60:02}:00Z"} for m in minutes]
    _lockstep(folder, "put", "logins", "--schema", "user string, at timestamp", text="\n".join(map(json.dumps, rows)))


def _counts(folder: Path) -> list[tuple[int, int]]:
    rows = ls.read(folder / "counts").to_pylist() if (folder / "counts").exists() else []
    return sorted((row["window_start"].hour, row["n"]) for row in rows)


def _run(folder: Path, replicas: int) -> str:
    return _lockstep(folder, "run", "job.py", "--available-now", "--replicas", str(replicas))


@pytest.mark.long
def test_each_run_takes_what_is_there_and_a_window_is_closed_by_a_later_one(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    _put(tmp_path, 1, 2, 61)
    assert "what was there is processed" in _run(tmp_path, 1)
    assert _counts(tmp_path) == [(0, 2)], "the second hour is open"
    _put(tmp_path, 62, 63)
    _kill_on_the_way(tmp_path)
    _run(tmp_path, 2)
    assert _counts(tmp_path) == [(0, 2)]
    _put(tmp_path, 121, 182)
    _run(tmp_path, 1)
    assert _counts(tmp_path) == [(0, 2), (1, 3), (2, 1)]


def _kill_on_the_way(folder: Path) -> None:
    """Kill `lockstep run` and everything that it started, once its first epoch of this run is sealed."""
    store = open_store(folder / ".lockstep", "days")
    before = store.head()
    command = [sys.executable, "-m", "lockstep", "run", "job.py", "--available-now", "--replicas", "2"]
    run = psutil.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends_s = time.monotonic() + PATIENCE_S
        while store.head() == before:
            assert time.monotonic() < ends_s and run.is_running()
            time.sleep(0.05)
    finally:
        store.close()
        agents = [one for one in psutil.process_iter() if _belongs(one, folder)]
        for one in (*agents, *(child for agent in agents for child in _children(agent)), run):
            if one.is_running():
                one.kill()
        run.wait()


def _belongs(process: psutil.Process, folder: Path) -> bool:
    try:
        return bool(process.cwd() == str(folder))
    except psutil.Error:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []
