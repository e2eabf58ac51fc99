"""Changes to a running job: operations, and the spec that they lead to."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
import anyio.to_thread
from fastapi import APIRouter, Header, Request, Response

from lockstep.control.operations.verbs import Manner
from lockstep.errors import ServiceError
from lockstep.serve import models
from lockstep.serve.desk import LOOK_S, Desk
from lockstep.serve.limits import Budget
from lockstep.serve.routes.documents import PROBLEMS, IdempotencyKey, JobName, Number, WaitS, caller_name

_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "To be sent as If-Match with a change."}}


def routes(desk: Desk, waiting: Budget) -> APIRouter:
    """``/jobs/{job}/operations`` and the verbs that are short for one, and ``/jobs/{job}/spec``."""
    router = APIRouter(prefix="/jobs/{job}", tags=["operations"], responses=PROBLEMS)

    async def waited(job: str, asked: models.Operation, wait_s: float, response: Response) -> models.Operation:
        """The operation when it is over, or when its caller does not want to wait any longer: then 202."""
        with waiting.using(1):
            deadline_s = anyio.current_time() + wait_s
            while asked.open and anyio.current_time() < deadline_s:
                await anyio.sleep(LOOK_S)
                asked = await anyio.to_thread.run_sync(desk.operation, job, asked.number)
        response.status_code = 202 if asked.open else 200
        return asked

    @router.get("/operations")
    def list_operations(job: JobName) -> list[models.Operation]:
        """The newest 100 operations, oldest first."""
        return desk.operations(job)

    @router.post("/operations", status_code=202, responses={200: {"model": models.Operation}})
    async def ask_operation(
        job: JobName,
        asked: models.OperationRequest,
        request: Request,
        response: Response,
        key: IdempotencyKey = "",
        wait_s: WaitS = 0.0,
    ) -> models.Operation:
        """Ask for an operation: 202 while it is under way, 200 if it was over within `wait`. 409 beside another one."""
        name = caller_name(request)
        taken = await anyio.to_thread.run_sync(lambda: desk.ask(job, asked, key=key, asked_by=name))
        return await waited(job, taken, wait_s, response)

    @router.get("/operations/{number}", responses={202: {"model": models.Operation}})
    async def get_operation(job: JobName, number: Number, response: Response, wait_s: WaitS = 0.0) -> models.Operation:
        """One operation with its steps; with `wait`, when it is over."""
        found = await anyio.to_thread.run_sync(desk.operation, job, number)
        if wait_s:
            return await waited(job, found, wait_s, response)
        return found

    @router.post("/operations/{number}/commit")
    def commit_operation(job: JobName, number: Number) -> models.Operation:
        """Say of an operation under way that it is to go on."""
        return desk.settle(job, number, "commit")

    @router.post("/operations/{number}/rollback")
    def roll_back_operation(job: JobName, number: Number) -> models.Operation:
        """Say of an operation under way that it is to go back."""
        return desk.settle(job, number, "rollback")

    _verb(router, desk, "activate")
    _verb(router, desk, "deactivate")
    _verb(router, desk, "restart")
    _spec(router, desk)
    return router


def _verb(router: APIRouter, desk: Desk, kind: Literal["activate", "deactivate", "restart"]) -> None:
    @router.post(f"/{kind}", status_code=202, name=f"{kind}_job", description=_VERBS[kind])
    def verb(job: JobName, request: Request, key: IdempotencyKey = "") -> models.Operation:
        return desk.ask(job, models.OperationRequest(kind=kind), key=key, asked_by=caller_name(request))


_VERBS = {
    "activate": "Seal epochs again after `deactivate`.",
    "deactivate": "Seal no more epochs: replicas stay as they are, input waits.",
    "restart": "Replace every replica by a new process, one at a time.",
}


def _spec(router: APIRouter, desk: Desk) -> None:
    @router.get("/spec", responses={200: {"model": models.Spec, "headers": _ETAG}})
    def get_spec(job: JobName, response: Response) -> models.Spec:
        """What is to run, with an ETag for changes."""
        response.headers["ETag"] = desk.etag(job)
        return desk.spec(job)

    @router.put("/spec", status_code=202)
    def change_spec(
        job: JobName,
        change: models.SpecChange,
        request: Request,
        if_match: Annotated[str | None, Header(alias="If-Match", max_length=200)] = None,
        key: IdempotencyKey = "",
    ) -> models.Operation:
        """Change what is to run; it becomes an operation. 412 if somebody else was quicker, 428 without If-Match."""
        if if_match is None:
            raise ServiceError(
                "LS0765",
                "a change of the spec needs If-Match",
                why="two people who change it at the same time would undo each other's change.",
                hint="send the ETag of GET .../spec as If-Match.",
            )
        return desk.change_spec(job, change, if_match, Manner(caller_name(request), key))
