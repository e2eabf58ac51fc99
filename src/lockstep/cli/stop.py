"""`lockstep stop`: end a job gracefully, wherever it is coordinated from."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from lockstep.cli.output import to_stderr
from lockstep.cli.service import JobName, ServiceUrl, chosen, opened
from lockstep.errors import RunError

_LOOK_S = 0.2


def stop(
    context: typer.Context,
    job: JobName = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait until it has stopped.")
    ] = 60.0,
    savepoint: Annotated[
        str, typer.Option("--savepoint", metavar="NAME", help="Keep its state under this name, once it has stopped.")
    ] = "",
    service: ServiceUrl = None,
) -> None:
    """Stop a job after the epoch under way, from anywhere that reaches it; `lockstep run` starts it again.

    [bold]Examples[/bold]

      lockstep stop

      lockstep --project /srv/fraud stop fraud-alerts --timeout 120

      lockstep stop fraud-alerts --savepoint before-the-move
    """
    with opened(context, service) as desk:
        name = chosen(desk, job)
        if savepoint:
            desk.check_savepoint(name, savepoint)
        desk.stop(name)
        deadline_s = time.monotonic() + timeout_s
        while (holder := (seen := desk.describe(name)).coordinator) is not None:
            if time.monotonic() > deadline_s:
                raise RunError(
                    "LS0688",
                    f'job "{name}" has not stopped yet',
                    why=f"{holder} still coordinates it after {timeout_s:.0f} s; it was told to stop.",
                    hint=f"see `lockstep status {name}`; wait longer with --timeout, or end that process.",
                )
            time.sleep(_LOOK_S)
        to_stderr(f"{name} has stopped" + (f" after epoch {seen.head_epoch}" if seen.head_epoch >= 0 else ""))
        if savepoint:
            kept = desk.take_savepoint(name, savepoint)
            to_stderr(f"savepoint {name}/{kept.name}: its state after epoch {kept.epoch}")
