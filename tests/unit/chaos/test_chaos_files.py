"""What the actions on files leave behind, also if chaos itself is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from lockstep.chaos.actions import files
from lockstep.chaos.actions.files import DeleteLastCommit, small_disk_impossible
from lockstep.chaos.vocabulary import Member, RunningJob

HOLDS_A_DISK = """
import pathlib, sys, time
from lockstep.chaos.actions.files import is_small_disk, small_disk
folder = pathlib.Path(sys.argv[1])
with small_disk(folder, size_mb=4):
    (folder / "inside").write_text("x")
    (folder.parent / "mounted").write_text(str(is_small_disk(folder)))
    time.sleep(60)
"""


@pytest.mark.skipif(small_disk_impossible() is not None, reason=str(small_disk_impossible()))
def test_a_small_disk_is_gone_when_the_chaos_that_mounted_it_is_killed(tmp_path: Path) -> None:
    folder, said = tmp_path / "disk", tmp_path / "mounted"
    folder.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLDS_A_DISK, str(folder)])
    deadline_s = time.monotonic() + 30
    while not (said.exists() and said.read_text()) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    holder.kill()
    holder.wait()
    assert said.read_text() == "True"
    assert str(folder) not in Path("/proc/self/mounts").read_text()
    assert not any(folder.iterdir())


@pytest.mark.parametrize("still_there", [True, False])
def test_a_replica_is_killed_later_only_if_it_is_still_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still_there: bool
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(files, "kill_tree", killed.append)
    monkeypatch.setattr(files, "UNDER_ITS_FEET_SHARE", 1.1)
    one = Member("r0", 1, os.getpid(), "running", 5, tmp_path, healthy=True)
    store: Any = SimpleNamespace(head=lambda: None)
    running = SimpleNamespace(spare_replicas=lambda: [one], store=store)
    deed = DeleteLastCommit().begin(cast("RunningJob", running), Random(1))
    assert killed == []
    monkeypatch.setattr(psutil.Process, "is_running", lambda _: still_there)
    assert deed.undo is not None
    deed.undo()
    assert killed == ([os.getpid()] if still_there else [])
