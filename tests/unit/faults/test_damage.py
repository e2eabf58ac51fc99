"""The functions by which chaos damages checkpoints, and whether the damage is found."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from lockstep.chaos.actions.files import DAMAGES, PLACES, damage, fill, is_small_disk, small_disk, small_disk_impossible
from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import check_state, standing, write_fingerprint
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """The folder of a replica with two stages, at epoch 9."""
    for name in ("checkpoint", "checkpoint-2"):
        write_checkpoint(tmp_path / name, 9, base=6)
        write_fingerprint(tmp_path / name, {"mode": "update"}, "v1")
    (tmp_path / "checkpoint.damaged-1" / "offsets").mkdir(parents=True)
    return tmp_path


def _bytes(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", DAMAGES)
def test_exactly_the_files_that_are_named_are_damaged(replica: Path, place: str, how: str) -> None:
    before = _bytes(replica)
    files = damage(replica, place, how, Random(1))
    after = _bytes(replica)
    assert {path for path in before if before[path] != after.get(path)} == set(files)
    stages = {path.relative_to(replica).parts[0] for path in files}
    assert stages == {"checkpoint", "checkpoint-2"}, "in every stage, and in nothing that was set aside"


def test_deleting_the_last_commit_takes_a_replica_one_epoch_back(replica: Path) -> None:
    damage(replica, "the last commit", "deleted", Random(1))
    at = standing(replica / "checkpoint")
    assert at is not None
    assert (at.epoch, at.begun_epoch) == (8, 9)


@pytest.mark.parametrize(
    ("place", "how"),
    [
        ("the last offsets", "deleted"),
        ("the last offsets", "emptied"),
        ("the newest changes of state", "deleted"),
        ("the newest changes of state", "emptied"),
        ("the newest whole state", "emptied"),
        ("the newest whole state", "cut short"),
    ],
)
def test_this_damage_is_found_before_spark_meets_it(replica: Path, place: str, how: str) -> None:
    damage(replica, place, how, Random(1))
    with pytest.raises(RunError, match="LS0604"):
        check_state(replica / "checkpoint", standing(replica / "checkpoint").batch)  # type: ignore[union-attr]


def test_a_disk_that_chaos_may_fill_is_small_and_its_own(tmp_path: Path) -> None:
    assert not is_small_disk(tmp_path)
    with pytest.raises(AssertionError, match="never fills"):
        fill(tmp_path / "ballast")


@pytest.mark.skipif(small_disk_impossible() is not None, reason=str(small_disk_impossible()))
def test_a_small_disk_is_filled_to_the_last_byte_and_works_again_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, size_mb=4):
        (folder / "work").write_bytes(b"x" * 10_000)
        assert fill(folder / "ballast") > 3_500_000
        with pytest.raises(OSError, match="No space"), (folder / "more").open("wb") as file:
            file.write(b"x" * 10_000)
            os.fsync(file.fileno())
        (folder / "ballast").unlink()
        (folder / "more").write_bytes(b"x" * 10_000)
    assert not any(folder.iterdir()), "it is unmounted, and the folder is as it was"
