from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lockstep.machine import find_java
from lockstep.store.sqlite_store import open_store
from tests.unit.cli.conftest import Call


def _fake_java(home: Path, said: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    return home


def _finding(said_json: dict[str, object], subject: str) -> dict[str, str]:
    findings = said_json["findings"]
    assert isinstance(findings, list)
    return next(finding for finding in findings if finding["subject"] == subject)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19', 21),
        ('openjdk version "26-ea"', 26),
    ],
)
def test_a_new_java_in_java_home_is_found(tmp_path: Path, said: str, version: int) -> None:
    home = _fake_java(tmp_path / "jdk", said)
    java = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (java.home, java.version, java.found_by) == (home, version, "JAVA_HOME")


def test_java_on_the_path_is_found_through_its_links(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "jdk", 'openjdk version "17.0.1"')
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(home / "bin" / "java")
    java = find_java({"PATH": str(tmp_path / "usr")})
    assert (java.home, java.found_by) == (home, "PATH")


def test_an_old_java_home_is_an_error_even_if_a_newer_java_is_on_the_path(
    lockstep: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", 'java version "1.8.0_302"')))
    monkeypatch.setenv("PATH", str(_fake_java(tmp_path / "new", 'openjdk version "21"') / "bin"))
    said = lockstep("doctor", "--json")
    assert said.code == 1
    assert said.json()["ok"] is False
    java = _finding(said.json(), "Java")
    assert java["verdict"] == "fail"
    assert "JAVA_HOME leads to Java 8" in java["fact"]
    assert "unset JAVA_HOME" in java["hint"]


def test_a_machine_with_everything_passes(lockstep: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "jdk", 'openjdk version "17.0.15"')))
    said = lockstep("doctor")
    assert said.code == 0, said.out
    assert "fail" not in said.out
    assert list(tmp_path.iterdir()) == [tmp_path / "jdk"], "doctor leaves nothing behind"


def test_a_full_disk_fails(lockstep: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 * 2**20))
    disk = _finding(lockstep("doctor", "--json").json(), "disk")
    assert (disk["verdict"], disk["fact"][:6]) == ("fail", "0.0 GB")


def test_a_project_folder_that_is_not_there_fails_with_advice(lockstep: Call, tmp_path: Path) -> None:
    said = lockstep("--project", str(tmp_path / "nowhere"), "doctor", "--json")
    assert said.code == 1
    assert "--project" in _finding(said.json(), "disk")["hint"]


def test_settings_that_do_not_parse_are_found(lockstep: Call, tmp_path: Path) -> None:
    (tmp_path / "lockstep.toml").write_text("[run\n")
    assert _finding(lockstep("doctor", "--json").json(), "settings")["verdict"] == "fail"


def test_a_store_that_this_version_cannot_read_is_found(lockstep: Call, tmp_path: Path) -> None:
    open_store(tmp_path / ".lockstep", "alerts").close()
    assert _finding(lockstep("doctor", "--json").json(), "store")["fact"] == "readable, jobs: alerts"
    (tmp_path / ".lockstep" / "jobs" / "alerts" / "ledger.db").write_bytes(b"not a database, certainly" * 100)
    assert _finding(lockstep("doctor", "--json").json(), "store")["verdict"] == "fail"
