"""Copying a checkpoint while its replica goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import Standing, check_state, standing, write_fingerprint
from lockstep.runtime.state.snapshot import ATTEMPTS_MAX, copy_checkpoint
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_snapshot_ends_at_the_newest_commit_and_leaves_out_what_came_after(tmp_path: Path) -> None:
    peer = write_checkpoint(tmp_path / "r0" / "checkpoint", 5, begun=6, base=4)
    write_fingerprint(peer, {"mode": "update"}, "v1")
    for name in ("7.changelog", "7.zip", ".8.changelog.tmp", "6.changelog.tmp", ".6.changelog.crc"):
        (peer / "state" / "0" / "0" / name).write_bytes(b"later")
    target = tmp_path / "r1" / "checkpoint"
    assert copy_checkpoint(peer, target) == Standing(5, 5, 5)
    assert standing(target) == Standing(5, 5, 5)
    check_state(target, 5)
    partition = {"4.zip", "5.changelog", "6.changelog", "SSTs/000008-abc.sst"}
    assert _files(target) == {
        "metadata",
        "lockstep.json",
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
    assert "lacks version 3" in str(caught.value)
