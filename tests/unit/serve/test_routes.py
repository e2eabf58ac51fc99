"""Every route answers from the store, and every error is a problem with a code and the right status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lockstep.control.operations.book import OperationBook
from lockstep.runtime.desired_run import LEASE, last_run, note_stopped
from lockstep.runtime.steering import steering
from lockstep.serve.app import create_app
from lockstep.serve.service import Service
from lockstep.store.protocols import Store
from tests.unit.serve.conftest import LOCAL

JOBS = "/api/v1/jobs"
JOB = f"{JOBS}/logins"


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = answer.json()
    assert said["status"] == status and said["title"]
    return said


def test_the_list_has_every_job_with_its_state(http: TestClient) -> None:
    (one,) = http.get(JOBS).json()
    assert (one["job"], one["wanted"], one["active"], one["head_epoch"]) == ("logins", True, True, 4)
    assert (one["published_epoch"], one["replicas_wanted"], one["coordinator"]) == (3, 2, None)


def test_a_job_whose_store_cannot_be_read_does_not_hide_the_others(http: TestClient, project: Path) -> None:
    broken = project / ".lockstep" / "jobs" / "broken" / "ledger.db"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a database at all, and long enough to be seen as none" * 100)
    states = {one["job"]: one["state"] for one in http.get(JOBS).json()}
    assert states["broken"] == "unknown" and states["logins"] != "unknown"


def test_a_description_has_replicas_latency_and_the_operation_under_way(http: TestClient, store: Store) -> None:
    store.acquire(LEASE, "77", 60)
    http.post(f"{JOB}/restart")
    said = http.get(JOB).json()
    assert [one["replica"] for one in said["replicas"]] == ["r0", "r1"]
    assert said["latency_ms"]["p50"] == 7.0 and said["coordinator"] == "77"
    assert said["operation"]["kind"] == "restart"


@pytest.mark.parametrize("path", ["", "/spec", "/operations", "/replicas", "/plan", "/epochs", "/events", "/logs"])
def test_an_unknown_job_is_not_found(http: TestClient, path: str, project: Path) -> None:
    said = problem(http.get(f"{JOBS}/nobody{path}"), 404, "LS0760")
    assert "logins" in said["detail"]
    assert not (project / ".lockstep" / "jobs" / "nobody").exists()


def test_a_name_that_is_no_name_reaches_no_path(http: TestClient) -> None:
    problem(http.get(f"{JOBS}/..%2F..%2Fetc"), 404, "LS0778")
    problem(http.get(f"{JOBS}/a%20b"), 422, "LS0411")


def test_addresses_and_methods_that_there_are_not(http: TestClient) -> None:
    problem(http.get("/api/v2/jobs"), 404, "LS0778")
    problem(http.patch(JOB), 405, "LS0778")


def test_an_operation_is_asked_once_for_each_key(http: TestClient) -> None:
    first = http.post(f"{JOB}/operations", json={"kind": "restart"}, headers={"Idempotency-Key": "k"})
    again = http.post(f"{JOB}/operations", json={"kind": "restart"}, headers={"Idempotency-Key": "k"})
    assert first.status_code == again.status_code == 202
    assert first.json() == again.json()
    problem(http.post(f"{JOB}/operations", json={"kind": "restart"}), 409, "LS0740")
    assert [one["number"] for one in http.get(f"{JOB}/operations").json()] == [1]


def test_whoever_waits_is_answered_when_it_is_over(http: TestClient, store: Store) -> None:
    asked = http.post(f"{JOB}/operations?wait=0.3", json={"kind": "rescale", "replicas": 3})
    assert asked.status_code == 202 and asked.json()["arguments"] == {"replicas": 3}
    OperationBook(store).update(1, lambda one: one.noted("join", 5, "r2").ended("done", 9))
    done = http.get(f"{JOB}/operations/1?wait=30")
    assert done.status_code == 200
    assert [step["name"] for step in done.json()["steps"]] == ["join", "done"]
    problem(http.get(f"{JOB}/operations/7"), 404, "LS0741")


def test_an_operation_is_settled_while_it_is_under_way(http: TestClient, store: Store) -> None:
    http.post(f"{JOB}/operations", json={"kind": "restart"})
    assert http.post(f"{JOB}/operations/1/commit").json()["wish"] == "commit"
    assert http.post(f"{JOB}/operations/1/rollback").json()["wish"] == "rollback"
    OperationBook(store).update(1, lambda one: one.ended("rolled-back", 9, "because"))
    problem(http.post(f"{JOB}/operations/1/commit"), 409, "LS0746")
    problem(http.post(f"{JOB}/operations/2/commit"), 404, "LS0741")


def test_requests_that_do_not_fit_are_told_why(http: TestClient) -> None:
    problem(http.post(f"{JOB}/operations", json={"kind": "explode"}), 422, "LS0761")
    problem(http.post(f"{JOB}/operations", json={"kind": "rescale"}), 422, "LS0745")
    problem(http.post(f"{JOB}/operations", json={"kind": "rescale", "replica_count": 3}), 422, "LS0761")
    problem(http.post(f"{JOB}/operations", content=b"{", headers={"content-type": "application/json"}), 422, "LS0761")
    problem(http.post(f"{JOB}/operations", json={"kind": "move", "replica": "r9", "host": "b"}), 404, "LS0742")


def test_deactivate_and_activate_are_done_at_once(http: TestClient, store: Store) -> None:
    assert http.post(f"{JOB}/deactivate").json()["state"] == "done"
    assert steering(store).paused and http.get(JOB).json()["active"] is False
    assert http.post(f"{JOB}/activate").json()["state"] == "done"
    assert not steering(store).paused


def test_a_spec_is_changed_only_by_those_who_have_seen_it(http: TestClient, store: Store) -> None:
    seen = http.get(f"{JOB}/spec")
    assert (seen.json()["replicas"], seen.json()["generation"]) == (2, 1)
    problem(http.put(f"{JOB}/spec", json={"replicas": 3}), 428, "LS0765")
    problem(http.put(f"{JOB}/spec", json={"replicas": 3}, headers={"If-Match": '"1-old"'}), 412, "LS0764")
    assert OperationBook(store).all() == []
    changed = http.put(f"{JOB}/spec", json={"replicas": 3}, headers={"If-Match": seen.headers["etag"]})
    assert changed.status_code == 202
    (asked,) = OperationBook(store).all()
    assert asked.after is not None and asked.after["settings"]["run"]["replicas"] == 3


def test_secrets_are_in_no_spec(http: TestClient, store: Store) -> None:
    from dataclasses import replace

    from lockstep.runtime.desired_run import note_desired

    order = last_run(store)
    assert order is not None
    spark = {**order.settings["spark"], "conf": {"spark.hadoop.fs.s3a.secret.key": "hunter2"}}
    note_desired(store, replace(order, settings={**order.settings, "spark": spark}))
    assert "hunter2" not in http.get(f"{JOB}/spec").text


def test_stop_kill_and_start_change_what_is_wanted(http: TestClient, store: Store) -> None:
    store.acquire(LEASE, "77", 60)
    assert http.post(f"{JOB}/stop").json() == {"job": "logins", "wanted": False, "coordinator": "77"}
    problem(http.post(f"{JOB}/start"), 409, "LS0763")
    store.release(LEASE, "77")
    problem(http.post(f"{JOB}/restart"), 409, "LS0743")
    assert http.post(f"{JOB}/start").json()["wanted"] is True
    assert http.post(f"{JOB}/kill").json()["wanted"] is False
    order = last_run(store)
    assert order is not None and order.at_once


def test_only_a_stopped_job_is_deleted_and_then_it_is_gone(
    http: TestClient, store: Store, service: Service, project: Path
) -> None:
    problem(http.delete(JOB), 409, "LS0763")
    note_stopped(store)
    assert http.delete(JOB).status_code == 204
    assert http.get(JOBS).json() == []
    problem(http.get(JOB), 404, "LS0760")
    assert not service.folder("logins").exists()
    assert (project / ".lockstep" / "journals" / "logins").exists(), "what it read belongs to others, too"


def test_epochs_come_newest_first_in_pages(http: TestClient) -> None:
    first = http.get(f"{JOB}/epochs?limit=2").json()
    assert [one["epoch"] for one in first["epochs"]] == [4, 3] and first["before"] == 3
    assert (first["epochs"][0]["published_by"], first["epochs"][1]["published_by"]) == (None, "r0")
    rest = http.get(f"{JOB}/epochs?before=3&limit=10").json()
    assert [one["epoch"] for one in rest["epochs"]] == [2, 1, 0] and rest["before"] is None
    assert [one["digests_equal"] for one in rest["epochs"]] == [True, True, False]
    assert rest["epochs"][0]["cut"] == {"logins": {"0": 30}}


def test_stages_and_the_plan_are_known_without_loading_code(http: TestClient) -> None:
    (stage,) = http.get(f"{JOB}/stages").json()
    assert (stage["stage"], stage["partitions"], stage["sinks"]) == (0, 1, ["out"])
    plan = http.get(f"{JOB}/plan").json()
    assert plan["text"] == "logins -> out" and plan["logical"]["job"] == "logins"
    assert [one["replica"] for one in plan["physical"]["replicas"]] == ["r0", "r1"]


def test_the_end_of_a_log_and_nothing_else(http: TestClient, service: Service) -> None:
    path = service.folder("logins") / "replicas" / "r0" / "log.txt"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(f"line {number}" for number in range(500)))
    said = http.get(f"{JOB}/logs?replica=r0&lines=3").json()
    assert said == {"name": "r0", "lines": ["line 497", "line 498", "line 499"], "truncated": True}
    assert http.get(f"{JOB}/logs").json()["lines"] == []
    problem(http.get(f"{JOB}/logs?replica=../../x"), 404, "LS0742")


def test_events_come_in_pages(http: TestClient) -> None:
    first = http.get(f"{JOB}/events?limit=1").json()
    assert [one["kind"] for one in first["events"]] == ["replica-started"]
    then = http.get(f"{JOB}/events?after={first['after']}").json()
    assert [(one["kind"], one["replica"]) for one in then["events"]] == [("seeded", "r1")]


def test_the_service_says_that_it_lives(http: TestClient) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    assert http.get("/readyz").json() == {"status": "ready", "jobs": 1}


def test_savepoints_and_state_are_refused_where_there_is_none(http: TestClient) -> None:
    assert http.get(f"{JOB}/savepoints").json() == []
    problem(http.get(f"{JOBS}/nobody/savepoints"), 404, "LS0760")
    problem(http.post(f"{JOB}/savepoints", json={"name": "one"}), 409, "LS0720")
    problem(http.post(f"{JOB}/savepoints", json={"name": "../one"}), 422, "LS0411")
    problem(http.delete(f"{JOB}/savepoints/one"), 404, "LS0722")
    problem(http.get(f"{JOB}/state"), 404, "LS0734")
    problem(http.get(f"{JOB}/state/totals?key=ann"), 404, "LS0734")
    problem(http.get(f"{JOB}/state/totals?savepoint=../../etc"), 422, "LS0411")


def test_what_nobody_expected_is_a_problem_too_and_tells_nothing_of_the_inside(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[str]:
        raise RuntimeError("the inside")

    with TestClient(create_app(service), base_url=LOCAL, raise_server_exceptions=False) as client:
        monkeypatch.setattr(service, "jobs", broken)
        said = problem(client.get(JOBS), 500, "LS0779")
    assert "the inside" not in str(said) and "the inside" in capsys.readouterr().err
