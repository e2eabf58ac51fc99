"""Records over HTTP are on disk when they are acknowledged; a bad line keeps nothing; a fast sender waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lockstep.connect.writing import Journal
from lockstep.errors import ServiceError
from lockstep.serve.limits import Budget
from lockstep.store.journal import open_journal
from tests.unit.serve.test_routes import problem

INGEST = "/api/v1/ingest/logins"


def users(project: Path) -> list[str]:
    journal = open_journal(project / ".lockstep", "logins")
    try:
        return [row["user"] for batch in journal.read(0, 0, journal.ends()[0]) for row in batch.to_pylist()]
    finally:
        journal.close()


def test_what_is_acknowledged_is_there(http: TestClient, project: Path) -> None:
    said = http.post(INGEST, content=b'{"user": "ann", "ok": true}\n{"user": "bob"}\n')
    assert said.status_code == 200
    assert said.json() == {"journal": "logins", "records": 2, "positions": {"0": [0, 2]}, "repeated": False}
    assert users(project) == ["ann", "bob"]


def test_a_bad_line_is_named_and_nothing_of_the_request_is_kept(http: TestClient, project: Path) -> None:
    said = problem(http.post(INGEST, content=b'{"user": "ann"}\n{"user": 7}\n'), 422, "LS0403")
    assert said["title"].startswith("line 2: ")
    problem(http.post(INGEST, content=b"\xff\xfe"), 422, "LS0403")
    assert users(project) == []


def test_the_same_key_appends_once(http: TestClient, project: Path) -> None:
    body, key = b'{"user": "ann"}', {"Idempotency-Key": "r1"}
    assert http.post(INGEST, content=body, headers=key).json()["records"] == 1
    again = http.post(INGEST, content=body, headers=key).json()
    assert (again["records"], again["repeated"], again["positions"]) == (0, True, {"0": [0, 1]})
    problem(http.post(INGEST, content=b'{"user": "bob"}', headers=key), 422, "LS0428")
    assert users(project) == ["ann"]


def test_a_key_is_the_name_that_python_puts_records_under(http: TestClient, project: Path) -> None:
    http.post(INGEST, content=b'{"user": "ann"}', headers={"Idempotency-Key": "importer/1"})
    with Journal("logins", project=project) as journal:
        assert journal.put([{"user": "ann"}], once="importer/1").repeated
        assert journal.put([{"user": "bob"}], once="importer/2").records == 1
    again = http.post(INGEST, content=b'{"user": "bob"}', headers={"Idempotency-Key": "importer/2"})
    assert again.json()["repeated"]
    assert users(project) == ["ann", "bob"]


def test_a_journal_that_there_is_not_is_not_made(http: TestClient, project: Path) -> None:
    problem(http.post("/api/v1/ingest/nowhere", content=b"{}"), 404, "LS0410")
    problem(http.post("/api/v1/ingest/a%20b", content=b"{}"), 422, "LS0411")
    assert not (project / ".lockstep" / "journals" / "nowhere").exists()


def test_too_many_records_that_nobody_has_read_are_refused(tight: TestClient, project: Path) -> None:
    # The job has read 50 records; more than 60 may not wait, and they are counted once a second.
    journal = open_journal(project / ".lockstep", "logins")
    from lockstep.store.arrow import batch_from_json_lines

    journal.append(batch_from_json_lines([b'{"user": "ann"}'] * 111, journal.schema))
    journal.close()
    refused = tight.post(INGEST, content=b'{"user": "bob"}')
    problem(refused, 429, "LS0767")
    assert int(refused.headers["retry-after"]) >= 1
    assert len(users(project)) == 111


def test_all_requests_together_have_so_many_bytes_and_a_large_one_is_not_refused_for_ever() -> None:
    budget = Budget(10, "bytes")
    with budget.using(8), pytest.raises(ServiceError) as refused, budget.using(3):
        pass
    assert refused.value.code == "LS0767"
    with budget.using(11):
        pass
