"""A checkpoint read from outside: where it stands, and every way in which it can be damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import (
    FINGERPRINT,
    Standing,
    batch_epoch,
    check_state,
    read_fingerprint,
    set_aside,
    standing,
    take_back,
    write_fingerprint,
)
from tests.unit.runtime.checkpoints_for_runtime import JOIN_STORES, write_checkpoint, write_note


def test_a_checkpoint_stands_at_its_newest_commit_and_names_what_was_begun(tmp_path: Path) -> None:
    assert standing(write_checkpoint(tmp_path / "a", 3)) == Standing(3, 3, 3)
    assert standing(write_checkpoint(tmp_path / "b", 3, begun=4)) == Standing(3, 3, 4)


def test_the_epoch_comes_from_the_offset_log_not_from_the_batch_number(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", 3, first_epoch=100)
    assert standing(folder) == Standing(3, 103, 103)
    assert batch_epoch(folder, 1) == 101


def test_a_checkpoint_in_which_nothing_happened_stands_nowhere(tmp_path: Path) -> None:
    assert standing(tmp_path / "absent") is None
    (tmp_path / "empty").mkdir()
    assert standing(tmp_path / "empty") is None


def test_a_first_batch_that_was_only_begun_is_before_the_first_epoch(tmp_path: Path) -> None:
    assert standing(write_checkpoint(tmp_path / "c", -1, begun=0)) == Standing(-1, -1, 0)


def test_spark_may_have_purged_old_batches(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", 9)
    for batch in range(5):
        (folder / "offsets" / str(batch)).unlink()
        (folder / "commits" / str(batch)).unlink()
    assert standing(folder) == Standing(9, 9, 9)


def test_temporary_files_and_checksums_are_not_batches(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", 2)
    for name in (".3.7f-uuid.tmp", ".2.crc", "3.tmp"):
        (folder / "offsets" / name).write_text("half", encoding="utf-8")
    assert standing(folder) == Standing(2, 2, 2)


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    return damage


def _remove_all(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for path in (folder / name).iterdir():
            path.unlink()

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        _remove("offsets/3"),
        _remove_all("offsets"),
        _remove_all("commits"),
        _write("offsets/3", ""),
        _write("offsets/3", 'v1\n{}\n{"epo'),
        _write("offsets/3", 'v1\n{}\n{"epoch":3}\n{"epoch":4}'),
        _write("offsets/3", "v1\n{}\n-"),
        _write("offsets/3", 'v1\n{}\n{"position":3}'),
        _write("offsets/5", 'v1\n{}\n{"epoch":5}'),
    ],
    ids=[
        *("a commit without offsets", "no offsets", "no commits", "an empty entry", "half an entry"),
        *("two epochs", "no epoch", "a foreign offset", "two batches begun"),
    ],
)
def test_a_damaged_log_is_recognised(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = write_checkpoint(tmp_path / "c", 3)
    damage(folder)
    with pytest.raises(RunError) as caught:
        standing(folder)
    assert caught.value.code == "LS0604"


def test_sound_state_passes_with_and_without_a_full_version(tmp_path: Path) -> None:
    check_state(write_checkpoint(tmp_path / "a", 5), 5)
    check_state(write_checkpoint(tmp_path / "b", 5, base=4), 5)
    check_state(write_checkpoint(tmp_path / "c", 5, base=6), 5)


@pytest.mark.parametrize(
    "damage",
    [
        _remove("state/0/1/6.changelog"),
        _remove("state/0/0/5.changelog"),
        _write("state/0/1/6.changelog", ""),
        _write("state/0/0/4.zip", "not a zip"),
        _remove("state/0/0/4.zip"),
    ],
    ids=["the newest change", "a change between", "an empty change", "a broken full version", "no full version"],
)
def test_damaged_state_is_recognised(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = write_checkpoint(tmp_path / "c", 5, base=4)
    damage(folder)
    with pytest.raises(RunError) as caught:
        check_state(folder, 5)
    assert caught.value.code == "LS0604"


@pytest.mark.parametrize("store", JOIN_STORES)
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("6.changelog", "missing"),
        ("5.changelog", "truncated"),
        ("4.zip", "missing"),
        ("4.zip", "truncated"),
        ("SSTs/000008-abc.sst", "missing"),
        ("SSTs/000008-abc.sst", "truncated"),
    ],
)
def test_a_join_keeps_four_stores_and_damage_in_each_is_found_and_named(
    tmp_path: Path, store: str, name: str, how: str
) -> None:
    folder = write_checkpoint(tmp_path / "c", 5, base=4, stores=JOIN_STORES)
    check_state(folder, 5)
    path = folder / "state" / "0" / "1" / store / name
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match=rf"operator 0 \(symmetricHashJoin\), store {store}, partition 1: ") as caught:
        check_state(folder, 5)
    assert caught.value.code == "LS0604"


@pytest.mark.parametrize("kept", ["", "0/1"], ids=["the folder too", "an empty folder"])
def test_a_whole_partition_of_state_that_is_gone_is_recognised(tmp_path: Path, kept: str) -> None:
    folder = write_checkpoint(tmp_path / "c", 5, base=4)
    shutil.rmtree(folder / "state" / "0" / "1")
    (folder / "state" / kept).mkdir(parents=True, exist_ok=True)
    with pytest.raises(RunError, match="partition 1: "):
        check_state(folder, 5)


def test_without_sparks_note_nobody_knows_what_state_there_should_be(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", 5)
    (folder / "state" / "0" / "_metadata" / "metadata").unlink()
    with pytest.raises(RunError, match=r"LS0604.*_metadata/metadata"):
        check_state(folder, 5)


def test_an_operator_between_others_that_is_gone_is_recognised(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", 5)
    write_note(folder, (), 0, operator=2)
    with pytest.raises(RunError, match="LS0604"):
        check_state(folder, 5)


def test_a_query_without_state_has_none_to_check(tmp_path: Path) -> None:
    check_state(write_checkpoint(tmp_path / "c", 5, partitions=0), 5)


def test_more_partitions_in_the_folder_than_noted_are_left_from_before_repartitioning(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "c", 5, partitions=3)
    write_note(folder, ("default",), 2)
    (folder / "state" / "0" / "2" / "3.changelog").unlink()
    check_state(folder, 5)


def test_the_plan_is_noted_beside_sparks_files(tmp_path: Path) -> None:
    assert read_fingerprint(tmp_path) is None
    write_fingerprint(tmp_path / "c", {"mode": "append"}, "v1")
    assert read_fingerprint(tmp_path / "c") == ({"mode": "append"}, "v1")
    (tmp_path / "c" / FINGERPRINT).write_text(json.dumps({"format": 99, "plan": {}}), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        read_fingerprint(tmp_path / "c")
    assert caught.value.code == "LS0608"


def test_checkpoints_set_aside_are_kept_but_not_for_ever(tmp_path: Path) -> None:
    import os

    for incarnation in range(5):
        folder = write_checkpoint(tmp_path / "checkpoint", 1)
        aside = set_aside(folder, incarnation)
        os.utime(aside, (incarnation, incarnation))
        assert not folder.exists() and aside.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.set-aside-3", "checkpoint.set-aside-4"]


def test_a_commit_that_is_taken_back_leaves_its_batch_begun(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", committed=3, first_epoch=10)
    (folder / "commits" / ".3.crc").write_bytes(b"sum")
    take_back(folder, 3)
    assert standing(folder) == Standing(2, 12, 13)
    assert not (folder / "commits" / ".3.crc").exists(), "it would not fit the commit that Spark writes anew"
