"""Checkpoints at an address: every start has a folder of its own, and the newest that is whole counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.connect import disk
from lockstep.errors import RunError, ServiceError
from lockstep.runtime.state import checkpoints_at_address
from lockstep.runtime.state.checkpoint import Standing, standing, write_fingerprint, written_by
from lockstep.runtime.state.checkpoints_at_address import (
    IN_PLACE,
    CheckpointsAtAddress,
    in_place,
    rehearsal_place,
    standings_at,
)
from lockstep.runtime.state.snapshot import copy_checkpoint
from lockstep.store.protocols import Holder, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint

PLAN: dict[str, object] = {"format": 1, "output_mode": "append", "sources": ["numbers"], "stateful": []}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store", "job")
    yield opened
    opened.close()


@pytest.fixture(params=[True, False], ids=["folders move", "folders do not move"])
def moves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """On some systems a folder can be renamed in one act, on others everything in it has to be copied."""
    if not request.param:
        monkeypatch.setattr(checkpoints_at_address, "move_folder", lambda folder, target: False)
    return bool(request.param)


def checkpoints(store: Store, place: Path, start: int, replica: str = "r0", stages: int = 1) -> CheckpointsAtAddress:
    return CheckpointsAtAddress(f"file://{place}", stages, store, Holder(replica, start), PLAN, "v1")


def computed(place: Path, folder: str, committed: int) -> Path:
    """A checkpoint in place, as a start that has computed some epochs leaves it."""
    made = write_checkpoint(place / folder / "stage-1", committed)
    write_fingerprint(made, PLAN, "v1", 1)
    (place / folder / IN_PLACE).touch()
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_from_the_beginning_nothing_is_in_place_before_all_stages_are(tmp_path: Path, store: Store) -> None:
    own = checkpoints(store, tmp_path, 1, stages=2)
    assert own.find(0) is None
    for stage in (0, 1):
        own.make(stage)
    own.swap(0, -1, keep_old=False)
    assert in_place(tmp_path / "r0") is None
    own.swap(1, -1, keep_old=False)
    assert in_place(tmp_path / "r0") == tmp_path / "r0" / "1-1"
    assert [str(folder.relative_to(tmp_path)) for folder in map(Path, map(str, own.folders))] == [
        "r0/1-1/stage-1",
        "r0/1-1/stage-2",
    ]


@pytest.mark.usefixtures("moves")
def test_a_start_takes_its_predecessors_checkpoint_over_and_what_that_still_writes_does_no_harm(
    tmp_path: Path, store: Store
) -> None:
    before = computed(tmp_path, "r0/1-1", 5)
    own = checkpoints(store, tmp_path, 2)
    found = own.find(0)
    assert found is not None and (found.at, found.damage) == (Standing(5, 5, 5), "")
    own.keep(0)
    assert names(tmp_path / "r0") == ["2-1"]
    (folder,) = own.folders
    assert (standing(folder), written_by(tmp_path / "r0/2-1/stage-1")) == (Standing(5, 5, 5), 2)

    # The first start was only cut off: it commits one more epoch, by names that it knows.
    for log in ("offsets", "commits"):
        (before / log).mkdir(parents=True)
        (before / log / "6").write_text("of a start that was replaced", encoding="utf-8")
    assert in_place(tmp_path / "r0") == tmp_path / "r0" / "2-1"
    assert standing(folder) == Standing(5, 5, 5)
    checkpoints(store, tmp_path, 3).keep(0)
    assert names(tmp_path / "r0") == ["3-1"]


@pytest.mark.usefixtures("moves")
def test_a_start_that_has_computed_nothing_is_taken_over_too(tmp_path: Path, store: Store) -> None:
    own = checkpoints(store, tmp_path, 1)
    own.make(0)
    own.swap(0, -1, keep_old=False)
    following = checkpoints(store, tmp_path, 2)
    found = following.find(0)
    assert found is not None and found.at is None and not found.damage
    following.keep(0)
    assert names(tmp_path / "r0") == ["2-1"] and written_by(tmp_path / "r0/2-1/stage-1") == 2


def test_a_start_whose_predecessor_was_taken_over_meanwhile_gives_up(tmp_path: Path, store: Store) -> None:
    computed(tmp_path, "r0/1-1", 5)
    slow, quick = checkpoints(store, tmp_path, 2), checkpoints(store, tmp_path, 3)
    quick.keep(0)
    with pytest.raises(ServiceError) as caught:
        slow.find(0)
    assert caught.value.code == "LS0703"
    with pytest.raises(FileNotFoundError):
        slow.keep(0)
    assert in_place(tmp_path / "r0") == tmp_path / "r0" / "3-1"


def test_a_copy_that_was_not_finished_is_not_found_and_goes_with_the_next(tmp_path: Path, store: Store) -> None:
    computed(tmp_path, "r1/4-1", 7)
    own = computed(tmp_path, "r0/1-1", 5)
    assert checkpoints(store, tmp_path, 2).copy(0, "r1") == 7  # and then it is killed
    assert in_place(tmp_path / "r0") == own.parent

    again = checkpoints(store, tmp_path, 3)
    assert again.copy(0, "r1") == 7
    again.swap(0, 7, keep_old=False)
    assert names(tmp_path / "r0") == ["3-1"]
    assert standings_at(f"file://{tmp_path}", 1) == [(7,), (7,)]


def test_what_a_replica_distrusts_is_kept_twice_and_a_later_start_is_left_alone(tmp_path: Path, store: Store) -> None:
    computed(tmp_path, "r1/1-1", 9)
    for start in (1, 2, 3, 4):
        own = checkpoints(store, tmp_path, start)
        own.copy(0, "r1")
        own.swap(0, 9, keep_old=True)
    assert names(tmp_path / "r0") == ["2-1", "3-1", "4-1"]
    assert store.events()[-1][4] == f"kept as {tmp_path / 'r0' / '3-1'}"

    computed(tmp_path, "r0/6-1", 9)
    late = checkpoints(store, tmp_path, 5)
    late.copy(0, "r1")
    late.swap(0, 9, keep_old=False)
    assert in_place(tmp_path / "r0") == tmp_path / "r0" / "6-1"
    assert names(tmp_path / "r0") == ["2-1", "3-1", "5-1", "6-1"]


def test_what_is_distrusted_does_not_come_back_if_the_seed_is_not_finished(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed(tmp_path, "r1/1-1", 9)
    computed(tmp_path, "r0/1-1", 9)
    own = checkpoints(store, tmp_path, 2)
    own.copy(0, "r1")
    with monkeypatch.context() as patched, pytest.raises(ConnectionError):
        patched.setattr(own, "_complete", _away)
        own.swap(0, 9, keep_old=True)
    assert checkpoints(store, tmp_path, 3).find(0) is None


def _away(stage: int, folder: Path) -> None:
    raise ConnectionError(stage, folder)


def test_a_second_seed_of_one_start_has_a_folder_of_its_own_and_its_own_one_is_kept(
    tmp_path: Path, store: Store
) -> None:
    computed(tmp_path, "r1/1-1", 9)
    for seed in (1, 2):
        own = checkpoints(store, tmp_path, 7)
        own.copy(0, "r1")
        own.swap(0, 9, keep_old=False)
        assert names(tmp_path / "r0") == [f"7-{seed}"]
    kept = checkpoints(store, tmp_path, 7)
    kept.keep(0)
    assert kept.folders == (tmp_path / "r0/7-2/stage-1",)


def test_a_peer_that_is_elsewhere_meanwhile_is_copied_from_there(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed(tmp_path, "r1/1-1", 5)
    seen: list[str] = []

    def copied(source: Path, target: Path) -> Standing:
        seen.append(source.parent.name)
        if len(seen) == 1:
            disk.remove_folder(source.parent)
            computed(tmp_path, "r1/2-1", 8)
        return copy_checkpoint(source, target)

    monkeypatch.setattr(checkpoints_at_address, "copy_checkpoint", copied)
    assert checkpoints(store, tmp_path, 1).copy(0, "r1") == 8
    assert seen == ["1-1", "2-1"]
    with pytest.raises(RunError) as caught:
        checkpoints(store, tmp_path, 1).copy(0, "r2")
    assert caught.value.code == "LS0606"


def test_what_a_rehearsal_left_goes_when_a_checkpoint_is_in_place(tmp_path: Path, store: Store) -> None:
    left = rehearsal_place(f"file://{tmp_path}", "r0")
    disk.replace_file(left / "offsets" / "0", b"")
    computed(tmp_path, "r0/1-1", 5)
    checkpoints(store, tmp_path, 2).keep(0)
    assert names(tmp_path / "r0") == ["2-1"]
