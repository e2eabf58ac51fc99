"""Errors as HTTP has them: a status, and a body of ``application/problem+json`` with code, fact, reason and hint."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lockstep.credentials import without_secrets
from lockstep.errors import LockstepError, ServiceError, StoreError

MEDIA_TYPE = "application/problem+json"
STATUSES: Mapping[str, int] = {
    "LS0004": 404,
    "LS0403": 422,
    "LS0410": 404,
    "LS0411": 422,
    "LS0428": 422,
    "LS0610": 409,
    "LS0720": 409,
    "LS0721": 409,
    "LS0722": 404,
    "LS0724": 507,
    "LS0725": 409,
    "LS0731": 404,
    "LS0733": 422,
    "LS0734": 404,
    "LS0740": 409,
    "LS0741": 404,
    "LS0742": 404,
    "LS0743": 409,
    "LS0745": 422,
    "LS0746": 409,
    "LS0760": 404,
    "LS0761": 422,
    "LS0763": 409,
    "LS0764": 412,
    "LS0765": 428,
    "LS0766": 413,
    "LS0767": 429,
    "LS0768": 401,
    "LS0769": 403,
    "LS0770": 403,
    "LS0773": 422,
    "LS0774": 422,
}
"""The status of each error that is not simply a bad request."""


def status_of(error: LockstepError) -> int:
    """The HTTP status of an error: 400 unless its code says more; a store that does not answer is not the caller's.

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
    # Whoever has to wait is told for how long.
    waiting = {"Retry-After": "1"} if number == 429 else {}
    return JSONResponse(body, number, {**waiting, **(headers or {})}, media_type=MEDIA_TYPE)


async def on_lockstep_error(_request: Request, error: Exception) -> Response:
    """For the app: what routes raise."""
    assert isinstance(error, LockstepError)
    return problem(error)


async def on_invalid_request(_request: Request, error: Exception) -> Response:
    """For the app: parameters or bodies that do not fit."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:10]]
    return problem(
        ServiceError("LS0761", "the request does not fit", why="; ".join(lines), hint="/openapi.json has the forms.")
    )


async def on_http_error(_request: Request, error: Exception) -> Response:
    """For the app: addresses and methods that there are not."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, LockstepError):
        return problem(error.__cause__)  # it happened while the body was read
    said = ServiceError("LS0778", str(error.detail), hint="/openapi.json lists what there is.")
    return problem(said, error.status_code, error.headers)


async def on_crash(_request: Request, error: Exception) -> Response:
    """For the app: what nobody expected. Whoever asked is told that much, whoever runs the service the rest."""
    sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))
    said = ServiceError(
        "LS0779", "the service failed unexpectedly", hint="the traceback is where `lockstep serve` writes its errors."
    )
    return problem(said, 500)
