"""A second seed within one start: it replaces the first, and if there is none the replica goes on as it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.clock import wall_us
from lockstep.config import RunSettings
from lockstep.runtime.spec import ReplicaSpec, replica_folder
from lockstep.runtime.state.checkpoint import set_aside, standing, write_fingerprint
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.recovery import prepare
from lockstep.store.protocols import Entry, Holder, Progress, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.faults.test_seeding_half_done import HEAD, a_peer_that_is_ahead, graph
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint

Seed = Callable[[bool], list[int]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    a_peer_that_is_ahead(tmp_path)
    opened = open_store(tmp_path, "seeded")
    yield opened
    opened.close()


@pytest.fixture
def seed(tmp_path: Path, store: Store) -> Seed:
    """Takes a seed for r1, which was told to start from a peer; the epochs that its stages stand at."""
    spec = ReplicaSpec(str(tmp_path), str(tmp_path), "seeded", "", "", "r1", "peer", {})
    holder = store.begin("r1", os.getpid())

    def take(again: bool) -> list[int]:
        settings = RunSettings(seed_beyond_epochs=10)
        folders = prepare(spec, store, holder, graph(), "v1", settings, again=again)
        return [at.epoch for folder in folders if (at := standing(folder)) is not None]

    return take


def _the_peer_goes_on(store: Store, project: Path, head: int) -> None:
    for epoch in range(HEAD + 1, head + 1):
        store.seal(Entry(epoch, 1000 + epoch, {"clicks": {"0": epoch}}), Holder("r0", 1))
    now_us = wall_us() + 60_000_000
    store.report(Progress("r0", 1, 1, "running", head, updated_us=now_us, moved_us=now_us))
    for folder in checkpoint_folders(replica_folder(project, "seeded", "r0"), 2):
        shutil.rmtree(folder)
        write_checkpoint(folder, head)
        write_fingerprint(folder, graph().fingerprint(), "v1")


def test_a_second_seed_replaces_the_first_and_what_was_distrusted_stays_aside(
    tmp_path: Path, store: Store, seed: Seed
) -> None:
    assert seed(False) == [HEAD, HEAD]
    _the_peer_goes_on(store, tmp_path, HEAD + 20)
    assert seed(True) == [HEAD + 20, HEAD + 20]
    aside = sorted(replica_folder(tmp_path, "seeded", "r1").glob("*.set-aside-*"))
    assert [at.epoch for folder in aside if (at := standing(folder)) is not None] == [3, 3]


def test_a_replica_that_computes_goes_on_with_its_own_checkpoint_if_no_seed_can_be_taken(
    tmp_path: Path, store: Store, seed: Seed
) -> None:
    assert seed(False) == [HEAD, HEAD]
    _the_peer_goes_on(store, tmp_path, HEAD + 20)
    for folder in checkpoint_folders(replica_folder(tmp_path, "seeded", "r0"), 2):
        shutil.rmtree(folder)
    assert seed(True) == [HEAD, HEAD]
    assert "LS0606" in next(text for _, _, kind, _, text in store.events() if kind == "not-seeded")


def test_two_checkpoints_of_one_start_can_be_set_aside(tmp_path: Path) -> None:
    for name in ("checkpoint.set-aside-7", "checkpoint.set-aside-7-2"):
        (tmp_path / "checkpoint").mkdir()
        assert set_aside(tmp_path / "checkpoint", 7).name == name
