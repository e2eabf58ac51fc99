"""Verbs that change a job while it runs: rescale, restart, move, activate, deactivate; and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lockstep.cli.output import out, plain_table, print_json, time_text, to_stderr
from lockstep.cli.service import AsJson, JobName, ServiceUrl, asker, chosen, opened
from lockstep.cli.waiting import check_coordinated, finish
from lockstep.errors import ServiceError

if TYPE_CHECKING:
    from lockstep.serve import models
    from lockstep.serve.client import Client
    from lockstep.serve.desk import Desk

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once; the operation goes on.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, max=86_400, help="It is rolled back after this long.")
]
Key = Annotated[
    str, typer.Option("--key", metavar="TEXT", help="Asked again with the same key, it is the same operation.")
]
Number = Annotated[
    int | None, typer.Option("--operation", metavar="N", min=1, help="Which; without it, the one under way.")
]


def rescale(
    context: typer.Context,
    job: JobName = None,
    replicas: Annotated[int | None, typer.Option("--replicas", "-n", min=1, max=16, help="How many replicas.")] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=1_000, help="In how many parts each replica keeps its state.")
    ] = None,
    stage: Annotated[int | None, typer.Option(min=0, help="With --partitions: of this stage alone.")] = None,
    cores: Annotated[int | None, typer.Option(min=1, max=1_024, help="Cores of each replica, local masters.")] = None,
    no_wait: NoWait = False,
    timeout_s: Timeout = 900.0,
    key: Key = "",
    service: ServiceUrl = None,
) -> None:
    """Change the number of replicas, or their shape, while the job runs.

    A replica of the new shape joins, catches up and agrees, then an old one leaves, one at a time; output goes on.

    [bold]Examples[/bold]

      lockstep rescale --replicas 3

      lockstep rescale failed-logins --partitions 4 --cores 2

      lockstep rescale failed-logins --stage 1 --partitions 8 --no-wait
    """
    from lockstep.serve.models import OperationRequest

    with opened(context, service) as desk:
        request = OperationRequest(
            kind="rescale", replicas=replicas, partitions=partitions, stage=stage, cores=cores, timeout_s=timeout_s
        )
        _ask(desk, chosen(desk, job), request, key, wait=not no_wait)


def restart(
    context: typer.Context,
    job: JobName = None,
    no_wait: NoWait = False,
    timeout_s: Timeout = 900.0,
    key: Key = "",
    service: ServiceUrl = None,
) -> None:
    """Replace every replica by a new process, one at a time, while the job runs.

    [bold]Examples[/bold]

      lockstep restart

      lockstep restart failed-logins --no-wait
    """
    from lockstep.serve.models import OperationRequest

    with opened(context, service) as desk:
        request = OperationRequest(kind="restart", timeout_s=timeout_s)
        _ask(desk, chosen(desk, job), request, key, wait=not no_wait)


def move(
    context: typer.Context,
    replica: Annotated[str, typer.Argument(metavar="REPLICA", help="r0, r1, ...", show_default=False)],
    to: Annotated[str, typer.Option("--to", metavar="HOST", help="Where it is to live.", show_default=False)],
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Not needed if there is only one.")] = None,
    no_wait: NoWait = False,
    timeout_s: Timeout = 900.0,
    key: Key = "",
    service: ServiceUrl = None,
) -> None:
    """Move a replica to another host, to empty the one that it is on.

    [bold]Examples[/bold]

      lockstep move r1 --to host-3

      lockstep move r1 --to host-3 --job failed-logins
    """
    from lockstep.serve.models import OperationRequest

    with opened(context, service) as desk:
        request = OperationRequest(kind="move", replica=replica, host=to, timeout_s=timeout_s)
        _ask(desk, chosen(desk, job), request, key, wait=not no_wait)


def activate(context: typer.Context, job: JobName = None, service: ServiceUrl = None) -> None:
    """Seal epochs again after `lockstep deactivate`.

    [bold]Examples[/bold]

      lockstep activate failed-logins
    """
    _steer(context, job, service, "activate", "seals epochs again")


def deactivate(context: typer.Context, job: JobName = None, service: ServiceUrl = None) -> None:
    """Seal no more epochs: replicas stay as they are, input waits, nothing is published.

    [bold]Examples[/bold]

      lockstep deactivate failed-logins
    """
    _steer(context, job, service, "deactivate", "seals no more epochs; `lockstep activate` lets it go on")


def commit(context: typer.Context, job: JobName = None, number: Number = None, service: ServiceUrl = None) -> None:
    """Tell an operation that waits for a person to go on.

    [bold]Examples[/bold]

      lockstep commit failed-logins

      lockstep commit failed-logins --operation 3
    """
    _settle(context, job, number, service, "commit")


def rollback(context: typer.Context, job: JobName = None, number: Number = None, service: ServiceUrl = None) -> None:
    """Take an operation back that is under way.

    [bold]Examples[/bold]

      lockstep rollback failed-logins

      lockstep rollback failed-logins --operation 3
    """
    _settle(context, job, number, service, "rollback")


def operations(
    context: typer.Context,
    job: JobName = None,
    follow_: Annotated[
        bool, typer.Option("--follow", help="Show the steps of the one under way until it ends.")
    ] = False,
    as_json: AsJson = False,
    service: ServiceUrl = None,
) -> None:
    """List what was asked of a job, and what became of it.

    [bold]Examples[/bold]

      lockstep operations

      lockstep operations failed-logins --follow

      lockstep operations --json | jq '.[-1].steps'
    """
    with opened(context, service) as desk:
        name = chosen(desk, job)
        found = desk.operations(name)
        if as_json:
            print_json([one.model_dump() for one in found])
        elif not found:
            to_stderr(f"nothing was asked of {name}")
        else:
            out.print(_table(found))
        under_way = next((one for one in found if one.open), None)
        if follow_ and under_way is not None:
            finish(desk, name, under_way, wait=True)


def _ask(desk: Desk | Client, job: str, request: models.OperationRequest, key: str, *, wait: bool) -> None:
    if wait:
        check_coordinated(desk, job)
    finish(desk, job, desk.ask(job, request, key=key, asked_by=asker()), wait=wait)


def _steer(
    context: typer.Context, job: str | None, service: str | None, kind: Literal["activate", "deactivate"], said: str
) -> None:
    """Done at once, also if nobody coordinates the job: it holds for whoever seals."""
    from lockstep.serve.models import OperationRequest

    with opened(context, service) as desk:
        name = chosen(desk, job)
        desk.ask(name, OperationRequest(kind=kind), asked_by=asker())
        to_stderr(f"{name} {said}")


def _settle(
    context: typer.Context,
    job: str | None,
    number: int | None,
    service: str | None,
    wish: Literal["commit", "rollback"],
) -> None:
    with opened(context, service) as desk:
        name = chosen(desk, job)
        under_way = next((one.number for one in desk.operations(name) if one.open), None)
        if number is None and under_way is None:
            raise ServiceError(
                "LS0741",
                f"no operation of {name} is under way",
                why=f"only one that is can be told to {wish}.",
                hint=f"lockstep operations {name}",
            )
        told = desk.settle(name, number or under_way or 0, wish)
        to_stderr(f"operation {told.number} ({told.kind}) of {name} was told to {wish}")


def _table(found: list[models.Operation]) -> object:
    table = plain_table("no", "kind", "asked", "by", "state", "last step")
    for one in found:
        last = one.steps[-1] if one.steps else None
        said = "" if last is None else last.name + (f": {last.text}" if last.text else "")
        table.add_row(str(one.number), _kind(one), time_text(one.asked_us), one.asked_by, one.state, said)
    return table


def _kind(one: models.Operation) -> str:
    return " ".join([one.kind, *(f"{key}={value}" for key, value in one.arguments.items())])
