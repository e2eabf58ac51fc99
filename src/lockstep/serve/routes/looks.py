"""Looking at a job: replicas, stages, plan, epochs, events and logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from lockstep.serve import models
from lockstep.serve.desk import COORDINATOR, Desk
from lockstep.serve.limits import Budget
from lockstep.serve.routes.documents import PROBLEMS, JobName

EVENTS_LOOK_S = 0.5
"""How often the store is asked for new events while somebody follows."""
KEEP_ALIVE_S = 15.0
"""A comment is sent this often, so that nobody on the way takes the stream for dead."""
_EVENTS_MAX = 1_000
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "model": models.Events,
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "Events as JSON; as a stream, each with its id, for `Accept: text/event-stream`.",
    }
}

Limit = Annotated[int, Query(ge=1, le=_EVENTS_MAX)]


def routes(desk: Desk, streams: Budget) -> APIRouter:
    """What can be seen of one job."""
    router = APIRouter(prefix="/jobs/{job}", tags=["looks"], responses=PROBLEMS)

    @router.get("/replicas")
    def list_replicas(job: JobName) -> list[models.Replica]:
        """The replicas of a job, and how far each is."""
        return desk.replicas(job)

    @router.get("/stages")
    def list_stages(job: JobName) -> list[models.Stage]:
        """What runs as one Spark query each."""
        return desk.stages(job)

    @router.get("/plan")
    def get_plan(job: JobName) -> models.Plan:
        """The graph of steps (logical), and where it is computed (physical)."""
        return desk.plan(job)

    @router.get("/epochs")
    def list_epochs(
        job: JobName, before: Annotated[int | None, Query(ge=0, le=2**53)] = None, limit: Limit = 50
    ) -> models.Epochs:
        """The newest epochs, newest first; older ones with `before`."""
        return desk.epochs(job, before, limit)

    @router.get("/logs")
    def get_log(
        job: JobName,
        replica: Annotated[str, Query(max_length=20, description="r0, r1, ..., or coordinator.")] = COORDINATOR,
        lines: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> models.Log:
        """The end of the log of a replica on this host, or of the coordinator."""
        return desk.log(job, replica, lines)

    _events(router, desk, streams)
    return router


def _events(router: APIRouter, desk: Desk, streams: Budget) -> None:
    @router.get("/events", responses=_STREAM)
    async def list_events(
        job: JobName,
        request: Request,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Limit = 100,
        last_id: Annotated[
            str, Header(alias="Last-Event-ID", max_length=20, description="A stream goes on after this one.")
        ] = "",
    ) -> Any:
        """What happened to a job, oldest first. With `Accept: text/event-stream`, also what happens from now on."""
        if "text/event-stream" not in request.headers.get("accept", ""):
            return await anyio.to_thread.run_sync(desk.events, job, after, limit)
        begin = int(last_id) if last_id.isdecimal() else after
        await anyio.to_thread.run_sync(desk.service.store, job)  # 404 before the stream begins
        return _stream(followed(desk, job, begin), streams)


async def followed(desk: Desk, job: str, after: int) -> AsyncIterator[str]:
    """Events as a stream of server-sent ones, those too that are to come."""
    silent_s = 0.0
    yield "retry: 2000\n\n"
    while True:
        found = await anyio.to_thread.run_sync(desk.events, job, after, _EVENTS_MAX)
        after = found.after
        for event in found.events:
            yield f"id: {event.id}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
        silent_s = 0.0 if found.events else silent_s + EVENTS_LOOK_S
        if silent_s >= KEEP_ALIVE_S:
            silent_s = 0.0
            yield ": still here\n\n"
        await anyio.sleep(EVENTS_LOOK_S)


def _stream(events: AsyncIterator[str], streams: Budget) -> Response:
    """The response, for as long as there is room for one more."""
    room = streams.using(1)
    room.__enter__()

    async def bounded() -> AsyncIterator[str]:
        try:
            async for event in events:
                yield event
        finally:
            room.__exit__(None, None, None)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(bounded(), media_type="text/event-stream", headers=headers)
