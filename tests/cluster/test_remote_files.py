"""What a file system has to offer, asked of HDFS, of S3, and where it means the same, of a folder."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstep import services
from lockstep.connect.disk import entries, put_if_absent, remove_files
from lockstep.connect.remote.paths import AnyPath, RemotePath, check_creates_once, location, on_disk
from lockstep.errors import ConnectError
from tests.cluster.remote import BUCKET, CREDENTIALS, careless_store

REMOTE = pytest.mark.parametrize("folder", ["hdfs", "s3"], indirect=True)


@pytest.fixture(params=["disk", "hdfs", "s3"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnyPath:
    if request.param == "disk":
        return tmp_path
    if request.param == "hdfs":
        return location(f"{request.getfixturevalue('hdfs').address}/tests/{tmp_path.name}")
    for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": request.getfixturevalue("s3")}.items():
        monkeypatch.setenv(key, value)
    return location(f"s3a://{BUCKET}/tests/{tmp_path.name}")


def remote(folder: str) -> RemotePath:
    path = location(folder)
    assert isinstance(path, RemotePath)
    return path


def test_of_many_who_put_one_file_exactly_one_is_told_yes(anywhere: AnyPath) -> None:
    file = anywhere / "fence.json"

    def put(number: int) -> bool:
        return put_if_absent(file, anywhere / f"fence.json.{number}.tmp", f"by {number}".encode())

    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(put, range(24)))
    assert told.count(True) == 1
    assert file.read_bytes() == f"by {told.index(True)}".encode()
    assert [path.name for path in entries(anywhere)] == ["fence.json"], "nothing is left of those who came second"


def test_files_are_listed_read_replaced_and_removed(anywhere: AnyPath) -> None:
    odd = "a b+c%é.json"
    assert entries(anywhere / "none") == []
    put_if_absent(anywhere / "one.json", anywhere / "one.tmp", b"1")
    put_if_absent(anywhere / odd, anywhere / "odd.tmp", b"odd")
    assert sorted(path.name for path in entries(anywhere)) == sorted(["one.json", odd])
    assert (anywhere / odd).read_bytes() == b"odd"
    (anywhere / "one.json").write_bytes(b"2")
    assert ((anywhere / "one.json").read_bytes(), (anywhere / "one.json").exists()) == (b"2", True)
    with pytest.raises(FileNotFoundError):
        (anywhere / "two.json").read_bytes()
    remove_files([anywhere / "one.json", anywhere / "two.json"])
    assert not (anywhere / "one.json").exists()
    with on_disk(anywhere / odd) as local:
        assert local.read_bytes() == b"odd"


@pytest.mark.parametrize("folder", ["s3", pytest.param("hdfs", marks=pytest.mark.long)], indirect=True)
def test_folders_are_listed_with_their_files_and_many_of_them(folder: str) -> None:
    path = remote(folder)
    for name in ("deep/er/1", "2", "3"):
        (path / name).write_bytes(b"")
    assert sorted(one.name for one in path.iterdir()) == ["2", "3", "deep"]
    assert not (path / "deep").exists(), "a folder is no file"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: (path / f"many/{number:04}").write_bytes(b"x"), range(1100)))
    assert len(entries(path / "many")) == 1100


@pytest.mark.parametrize("folder", ["s3"], indirect=True)
def test_a_folder_that_is_removed_leaves_no_marks_of_hadoop(folder: str) -> None:
    place = remote(folder) / "start"
    for name in ("", "stage-0/", "stage-0/state/"):
        place.system.replace(f"{place.key}/{name}", "", b"")
    (place / "stage-0" / "metadata").write_bytes(b"{}")
    place.system.remove_folder(place.key)
    assert list(remote(folder).iterdir()) == []


@REMOTE
def test_a_large_file_comes_back_as_it_went(folder: str) -> None:
    content = bytes(range(256)) * 80_000
    path = remote(folder) / "large"
    path.system.write(path.key, io.BytesIO(content))
    assert path.read_bytes() == content


@REMOTE
def test_whoever_did_not_hear_that_its_put_succeeded_finds_it_so(folder: str) -> None:
    path = remote(folder) / "fence.json"
    assert put_if_absent(path, path.with_name("a.tmp"), b"mine")
    assert put_if_absent(path, path.with_name("a.tmp"), b"mine")
    assert not put_if_absent(path, path.with_name("b.tmp"), b"theirs")


@REMOTE
def test_a_system_that_creates_once_passes_and_keeps_nothing_of_the_probe(folder: str) -> None:
    check_creates_once(remote(folder))
    assert entries(remote(folder)) == []


@pytest.mark.parametrize("answer", [None, (501, "NotImplemented")])
def test_a_store_without_conditions_is_refused(answer: tuple[int, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with careless_store(answer) as (address, objects):
        for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(key, value)
        with pytest.raises(ConnectError, match="If-None-Match") as caught:
            check_creates_once(RemotePath("s3a://careless" + ("-501" if answer else ""), "out"))
    assert caught.value.code == "LS0553"
    assert not objects, "the probe is taken away"


def test_hdfs_is_found_by_the_settings_of_its_cluster(hdfs: services.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.nodes[0].log.parent))
    (location("hdfs:///tests/settings/one")).write_bytes(b"1")
    assert location(f"{hdfs.address}/tests/settings/one").read_bytes() == b"1"


def test_what_a_user_may_not_do_on_hdfs_is_said(hdfs: services.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep.connect.remote.hdfs import Hdfs

    monkeypatch.setenv("HADOOP_USER_NAME", "nobody-special")
    with pytest.raises(ConnectError, match="Permission denied") as caught:
        Hdfs(hdfs.address).write("not/allowed", io.BytesIO(b"x"))
    assert caught.value.code == "LS0554"


def test_a_bucket_that_is_not_there_is_said(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ConnectError, match="NoSuchBucket") as caught:
        location("s3a://nobody-has-this/out").write_bytes(b"x")
    assert caught.value.code == "LS0554"
