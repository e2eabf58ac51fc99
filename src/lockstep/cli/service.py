"""Which jobs a command is about: those of the project's own store, or those of a service elsewhere."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.project import project_of, which_job
from lockstep.errors import ServiceError

if TYPE_CHECKING:
    from lockstep.serve.client import Client
    from lockstep.serve.desk import Desk

SERVICE_VARIABLE = "LOCKSTEP_SERVICE"
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--service",
        envvar=SERVICE_VARIABLE,
        metavar="URL",
        help="Ask the service there, instead of the project's own store; its token is in LOCKSTEP_SERVICE_TOKEN.",
        show_default=False,
    ),
]
JobName = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="The job's name; not needed if there is only one.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


@contextmanager
def opened(context: typer.Context, url: str | None) -> Iterator[Desk | Client]:
    """Where to ask: a service, or the desk that a service would have here."""
    project = project_of(context)
    if url:
        from lockstep.serve.client import Client

        with Client(url) as client:
            yield client
        return
    from lockstep.serve.desk import Desk
    from lockstep.serve.service import Service

    desk = Desk(Service(project.folder))
    try:
        yield desk
    finally:
        desk.close()


def chosen(desk: Desk | Client, name: str | None) -> str:
    """The job that is meant: the only one, if none is named."""
    names = [one.job for one in desk.jobs()] if name is None else []
    if name is None and len(names) != 1:
        raise which_job(None, names) if names else _no_jobs()
    return names[0] if name is None else name


def asker() -> str:
    """Who asks, as it is noted with an operation."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _no_jobs() -> ServiceError:
    return ServiceError(
        "LS0760", "there is no job", why="none was submitted, and none has run.", hint="lockstep submit job.py"
    )
