"""Seeding that goes wrong: a replica that dies between removing its old checkpoint and putting the new one in its place
starts all the same, and state that was laid out by other code is not taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lockstep as ls
from lockstep import F
from lockstep.clock import wall_us
from lockstep.config import RunSettings
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import RunError
from lockstep.faults.orders import Orders, Window, WindowOrder
from lockstep.faults.switch import FOLDER_VARIABLE
from lockstep.plan.graph import Graph
from lockstep.runtime.spec import ReplicaSpec, replica_folder
from lockstep.runtime.state.checkpoint import Standing, standing, write_fingerprint
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.recovery import prepare
from lockstep.store.protocols import Entry, Progress
from lockstep.store.sqlite_store import open_store
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint

HEAD = 40


def graph() -> Graph:
    """Two stages, so that a crash can leave one of them seeded and the other not."""
    job = ls.Job("seeded")
    clicks = job.source("clicks", ls.journal("clicks", schema="user string, n bigint"))
    counts = clicks.key_by("user").agg(most=F.max("n"))
    counts.to(ls.files("most"))
    counts.key_by("user").agg(most=F.max("most")).to(ls.files("again"))
    return job.graph()


def start(project: Path) -> tuple[AnyPath, ...]:
    """What r1 does when its JVM is up."""
    spec = ReplicaSpec(str(project), str(project), "seeded", "", "", "r1", "auto", {})
    store = open_store(project, "seeded")
    try:
        return prepare(spec, store, store.begin("r1", os.getpid()), graph(), "v1", RunSettings())
    finally:
        store.close()


def a_peer_that_is_ahead(project: Path) -> None:
    """r0 is at the head and goes on; r1 has checkpoints of long ago."""
    store = open_store(project, "seeded")
    holder = store.begin("r0", pid=1)
    for epoch in range(HEAD + 1):
        store.seal(Entry(epoch, 1000 + epoch, {"clicks": {"0": epoch}}), holder)
    now_us = wall_us() + 60_000_000
    store.report(Progress("r0", 1, 1, "running", HEAD, updated_us=now_us, moved_us=now_us))
    store.close()
    plan = graph()
    for replica, committed in (("r0", HEAD), ("r1", 3)):
        for folder in checkpoint_folders(replica_folder(project, "seeded", replica), len(plan.stages)):
            write_checkpoint(folder, committed)
            write_fingerprint(folder, plan.fingerprint(), "v1")


def test_state_that_a_peer_keeps_in_another_order_is_refused_and_the_own_checkpoint_stays(tmp_path: Path) -> None:
    a_peer_that_is_ahead(tmp_path)
    for folder in checkpoint_folders(replica_folder(tmp_path, "seeded", "r0"), 2):
        write_fingerprint(folder, {**graph().fingerprint(), "operators": ["agg", "agg", "agg", "other"]}, "v1")
    with pytest.raises(RunError) as caught:
        start(tmp_path)
    assert caught.value.code == "LS0609" and "r0" in caught.value.fact and "agg, agg, agg, other" in caught.value.why
    own = checkpoint_folders(replica_folder(tmp_path, "seeded", "r1"), 2)
    assert [standing(folder) for folder in own] == [Standing(3, 3, 3)] * 2


def test_a_replica_killed_while_it_is_seeded_is_seeded_at_its_next_start(tmp_path: Path) -> None:
    a_peer_that_is_ahead(tmp_path)
    orders = Orders(tmp_path / "faults")
    orders.give(WindowOrder("half", Window.SEEDING_HALF_DONE, replica="r1"))
    command = [sys.executable, "-m", "tests.unit.faults.test_seeding_half_done", str(tmp_path)]
    environment = {**os.environ, FOLDER_VARIABLE: str(orders.folder)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    done = orders.obeyed("half")
    assert done is not None
    assert (done.replica, done.epoch) == ("r1", HEAD)
    folders = checkpoint_folders(replica_folder(tmp_path, "seeded", "r1"), 2)
    assert not folders[0].exists(), "the old one is gone, the new one not in place"

    assert start(tmp_path) == folders
    assert [at.epoch for folder in folders if (at := standing(folder)) is not None] == [HEAD, HEAD]


if __name__ == "__main__":
    start(Path(sys.argv[1]))
