"""Records over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Path, Request

from lockstep.serve import models
from lockstep.serve.desk import Desk
from lockstep.serve.routes.documents import PROBLEMS, IdempotencyKey
from lockstep.store.names import NAME_CHARACTERS_MAX

_LINES: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One JSON object per line.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


def routes(desk: Desk) -> APIRouter:
    """``/ingest/{journal}``."""
    router = APIRouter(tags=["data"], responses=PROBLEMS)

    @router.post("/ingest/{journal}", openapi_extra=_LINES)
    async def ingest(
        journal: Annotated[str, Path(max_length=NAME_CHARACTERS_MAX)], request: Request, key: IdempotencyKey = ""
    ) -> models.Ingested:
        """Append JSON lines to a journal: all of them or none; on disk when this answers.

        A line that is no record is named (LS0403), and nothing of the request is kept. 429 with Retry-After while too
        many records wait to be read. With a key, the same request again appends nothing; a key that has other records
        is refused (LS0428). A journal remembers its newest 1,000,000 keys.
        """
        body = await request.body()
        return await anyio.to_thread.run_sync(desk.ingest, journal, body, key)

    return router
