"""Copying a checkpoint while its replica goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import Standing, check_state, standing, write_fingerprint
from lockstep.runtime.state.checksums import fault_of
from lockstep.runtime.state.snapshot import ATTEMPTS_MAX, copy_checkpoint
from lockstep.runtime.state.state_metadata import relocate
from tests.unit.runtime.checkpoints_for_runtime import JOIN_STORES, write_checkpoint


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_snapshot_ends_at_the_newest_commit_and_leaves_out_what_came_after(tmp_path: Path) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5, begun=6, base=4)
    write_fingerprint(peer, {"mode": "update"}, "v1")
    for name in ("7.changelog", "7.zip", ".8.changelog.tmp", "6.changelog.tmp", "SSTs/000009-half-written.sst"):
        (peer / "state" / "0" / "0" / name).write_bytes(b"later")
    (peer / "state" / "0" / "_metadata" / "v2").mkdir()
    (peer / "state" / "0" / "_metadata" / "v2" / "6").write_text("of a batch that is only begun", encoding="utf-8")
    target = tmp_path / "r1" / "checkpoint"
    assert copy_checkpoint(peer, target) == Standing(5, 5, 5)
    assert standing(target) == Standing(5, 5, 5)
    check_state(target, 5)
    partition = {"4.zip", "5.changelog", "6.changelog", "SSTs/000008-abc.sst"}
    assert {name for name in _files(target) if not name.endswith(".crc")} == {
        "metadata",
        "lockstep.json",
        "state/0/_metadata/metadata",
        *(f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(6)),
        *(f"state/0/{number}/{name}" for number in (0, 1) for name in partition),
    }


def test_a_snapshot_replaces_what_stood_there(tmp_path: Path) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5)
    target = write_checkpoint(tmp_path / "r1" / "checkpoint", 9)
    assert copy_checkpoint(peer, target) == Standing(5, 5, 5)
    assert not (target / "offsets" / "9").exists()


def test_a_file_that_vanishes_under_the_copy_makes_it_start_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5, base=4)
    failures = iter([True, True])
    copy = shutil.copyfile

    def copyfile(source: Path, target: Path) -> None:
        if source.name == "4.zip" and next(failures, False):
            raise FileNotFoundError(2, "gone", str(source))
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    assert copy_checkpoint(peer, tmp_path / "r1" / "checkpoint") == Standing(5, 5, 5)
    assert next(failures, None) is None, "it has to have failed twice"


@pytest.mark.parametrize("committed", [None, -1])
def test_there_is_no_snapshot_of_a_peer_that_has_committed_nothing(tmp_path: Path, committed: int | None) -> None:
    peer = tmp_path / "r0" / "checkpoint"
    if committed is not None:
        write_checkpoint(peer, committed, begun=0, partitions=0)
    with pytest.raises(RunError) as caught:
        copy_checkpoint(peer, tmp_path / "r1" / "checkpoint")
    assert (caught.value.code, str(ATTEMPTS_MAX) in caught.value.why) == ("LS0606", True)
    assert not (tmp_path / "r1" / "checkpoint").exists()


def test_a_peer_with_damaged_state_is_not_copied(tmp_path: Path) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5)
    (peer / "state" / "0" / "1" / "3.changelog").unlink()
    with pytest.raises(RunError) as caught:
        copy_checkpoint(peer, tmp_path / "r1" / "checkpoint")
    assert caught.value.code == "LS0606"
    assert "partition 1: 3.changelog is missing" in str(caught.value)


def test_only_what_the_newest_two_versions_need_is_copied(tmp_path: Path) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5, base=3)
    shutil.copyfile(peer / "state/0/0/3.zip", peer / "state/0/0/6.zip")
    (peer / "state/0/0/2.changelog").write_bytes(b"older than the base of version 5")
    copy_checkpoint(peer, target := tmp_path / "r1" / "checkpoint")
    numbered = {path.name for path in (target / "state/0/0").iterdir() if path.name[0].isdigit()}
    assert numbered == {"3.zip", "4.changelog", "5.changelog", "6.changelog", "6.zip"}, "epoch 5 may run again"


@pytest.mark.parametrize("name", ["4.zip", "5.changelog", "6.changelog", "SSTs/000008-abc.sst"])
def test_one_bit_that_flipped_on_the_peers_disk_is_found_before_the_seed_is_used(tmp_path: Path, name: str) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5, base=4, stores=JOIN_STORES)
    path = peer / "state/0/1" / JOIN_STORES[2] / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(RunError) as caught:
        copy_checkpoint(peer, tmp_path / "r1" / "checkpoint")
    assert caught.value.code == "LS0606"
    where = f"operator 0 (symmetricHashJoin), store {JOIN_STORES[2]}, partition 1"
    assert f"{where}: {Path(name).name} differs from what was written" in str(caught.value)


def test_bytes_that_change_on_their_way_are_found_with_and_without_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5)
    copy = shutil.copyfile

    def copyfile(source: Path, target: Path) -> None:
        copy(source, target)
        if source.name == damaged_name:
            target.write_bytes(b"!" + source.read_bytes()[1:])

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    for damaged_name in ("3.changelog", "lockstep.json", "2"):
        write_fingerprint(peer, {}, "v1")
        with pytest.raises(RunError, match=f"{damaged_name} (differs|is not the same)"):
            copy_checkpoint(peer, tmp_path / "r1" / "checkpoint")


def test_a_copy_names_its_schemas_where_it_is_itself(tmp_path: Path) -> None:
    """Else it would read the peer's, which are gone when the peer is seeded from the copy."""
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5)
    inside = "state/0/_stateSchema/default/0_7f-uuid"
    (peer / inside).parent.mkdir(parents=True)
    (peer / inside).write_text("schema", encoding="utf-8")
    text = (peer / "state/0/_metadata/metadata").read_text(encoding="utf-8").partition("\n")[2]
    note = json.loads(text)
    note["stateStoreInfo"][0]["stateSchemaFilePaths"] = [f"file:{peer}/{inside}"]
    (peer / "state/0/_metadata/v2").mkdir()
    (peer / "state/0/_metadata/v2/0").write_text(f"v2\n{json.dumps(note)}", encoding="utf-8")
    copy_checkpoint(peer, target := tmp_path / "r1" / "checkpoint")
    shutil.rmtree(peer)
    relocate(target)
    noted = json.loads((target / "state/0/_metadata/v2/0").read_text(encoding="utf-8").partition("\n")[2])
    (place,) = noted["stateStoreInfo"][0]["stateSchemaFilePaths"]
    assert (place, Path(place.removeprefix("file:")).is_file()) == (f"file:{target}/{inside}", True)
    check_state(target, 5)
    assert fault_of(target / "state/0/_metadata/v2/0") is None
