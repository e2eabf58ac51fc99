"""Waiting for an operation at the command line: its steps as they happen, and an end in any case."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from lockstep.cli.output import time_text, to_stderr
from lockstep.errors import ServiceError

if TYPE_CHECKING:
    from lockstep.serve import models
    from lockstep.serve.client import Client
    from lockstep.serve.desk import Desk

LOOK_S = 0.3
COORDINATOR_LOOK_S = 2.0
ALONE_MAX_S = 15.0
"""How long nobody may coordinate the job: the time that another coordinator needs to take over."""
EXIT_NOT_DONE = 1
EXIT_INTERRUPTED = 130


def finish(desk: Desk | Client, job: str, asked: models.Operation, *, wait: bool) -> None:
    """Show an operation until it is over, and end the command: exit code 0 if it was done, 1 if it was not."""
    what = f"operation {asked.number} ({asked.kind}) of {job}"
    if not wait and asked.open:
        to_stderr(f"{what} was asked for; `lockstep operations {job} --follow` shows it")
        return
    try:
        last = follow(desk, job, asked)
    except KeyboardInterrupt:
        to_stderr(
            f"{what} goes on without this command: `lockstep operations {job} --follow` shows it, "
            f"`lockstep rollback {job} --operation {asked.number}` takes it back"
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    to_stderr(f"{what} is {last.state}" + (f": {last.error}" if last.error else ""))
    if last.state != "done":
        raise typer.Exit(EXIT_NOT_DONE)


def follow(desk: Desk | Client, job: str, operation: models.Operation) -> models.Operation:
    """Show the steps of an operation until it is over. LS0776 if nobody is there to carry it out."""
    shown, seen_s, next_s = 0, time.monotonic(), 0.0
    while True:
        # Of very many steps the oldest are forgotten: then the newest are shown again rather than none.
        for step in operation.steps[min(shown, len(operation.steps) - 1) if shown > len(operation.steps) else shown :]:
            to_stderr(f"{time_text(step.at_us)}  {step.name}" + (f": {step.text}" if step.text else ""))
        shown = len(operation.steps)
        if not operation.open:
            return operation
        now_s = time.monotonic()
        if now_s >= next_s:
            next_s = now_s + COORDINATOR_LOOK_S
            seen_s = now_s if desk.describe(job).coordinator is not None else seen_s
        if now_s - seen_s > ALONE_MAX_S:
            raise alone(job, f"operation {operation.number} stays in its store for whoever coordinates next.")
        time.sleep(LOOK_S)
        operation = desk.operation(job, operation.number)


def check_coordinated(desk: Desk | Client, job: str) -> None:
    """Refuse at once what nobody would carry out. LS0776."""
    if desk.describe(job).coordinator is None:
        raise alone(job, "nothing was asked for.")


def alone(job: str, rest: str) -> ServiceError:
    """Nobody coordinates the job."""
    return ServiceError(
        "LS0776",
        f'nobody coordinates job "{job}"',
        why=f"operations are carried out by whoever does; {rest}",
        hint=f"start it with `lockstep run`, or with `lockstep start {job}` where `lockstep serve` runs.",
    )
