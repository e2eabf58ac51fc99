"""A replica's checkpoints on a real HDFS and in a store like S3: taken over, seeded, and swept there."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lockstep.connect.disk import entries, file_sizes, files_below, replace_file
from lockstep.connect.remote.paths import RemotePath, location
from lockstep.runtime.state.checkpoint import Standing, batch_of, check_state, standing, write_fingerprint
from lockstep.runtime.state.checkpoints_at_address import IN_PLACE, CheckpointsAtAddress, in_place, standings_at
from lockstep.store.protocols import Holder, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint

PLAN: dict[str, object] = {"format": 1, "output_mode": "append", "sources": ["numbers"], "stateful": []}
pytestmark = pytest.mark.parametrize("checkpoints", ["hdfs", "s3"], indirect=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store", "job")


def sent(local: Path, folder: RemotePath) -> None:
    """Send a folder as Spark would have written it there: without Hadoop's checksums."""
    for path in sorted(local.rglob("*")):
        if path.is_file() and not path.name.endswith(".crc"):
            name = path.relative_to(local).as_posix()
            folder.system.write(f"{folder.key}/{name}", io.BytesIO(path.read_bytes()))


def names(folder: RemotePath) -> list[str]:
    return sorted(path.name for path in entries(folder))


def test_a_checkpoint_is_taken_over_and_a_replica_is_seeded_from_it(
    checkpoints: str, store: Store, tmp_path: Path
) -> None:
    place = location(checkpoints)
    assert isinstance(place, RemotePath)
    local = write_checkpoint(tmp_path / "stage-1", 11, base=9)
    sent(local, place / "r1" / "3-1" / "stage-1")
    write_fingerprint(place / "r1" / "3-1" / "stage-1", PLAN, "v1", 3)
    replace_file(place / "r1" / "3-1" / IN_PLACE, b"")

    own = CheckpointsAtAddress(checkpoints, 1, store, Holder("r1", 4), PLAN, "v1")
    found = own.find(0)
    assert found is not None and (found.at, found.damage) == (Standing(11, 11, 11), "")
    own.keep(0)
    (folder,) = own.folders
    assert (names(place / "r1"), standing(folder)) == (["4-1"], Standing(11, 11, 11))
    assert isinstance(folder, RemotePath) and batch_of(folder, 7) == 7 and batch_of(folder, 12) is None

    seeded = CheckpointsAtAddress(checkpoints, 1, store, Holder("r0", 2), PLAN, "v1")
    assert seeded.find(0) is None and seeded.copy(0, "r1") == 11
    assert in_place(place / "r0") is None
    seeded.swap(0, 11, keep_old=False)
    (copy,) = seeded.folders
    assert isinstance(copy, RemotePath)
    check_state(copy, 11)
    copied = {name for name in files_below(copy) if name.startswith("state/")}
    partition = {"9.zip", "10.changelog", "11.changelog", "12.changelog", "SSTs/000008-abc.sst"}
    assert copied == {"state/0/_metadata/metadata", *(f"state/0/{n}/{name}" for n in (0, 1) for name in partition)}
    assert (copy / "state/0/1/12.changelog").read_bytes() == b"change 12"
    assert standings_at(checkpoints, 1) == [(11,), (11,)]

    (copy / "state/0/1/11.changelog").unlink()
    damaged = CheckpointsAtAddress(checkpoints, 1, store, Holder("r0", 3), PLAN, "v1").find(0)
    assert damaged is not None and "partition 1: 11.changelog is missing" in damaged.damage


def test_a_small_file_is_replaced_and_a_folder_removed_with_all_that_is_in_it(checkpoints: str) -> None:
    place = location(checkpoints)
    assert isinstance(place, RemotePath)
    for text in (b"first", b"second"):
        replace_file(place / "deep" / "note", text)
    assert (place / "deep" / "note").read_text() == "second"
    replace_file(place / "deep" / "er" / "note", b"third")
    assert file_sizes(place / "deep") == {"note": 6}
    assert sorted(files_below(place)) == ["deep/er/note", "deep/note"]
    place.system.remove_folder((place / "deep").key)
    assert (files_below(place), names(place)) == ([], [])
    place.system.remove_folder((place / "deep").key)
    with pytest.raises(FileNotFoundError):
        place.system.copy((place / "deep" / "note").key, (place / "copy").key)
