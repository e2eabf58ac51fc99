"""What a job says: its events and its logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from lockstep.cli.output import out, print_json_line, time_text, to_stderr
from lockstep.cli.service import JobName, ServiceUrl, chosen, opened
from lockstep.control.status.event_words import event_style, event_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstep.serve import models
    from lockstep.serve.client import Client
    from lockstep.serve.desk import Desk

_LOOK_S = 0.5
_PAGE = 1_000


def events(
    context: typer.Context,
    job: JobName = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what happens from now on.")] = False,
    last: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="How many of the newest.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    service: ServiceUrl = None,
) -> None:
    """Show what happened to a job: replicas that started, died, were seeded; operations; divergences.

    [bold]Examples[/bold]

      lockstep events

      lockstep events failed-logins --follow

      lockstep events --last 1000 --json | jq 'select(.kind == "replica-ended")'
    """
    with opened(context, service) as desk:
        name = chosen(desk, job)
        found = list(_all(desk, name))
        for event in found[-last:]:
            _print(event, as_json=as_json)
        if not follow:
            return
        try:
            for event in _coming(desk, name, found[-1].id if found else 0):
                _print(event, as_json=as_json)
        except KeyboardInterrupt:
            raise typer.Exit from None


def logs(
    context: typer.Context,
    job: JobName = None,
    replica: Annotated[
        str, typer.Option("--replica", metavar="NAME", help="r0, r1, ..., or coordinator.")
    ] = "coordinator",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="How many of the last lines.")] = 100,
    service: ServiceUrl = None,
) -> None:
    """Show the end of the log of a replica, or of the job's coordinator.

    [bold]Examples[/bold]

      lockstep logs failed-logins --replica r0

      lockstep logs --lines 1000 | grep -i error
    """
    with opened(context, service) as desk:
        found = desk.log(chosen(desk, job), replica, lines)
    for line in found.lines:
        out.print(Text(line), soft_wrap=True)
    if not found.lines:
        to_stderr(f"{found.name} has written nothing here")


def _all(desk: Desk | Client, job: str) -> Iterator[models.Event]:
    after = 0
    while page := desk.events(job, after, _PAGE).events:
        yield from page
        after = page[-1].id


def _coming(desk: Desk | Client, job: str, after: int) -> Iterator[models.Event]:
    from lockstep.serve.desk import Desk

    if not isinstance(desk, Desk):
        yield from desk.follow(job, after)
        return
    while True:
        for event in desk.events(job, after, _PAGE).events:
            after = event.id
            yield event
        time.sleep(_LOOK_S)


def _print(event: models.Event, *, as_json: bool) -> None:
    if as_json:
        print_json_line(event.model_dump())
        return
    plain = (event.id, event.at_us, event.kind, event.replica, event.text)
    out.print(Text(f"{time_text(event.at_us)}  {event_text(plain)}", style=event_style(plain)), soft_wrap=True)
