"""Jobs: submit, list, describe, stop, start and delete them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request

from lockstep.control.operations.rolling import KEEP_S
from lockstep.control.operations.verbs import TIMEOUT_S
from lockstep.errors import ServiceError
from lockstep.serve import models
from lockstep.serve.desk import Desk
from lockstep.serve.routes.documents import PROBLEMS, IdempotencyKey, JobName, caller_name
from lockstep.serve.submission import Submission

DIGEST_HEADER = "Lockstep-Digest"
SETTINGS_MAX = 200
"""Settings in one submission."""


def routes(desk: Desk) -> APIRouter:
    """``/jobs``."""
    router = APIRouter(prefix="/jobs", tags=["jobs"], responses=PROBLEMS)

    @router.get("")
    def list_jobs() -> list[models.JobSummary]:
        """All jobs, by name."""
        return desk.jobs()

    _submitting(router, desk)

    @router.get("/{job}")
    def describe_job(job: JobName) -> models.JobDescription:
        """All about a job."""
        return desk.describe(job)

    @router.delete("/{job}", status_code=204)
    def delete_job(
        job: JobName,
        force: Annotated[bool, Query(description="Also if a host that has state of it does not answer.")] = False,
    ) -> None:
        """Forget a job that has stopped, with its state on all hosts. What it has published stays. 409 if it runs."""
        desk.delete(job, force=force)

    @router.post("/{job}/stop", status_code=202)
    def stop_job(job: JobName) -> models.Asked:
        """End a job after the epochs under way. It is over when `coordinator` is null."""
        return desk.stop(job)

    @router.post("/{job}/kill", status_code=202)
    def kill_job(job: JobName) -> models.Asked:
        """End a job at once. Nothing is lost: epochs under way are computed again by the next start."""
        return desk.kill(job)

    @router.post("/{job}/start", status_code=202)
    def start_job(job: JobName) -> models.Asked:
        """Let a job that was stopped go on where it was. 409 if it runs."""
        return desk.start(job)

    return router


def _submitting(router: APIRouter, desk: Desk) -> None:
    @router.post("", status_code=201, openapi_extra=_ZIP)
    async def submit_job(
        request: Request,
        file: Annotated[str, Query(max_length=200, description="The job's file in the bundle.", examples=["job.py"])],
        digest: Annotated[
            str, Header(alias=DIGEST_HEADER, pattern="^[0-9a-fA-F]{64}$", description="The sha256 of the bundle.")
        ],
        variable: Annotated[str, Query(max_length=200, description="Its variable, if the file has several jobs.")] = "",
        replicas: Annotated[int | None, Query(ge=1, le=16)] = None,
        master: Annotated[str, Query(max_length=200, description="Where Spark runs, e.g. local[2].")] = "",
        savepoint: Annotated[
            str, Query(alias="from", max_length=200, description="A savepoint, JOB/NAME, that a new job goes on from.")
        ] = "",
        settings: Annotated[
            list[str] | None,
            Query(alias="set", max_length=SETTINGS_MAX, description="Settings of the run, KEY=VALUE."),
        ] = None,
        conf: Annotated[
            list[str] | None,
            Query(alias="spark-conf", max_length=SETTINGS_MAX, description="Settings of Spark, KEY=VALUE."),
        ] = None,
    ) -> models.Submitted:
        """Send a job's code as a zip file, and have it run. Its modules come along; nothing of them runs in here."""
        run = {**_assigned(settings), **({} if replicas is None else {"replicas": replicas})}
        spark: dict[str, Any] = {"conf": {key: str(value) for key, value in _assigned(conf, plain=False).items()}}
        if master:
            spark["master"] = master
        sent = Submission(await request.body(), digest, file, variable, run, spark, savepoint)
        return await anyio.to_thread.run_sync(desk.take, sent)

    @router.post("/{job}/upgrade", status_code=202, openapi_extra=_ZIP)
    async def upgrade_job(
        job: JobName,
        request: Request,
        file: Annotated[str, Query(max_length=200, description="The job's file in the bundle.", examples=["job.py"])],
        digest: Annotated[
            str, Header(alias=DIGEST_HEADER, pattern="^[0-9a-fA-F]{64}$", description="The sha256 of the bundle.")
        ],
        variable: Annotated[str, Query(max_length=200, description="Its variable, if the file has several jobs.")] = "",
        same_results: Annotated[bool, Query(description="Results stay: any difference rolls it back.")] = False,
        keep_s: Annotated[float, Query(ge=0, le=86_400, description="How long the old results stay.")] = KEEP_S,
        timeout_s: Annotated[float, Query(gt=0, le=86_400)] = TIMEOUT_S,
        key: IdempotencyKey = "",
    ) -> models.Operation:
        """Have a running job go on with other code: it computes in the shadow until its results are let out."""
        sent = Submission(await request.body(), digest, file, variable)
        wanted = models.UpgradeRequest(same_results=same_results, keep_s=keep_s, timeout_s=timeout_s)
        name = caller_name(request)
        return await anyio.to_thread.run_sync(lambda: desk.take_upgrade(job, sent, wanted, key=key, asked_by=name))

    @router.post("/{job}/environments/{name}", status_code=202)
    def change_environment(
        job: JobName, name: JobName, wanted: models.EnvironmentRequest, request: Request, key: IdempotencyKey = ""
    ) -> models.Operation:
        """Have a running job go on in an environment of the service's lockstep.toml, with the same results."""
        return desk.change_environment(job, name, wanted, key=key, asked_by=caller_name(request))

    @router.get("/{job}/difference")
    def get_difference(job: JobName) -> models.Difference:
        """How the new results of an upgrade differ from those that were published."""
        return desk.difference(job)


def _assigned(given: list[str] | None, *, plain: bool = True) -> dict[str, Any]:
    """KEY=VALUE texts as settings; values are JSON, or plain text.

    >>> _assigned(["epoch_interval_s=0.5", "until_done=true", "idle=200 ms"])
    {'epoch_interval_s': 0.5, 'until_done': True, 'idle': '200 ms'}
    """
    found: dict[str, Any] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ServiceError("LS0761", f"{text[:100]!r} is no setting", why="it has to be KEY=VALUE.")
        found[key.strip()] = _value(value.strip()) if plain else value.strip()
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_ZIP: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The job's file and its modules, paths relative to the job's folder.",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}
