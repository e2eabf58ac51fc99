"""The OpenAPI document says what the service does: requests made from it are answered as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from lockstep.serve import submission
from lockstep.serve.app import create_app
from lockstep.serve.limits import Limits
from lockstep.serve.service import Service
from tests.unit.serve.conftest import LOCAL, made_project

EXAMPLES = 4
"""For each of the thirty routes: enough to leave no parameter untried, few enough to take seconds."""
HOST = {"Host": "127.0.0.1"}
NEVER_TAKEN = frozenset(
    {
        "POST /api/v1/jobs",
        "POST /api/v1/jobs/{job}/upgrade",
        "POST /api/v1/jobs/{job}/environments/{name}",
        "DELETE /api/v1/jobs/{job}",
        "POST /api/v1/ingest/{journal}",
        "PUT /api/v1/jobs/{job}/spec",
        "GET /api/v1/jobs/{job}/state",
        "GET /api/v1/jobs/{job}/state/{step}",
        "POST /api/v1/jobs/{job}/savepoints",
        "DELETE /api/v1/jobs/{job}/savepoints/{name}",
    }
)
"""What needs a bundle, a stopped job, a journal, an ETag that was read, or a checkpoint: other tests have those."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@schemathesis.serializer("application/zip", "application/x-ndjson")
def as_bytes(_context: object, value: object) -> bytes:
    """Bodies that are not JSON, as they are made up."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")


def test_every_route_answers_as_the_document_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing that is made up is worth a process.
    monkeypatch.setattr(submission, "_ordered", lambda *_: {"job": "made-up", "operation": "1"})
    limits = Limits(requests_per_s=1e6, requests_burst=10**6)
    app = create_app(Service(made_project(tmp_path / "project")), limits=limits)
    asked: dict[str, set[int]] = {}
    with TestClient(app, base_url=LOCAL):
        document = schemathesis.openapi.from_asgi("/openapi.json", app, headers=HOST)
        for found in document.get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]
            _try(operation, asked.setdefault(operation.label, set()))
    # Of each route some requests have to arrive: made-up ones that are all refused would show nothing.
    # One that is refused because another operation is under way has arrived.
    never = [label for label, statuses in asked.items() if not any(one < 300 or one == 409 for one in statuses)]
    assert set(never) <= NEVER_TAKEN, asked


def _try(operation: Any, statuses: set[int]) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(operation.as_strategy())
    def one(case: Any) -> None:
        if "job" in case.path_parameters and case.method != "DELETE":
            # A made-up name is unknown; most requests should reach something.
            case.path_parameters["job"] = "nobody" if len(str(case.path_parameters["job"])) % 4 == 3 else "logins"
        if len(str(case.path_parameters.get("number", "four"))) != 4:
            # The operation that was asked for before. Which numbers are made up depends on constants in all sources.
            case.path_parameters["number"] = 1
        if case.query:
            case.query = {name: value for name, value in case.query.items() if name not in ("wait", "replica")}
        statuses.add(case.call_and_validate(checks=CHECKS, headers=HOST).status_code)

    one()


def test_every_route_is_in_the_document_with_words(http: TestClient) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    missing = [
        f"{method} {path}"
        for path, verbs in paths.items()
        for method, one in verbs.items()
        if not one.get("description")
    ]
    assert missing == []
    wanted = {"/api/v1/jobs", "/api/v1/jobs/{job}/spec", "/api/v1/jobs/{job}/operations", "/api/v1/ingest/{journal}"}
    assert wanted <= set(paths) and "/login" not in paths
