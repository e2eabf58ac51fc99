"""`lockstep upgrade` and `lockstep diff`: other code or another environment for a running job, and what it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.operating import Key, NoWait, Timeout
from lockstep.cli.output import out, print_json, to_stderr
from lockstep.cli.service import AsJson, JobName, ServiceUrl, asker, chosen, opened
from lockstep.cli.waiting import check_coordinated, finish
from lockstep.errors import ServiceError

if TYPE_CHECKING:
    from lockstep.serve.client import Client
    from lockstep.serve.desk import Desk
    from lockstep.serve.models import Operation

KEEP_S = 60.0


def upgrade(
    context: typer.Context,
    new_job: Annotated[
        str | None,
        typer.Argument(metavar="[NEW_JOB]", help="The file with the new code: job.py, or job.py:variable."),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Not needed if there is only one.")] = None,
    same_results: Annotated[
        bool, typer.Option("--same-results", help="Results stay as they are: any difference rolls it back.")
    ] = False,
    keep_s: Annotated[
        float, typer.Option("--keep", metavar="SECONDS", min=0, help="How long the old results stay, to go back.")
    ] = KEEP_S,
    environment: Annotated[
        str,
        typer.Option(
            "--environment",
            metavar="NAME|PYTHON",
            help="Another environment: its name in lockstep.toml, or the path of its python.",
        ),
    ] = "",
    java: Annotated[str, typer.Option("--java", metavar="HOME", help="Another Java: the path of its home.")] = "",
    no_wait: NoWait = False,
    timeout_s: Timeout = 900.0,
    key: Key = "",
    service: ServiceUrl = None,
) -> None:
    """Give a running job new code, or another environment, without a pause.

    New code computes in the shadow first, from the state of the old. If its results are those that are published it
    takes over by itself; if not, `lockstep diff` shows what differs, and `lockstep commit` or `lockstep rollback`
    decides. One sealed epoch switches, another one switches back.

    [bold]Examples[/bold]

      lockstep upgrade job.py

      lockstep upgrade job.py --same-results

      lockstep upgrade --environment next

      lockstep upgrade --environment /srv/next/bin/python
    """
    from lockstep.serve.models import UpgradeRequest

    if (new_job is None) == (not environment and not java):
        raise ServiceError(
            "LS0748",
            "an upgrade is to new code, or to another environment",
            why="both at once could not be told apart if results differ." if new_job else "neither was named.",
            hint="lockstep upgrade job.py, or lockstep upgrade --environment /srv/next/bin/python.",
        )
    request = UpgradeRequest(same_results=same_results, keep_s=keep_s, timeout_s=timeout_s)
    with opened(context, service) as desk:
        name = chosen(desk, job)
        check_coordinated(desk, name)
        if new_job is None:
            asked = _to_environment(desk, name, environment, java, timeout_s=timeout_s, key=key)
        else:
            asked = desk.upgrade(name, new_job, request, key=key, asked_by=asker())
        finish(desk, name, asked, wait=not no_wait)


def _to_environment(
    desk: Desk | Client, job: str, environment: str, java: str, *, timeout_s: float, key: str
) -> Operation:
    """An environment of lockstep.toml by its name; one by its paths only from its own host."""
    from lockstep.serve.desk import Desk
    from lockstep.serve.models import EnvironmentRequest

    request = EnvironmentRequest(timeout_s=timeout_s)
    if environment and "/" not in environment:
        if java:
            raise ServiceError(
                "LS0748",
                "an environment by its name has its own Java",
                why=f"--environment {environment} is a name in lockstep.toml, and --java a path beside it.",
                hint=f"add java to [environments.{environment}], or name its python by its path.",
            )
        return desk.change_environment(job, environment, request, key=key, asked_by=asker())
    if not isinstance(desk, Desk):
        raise ServiceError(
            "LS0748",
            "a service is told the name of an environment, not its paths",
            why="paths that somebody sends would be started as programs.",
            hint="add a table [environments.next] to the service's lockstep.toml, then --environment next.",
        )
    return desk.change_environment_to(job, environment, java, request, key=key, asked_by=asker())


def diff(context: typer.Context, job: JobName = None, as_json: AsJson = False, service: ServiceUrl = None) -> None:
    """Show how the results of an upgrade in the shadow differ from those that are published.

    [bold]Examples[/bold]

      lockstep diff failed-logins

      lockstep diff --json | jq .differing
    """
    with opened(context, service) as desk:
        name = chosen(desk, job)
        found = desk.difference(name)
        if as_json:
            print_json(found.model_dump())
            return
        if not found.epochs:
            to_stderr(f"no upgrade of {name} has been compared yet")
            return
        span = f"epochs {found.first_epoch} to {found.last_epoch}"
        out.print(f"operation {found.operation}: {found.differing} of {found.epochs} epochs differ ({span})")
        for one in found.samples:
            out.print(f'epoch {one.epoch}, sink "{one.sink}":', markup=False)
            out.print(one.text, markup=False)
