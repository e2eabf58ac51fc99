"""What routes share: how errors stand in the OpenAPI document, and headers that several of them take."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Path, Query, Request

from lockstep.serve.models import Problem
from lockstep.serve.problems import MEDIA_TYPE
from lockstep.serve.tokens import Caller
from lockstep.store.names import NAME_CHARACTERS_MAX

KEY_CHARACTERS_MAX = 200
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong, with a code (`lockstep explain CODE`) and what to try.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
"""For every route: all errors have the same form."""

JobName = Annotated[str, Path(description="The name of a job.", max_length=NAME_CHARACTERS_MAX)]
Number = Annotated[int, Path(description="The number of an operation.", ge=1, le=2**31)]
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=KEY_CHARACTERS_MAX,
        pattern="^[!-~]*$",
        description="Sent twice with the same key, the request is carried out once.",
    ),
]
WaitS = Annotated[
    float, Query(alias="wait", ge=0, le=60, description="Answer when the operation is over, after this long at most.")
]


def caller_name(request: Request) -> str:
    """Who asks, as it is noted with an operation."""
    caller: Caller | None = getattr(request.state, "caller", None)
    return caller.name if caller is not None else ""


__all__ = ["PROBLEMS", "IdempotencyKey", "JobName", "Number", "Problem", "WaitS", "caller_name"]
