"""A bundle is checked before anything of it is written, and the job's code runs in a process of its own."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lockstep.api.loading import load_job
from lockstep.runtime.desired_run import wanted_run
from lockstep.serve import submission
from lockstep.serve.service import Service
from tests.unit.serve.test_routes import JOBS, problem

JOB_FILE = b"""\
import lockstep as ls
from helpers.names import NAME
print("loaded")
job = ls.Job(NAME)
job.source("lines", ls.journal("lines", schema="line string")).to(ls.files("out"))
"""


def zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return target.getvalue()


def sent(http: TestClient, bundle: bytes, query: str = "file=job.py", digest: str = "") -> object:
    headers = {"Lockstep-Digest": digest or hashlib.sha256(bundle).hexdigest(), "Content-Type": "application/zip"}
    return http.post(f"{JOBS}?{query}", content=bundle, headers=headers)


def test_a_job_with_its_modules_is_ordered_by_a_process_of_its_own(http: TestClient, service: Service) -> None:
    bundle = zipped({"job.py": JOB_FILE, "helpers/names.py": b'NAME = "sent"'})
    answer = sent(http, bundle, "file=job.py&replicas=3&set=epoch_interval_s=0.5&spark-conf=spark.ui.enabled=false")
    assert answer.status_code == 201, answer.text  # type: ignore[attr-defined]
    assert answer.json() == {"job": "sent", "bundle": hashlib.sha256(bundle).hexdigest()}  # type: ignore[attr-defined]
    order = wanted_run(service.store("sent"))
    assert order is not None and order.settings["run"]["replicas"] == 3
    assert order.settings["run"]["epoch_interval_s"] == 0.5
    assert (service.folder("sent") / order.job_file.partition(":")[0]).read_bytes() == JOB_FILE
    assert "helpers" not in sys.modules, "nothing of it runs in here"


def test_a_running_job_is_upgraded_to_code_that_was_sent_and_what_cannot_be_is_refused(
    http: TestClient, service: Service
) -> None:
    names = b'NAME = "sent"'
    assert sent(http, zipped({"job.py": JOB_FILE, "helpers/names.py": names})).status_code == 201  # type: ignore[attr-defined]
    changed = JOB_FILE.replace(b".to(", b".filter(\"line <> ''\").to(")
    bundle = zipped({"job.py": changed, "helpers/names.py": names})
    headers = {"Lockstep-Digest": hashlib.sha256(bundle).hexdigest(), "Content-Type": "application/zip"}
    asked = [
        http.post(f"{JOBS}/sent/upgrade?file=job.py", content=bundle, headers={**headers, "Idempotency-Key": "once"})
        for _ in range(2)
    ]
    assert [one.status_code for one in asked] == [202, 202], asked[0].text
    assert {one.json()["number"] for one in asked} == {1} and asked[0].json()["kind"] == "upgrade"
    operation = service.verbs("sent").book.open()
    assert operation is not None and operation.after is not None and operation.after["results_of"] == 2
    assert http.get(f"{JOBS}/sent/difference").json()["epochs"] == 0
    other = zipped({"job.py": changed.replace(b'"out"', b'"elsewhere"'), "helpers/names.py": names})
    headers["Lockstep-Digest"] = hashlib.sha256(other).hexdigest()
    refused = http.post(f"{JOBS}/sent/upgrade?file=job.py", content=other, headers=headers)
    assert refused.status_code >= 400 and refused.json()["code"] == "LS0747", refused.text


def test_a_running_job_goes_on_in_an_environment_that_the_settings_name_and_in_no_other(
    http: TestClient, service: Service
) -> None:
    assert sent(http, zipped({"job.py": JOB_FILE, "helpers/names.py": b'NAME = "sent"'})).status_code == 201  # type: ignore[attr-defined]
    (service.project / "lockstep.toml").write_text(f'[environments.next]\npython = "{sys.executable}"\n')
    asked = http.post(f"{JOBS}/sent/environments/next", json={"timeout_s": 60})
    assert asked.status_code == 202, asked.text
    operation = service.verbs("sent").book.open()
    assert operation is not None and operation.after is not None
    assert operation.after["environment"] == {"python": sys.executable}
    refused = http.post(f"{JOBS}/sent/environments/other", json={})
    assert refused.json()["code"] == "LS0748" and "next" in refused.text


@pytest.mark.parametrize(
    ("files", "query"),
    [
        ({"../job.py": b""}, "file=job.py"),
        ({"/etc/job.py": b""}, "file=job.py"),
        ({"a/../../job.py": b""}, "file=job.py"),
        ({"a\\job.py": b""}, "file=job.py"),
        ({"job.py": b""}, "file=../job.py"),
        ({"job.py": b""}, "file=job.sh"),
        ({"other.py": b""}, "file=job.py"),
        ({"job.py": b""}, "file=job.py&variable=a.b"),
    ],
)
def test_names_that_would_lead_elsewhere_are_refused(http: TestClient, files: dict[str, bytes], query: str) -> None:
    problem(sent(http, zipped(files), query), 422, "LS0773")


def test_what_is_no_bundle_is_refused(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    problem(sent(http, b"not a zip file"), 422, "LS0773")
    good = zipped({"job.py": JOB_FILE})
    problem(sent(http, good, digest="0" * 64), 422, "LS0773")
    problem(sent(http, good, "file=job.py&set=nothing"), 422, "LS0761")
    monkeypatch.setattr(submission, "UNPACKED_BYTES_MAX", 10)
    problem(sent(http, good), 422, "LS0773")


def test_a_job_that_cannot_be_loaded_is_told_as_on_the_command_line(http: TestClient) -> None:
    said = problem(sent(http, zipped({"job.py": b"x = 1"})), 400, "LS0121")
    assert "no variable of the file holds an ls.Job" in said["detail"]
    ended = problem(sent(http, zipped({"job.py": b"import os; print('bye'); os._exit(3)"})), 422, "LS0774")
    assert "exit code 3" in ended["detail"] and "bye" in ended["detail"]


def test_a_packed_job_is_the_same_every_time(tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "names.py").write_text('NAME = "sent"')
    (tmp_path / "job.py").write_bytes(JOB_FILE)
    loaded = load_job(str(tmp_path / "job.py"))
    one = submission.packed(loaded)
    assert one == submission.packed(loaded)
    with zipfile.ZipFile(io.BytesIO(one)) as bundle:
        assert sorted(bundle.namelist()) == ["helpers/names.py", "job.py"]
