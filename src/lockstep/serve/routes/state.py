"""The state of a job: kept under names, and asked for by key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from lockstep.serve import models
from lockstep.serve.desk import Desk
from lockstep.serve.routes.documents import PROBLEMS, JobName
from lockstep.store.names import NAME_CHARACTERS_MAX

Name = Annotated[str, Path(description="The name of a savepoint.", max_length=NAME_CHARACTERS_MAX)]
Step = Annotated[str, Path(description="The id of a step that keeps state.", max_length=200)]
KeyPart = Annotated[str | None, Query(max_length=1_000)]


def routes(desk: Desk) -> APIRouter:
    """``/jobs/{job}/savepoints`` and ``/jobs/{job}/state``."""
    router = APIRouter(prefix="/jobs/{job}", tags=["state"], responses=PROBLEMS)

    @router.get("/savepoints")
    def list_savepoints(job: JobName) -> list[models.Savepoint]:
        """The savepoints of a job on this host, oldest first."""
        return desk.savepoints(job)

    @router.post("/savepoints", status_code=201)
    def take_savepoint(job: JobName, asked: models.SavepointRequest) -> models.Savepoint:
        """Keep the state of a job under a name, while it runs or when it has stopped."""
        return desk.take_savepoint(job, asked.name, pinned=asked.pinned)

    @router.delete("/savepoints/{name}", status_code=204)
    def delete_savepoint(job: JobName, name: Name) -> None:
        """Forget a savepoint."""
        desk.delete_savepoint(job, name)

    @router.get("/state")
    def list_state_steps(job: JobName) -> dict[str, str]:
        """The steps that keep state, and why one of them cannot be asked for it (empty if it can)."""
        return desk.state_steps(job)

    @router.get("/state/{step}")
    def get_state(
        job: JobName,
        step: Step,
        key: Annotated[list[str] | None, Query(max_length=20, description="One key: its parts in order.")] = None,
        first: KeyPart = None,
        last: KeyPart = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        savepoint: Annotated[str | None, Query(max_length=NAME_CHARACTERS_MAX)] = None,
    ) -> models.StateRows:
        """What a step keeps after a published epoch: for a key, for keys from `first` to before `last`, or for all.

        Read from a replica's files: no epoch waits for it.
        """
        return desk.state(job, step, key=key, first=first, last=last, limit=limit, savepoint=savepoint)

    return router
