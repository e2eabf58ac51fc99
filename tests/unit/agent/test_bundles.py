"""A job's code and tables on their way to a host: whole, known by their names, and nothing else beside them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from lockstep.agent.bundles import DIGEST_HEADER, bundle_id, is_there, pack, take

PARTS = ["code/ab", "tables/9c"]
NAME = bundle_id(PARTS)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / "jobs" / "job"
    for path, text in (("code/ab/job.py", "job"), ("code/ab/more/x.py", "x"), ("tables/9c/rows", "1"), ("log.txt", "")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "code/ab/job.pyc").write_text("not sent")
    return folder


def sent(home: Path, data: bytes, digest: str | None = None, path: str = f"/bundles/job/{NAME}") -> tuple[int, str]:
    headers = {"content-length": str(len(data)), DIGEST_HEADER: digest or hashlib.sha256(data).hexdigest()}
    answer = take(home, "PUT", path, headers, io.BytesIO(data))
    error = b"".join(answer.body).decode()
    return answer.status, error


def test_what_was_packed_is_there_after_it_was_taken_and_taking_it_twice_changes_nothing(
    source: Path, tmp_path: Path
) -> None:
    file, home = tmp_path / "bundle.zip", tmp_path / "there"
    digest = pack(source, PARTS, file)
    assert not is_there(home / "jobs" / "job", NAME)
    for _ in range(2):
        assert sent(home, file.read_bytes(), digest) == (200, "{}")
    folder = home / "jobs" / "job"
    assert is_there(folder, NAME)
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert found == [f"bundles/{NAME}", "code/ab/job.py", "code/ab/more/x.py", "tables/9c/rows"]


def test_one_that_is_not_whole_is_not_taken(source: Path, tmp_path: Path) -> None:
    file, home = tmp_path / "bundle.zip", tmp_path / "there"
    digest = pack(source, PARTS, file)
    data = file.read_bytes()
    for damaged in (data[:-10], data[:100] + b"?" + data[101:]):
        status, said = sent(home, damaged, digest)
        assert status == 409 and "LS0684" in said
    assert not is_there(home / "jobs" / "job", NAME) and not list(home.rglob("*.zip"))


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "code/ab/../../../x", "replicas/r0/spec.json", "code/"]
)
def test_files_that_are_neither_code_nor_tables_are_refused(tmp_path: Path, name: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as bundle:
        bundle.writestr(name, "mine")
    status, said = sent(tmp_path / "there", file.getvalue())
    assert status == 409 and "only code, tables and state are taken" in said
    assert not [path for path in (tmp_path / "there").rglob("*") if path.is_file()]


def test_names_of_jobs_are_checked(tmp_path: Path) -> None:
    status, said = sent(tmp_path / "there", b"", path=f"/bundles/..%2F..%2Fx/{NAME}")
    assert status == 409 and "LS0411" in said
    assert sent(tmp_path / "there", b"", path="/bundles/job/short")[0] == 400
