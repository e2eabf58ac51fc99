"""Errors as HTTP has them: a status, and a body of ``application/problem+json`` with code, fact, reason and hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lockstep.errors import LockstepError, StoreError

MEDIA_TYPE = "application/problem+json"
STATUSES: Mapping[str, int] = {
    "LS0004": 404,
    "LS0410": 404,
    "LS0411": 422,
    "LS0610": 409,
    "LS0740": 409,
    "LS0741": 404,
    "LS0742": 404,
    "LS0743": 409,
    "LS0745": 422,
    "LS0746": 409,
    "LS0760": 404,
}
"""The status of each error that is not simply a bad request."""


def status_of(error: LockstepError) -> int:
    """The HTTP status of an error: 400 unless its code says more; a store that does not answer is not the caller's.

    >>> from lockstep.errors import ServiceError
    >>> status_of(ServiceError("LS0740", "busy")), status_of(StoreError("LS0401", "disk full"))
    (409, 503)
    """
    return STATUSES.get(error.code, 503 if isinstance(error, StoreError) else 400)


def problem(error: LockstepError, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """The response that says it."""
    number = status or status_of(error)
    body: dict[str, Any] = {
        "type": f"urn:lockstep:error:{error.code}",
        "code": error.code,
        "title": error.fact,
        "status": number,
        "detail": error.why,
        "hint": error.hint,
    }
    return JSONResponse(body, number, dict(headers or {}), media_type=MEDIA_TYPE)


async def on_lockstep_error(_request: Request, error: Exception) -> Response:
    """For the app: what routes raise."""
    assert isinstance(error, LockstepError)
    return problem(error)
