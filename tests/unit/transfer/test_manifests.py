"""A manifest is not trusted: what leads out of its folder, or beyond limits, is refused before it is acted on."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lockstep.errors import RunError
from lockstep.runtime.transfer import manifest as manifests
from lockstep.runtime.transfer.manifest import Manifest, SnapshotFile, StageStanding, list_files
from lockstep.runtime.transfer.offers import Offers
from lockstep.runtime.transfer.serving import PREFIX, answer
from tests.unit.transfer.hosts_for_transfer import PLAN, TOKEN, WANTED, FakePeers

HASH = "0" * 64


def _sent(**changes: Any) -> bytes:
    sound = Manifest(
        WANTED, "cafe", PLAN, "v1", (StageStanding("checkpoint", 5, 5),), (SnapshotFile("checkpoint/a", 3, HASH),)
    )
    return json.dumps({"format": 1, **asdict(sound), **changes}).encode()


def _file(path: object, size: object = 3, sha256: object = HASH) -> dict[str, object]:
    return {"path": path, "size": size, "sha256": sha256}


def test_a_sound_manifest_is_read_as_it_was_written() -> None:
    read = Manifest.decode(_sent())
    assert Manifest.decode(read.encode()) == read
    assert (read.size, read.wanted.holder.incarnation) == (3, 7)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "checkpoint/../../etc/passwd",
        "../checkpoint/a",
        "checkpoint/./a",
        "checkpoint//a",
        "checkpoint/",
        "checkpoint",
        "",
        "elsewhere/a",
        "checkpoint/a\0b",
        "checkpoint/a\nb",
        "checkpoint\\a",
        "checkpoint/" + "a" * 1000,
        7,
    ],
)
def test_a_name_that_is_not_inside_a_stage_is_refused(path: object) -> None:
    with pytest.raises(RunError) as caught:
        Manifest.decode(_sent(files=[_file(path)]))
    assert caught.value.code == "LS0663"


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"files": [_file("checkpoint/a"), _file("checkpoint/a")]},
        {"files": [_file("checkpoint/a"), _file("checkpoint/a/b")]},
        {"files": [_file("checkpoint/a", size=-1)]},
        {"files": [_file("checkpoint/a", size=True)]},
        {"files": [_file("checkpoint/a", size=2**60)]},
        {"files": [_file("checkpoint/a", sha256="beef")]},
        {"files": [{"path": "checkpoint/a"}]},
        {"files": 3},
        {"stages": []},
        {"stages": [{"folder": "../r1", "batch": 1, "epoch": 1}]},
        {"stages": [{"folder": "checkpoint", "batch": -1, "epoch": 1}]},
        {"plan": [1]},
        {"wanted": {"job": "../job", "replica": "r0", "incarnation": 1}},
    ],
)
def test_what_no_snapshot_can_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RunError) as caught:
        Manifest.decode(_sent(**changes))
    assert caught.value.code == "LS0663"


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_json_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(RunError, match="LS0663"):
        Manifest.decode(data)


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "FILES_MAX", 2)
    Manifest.decode(_sent(files=[_file(f"checkpoint/{n}") for n in range(2)]))
    with pytest.raises(RunError, match="3 files, more than 2"):
        Manifest.decode(_sent(files=[_file(f"checkpoint/{n}") for n in range(3)]))


def test_a_link_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert [(file.path, file.size) for file in list_files(tmp_path)] == [("a", 3)]
    (tmp_path / "b").symlink_to("/etc/hostname")
    with pytest.raises(RunError, match="no plain file"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "offers/../../etc/passwd", {}, b"", 404),
        ("GET", f"offers/{'0' * 32}/files/../../x", {}, b"", 405),
        ("GET", f"offers/{'0' * 32}", {}, b"", 404),
        ("POST", f"offers/{'0' * 32}", {}, b"", 405),
        ("PUT", f"offers/{'0' * 32}", {}, b"{}", 400),
        ("PUT", f"offers/{'0' * 32}", {"Content-Length": "999999"}, b"", 400),
        ("PUT", f"offers/{'0' * 32}", {"Content-Length": "2"}, b"{}", 400),
        ("PUT", f"offers/{'0' * 32}", {"Content-Length": "45"}, b'{"job":"../x","replica":"r0","incarnation":1}', 400),
    ],
)
def test_a_question_that_is_none_is_refused(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    with Offers(tmp_path, FakePeers(None)) as offers:
        shown = {"authorization": f"Bearer {TOKEN}", **headers}
        assert answer(offers, TOKEN, method, PREFIX + path, shown, io.BytesIO(body)).status == status
        unread = io.BytesIO(body)
        assert answer(offers, TOKEN, method, PREFIX + path, headers, unread).status == 401
        assert unread.tell() == 0, "nothing is read from strangers"
