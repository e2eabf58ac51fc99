"""The command itself: its subcommands, its global options, and how it ends when something goes wrong."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli import (
    agent,
    bench,
    chaos,
    check,
    compact,
    dead_letters,
    demo,
    doctor,
    explain,
    ingest,
    jobs,
    ledger,
    looking,
    new,
    operating,
    plan,
    put,
    query,
    run,
    savepoints,
    serve,
    service_token,
    services,
    sim,
    status,
    stop,
    tail,
    token,
)
from lockstep.cli.output import show_error, to_stderr
from lockstep.cli.project import Project
from lockstep.credentials import without_secrets
from lockstep.errors import FunctionError, LockstepError, RunError

EXIT_RUN = 1
"""Something went wrong while a job ran, or the answer is no (`status`: not healthy; `doctor`: something is missing)."""
EXIT_USER = 2
"""The command or the job has to be changed first; the message says how."""

_EPILOG = (
    "Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 the run failed or the answer is no, "
    "2 the command or the job needs a change. `lockstep explain CODE` says more about any error."
)

app = typer.Typer(
    name="lockstep",
    help="Stream processing on Apache Spark that does not blink when a machine dies.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"lockstep {version('lockstep')}\n")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    project: Annotated[
        Path, typer.Option("--project", metavar="DIR", help="The project folder: it holds .lockstep and lockstep.toml.")
    ] = Path(),
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Options that every subcommand understands, given before it."""
    context.obj = Project(project.expanduser().resolve())
    if project != Path():
        from lockstep.connect.tables import look_in

        look_in(context.obj.folder)


_RUN, _CHANGE, _LOOK = "Run a job", "Change a running job", "Look at a job"
_DATA, _HELP = "Data in and out", "Help"

app.command("new", rich_help_panel=_RUN)(new.new)
app.command("run", rich_help_panel=_RUN)(run.run)
app.command("stop", rich_help_panel=_RUN)(stop.stop)
app.command("serve", rich_help_panel=_RUN)(serve.serve)
app.command("submit", rich_help_panel=_RUN)(jobs.submit)
app.command("start", rich_help_panel=_RUN)(jobs.start)
app.command("kill", rich_help_panel=_RUN)(jobs.kill)
app.command("delete", rich_help_panel=_RUN)(jobs.delete)
app.command("agent", rich_help_panel=_RUN)(agent.agent)
app.command("savepoint", rich_help_panel=_RUN)(savepoints.savepoint)
app.command("savepoints", rich_help_panel=_LOOK)(savepoints.savepoints)
app.command("plan", rich_help_panel=_RUN)(plan.plan)
app.command("check", rich_help_panel=_RUN)(check.check)
app.command("token", rich_help_panel=_RUN)(token.token)
app.add_typer(service_token.app, name="service-token", rich_help_panel=_RUN)
app.command("rescale", rich_help_panel=_CHANGE)(operating.rescale)
app.command("restart", rich_help_panel=_CHANGE)(operating.restart)
app.command("move", rich_help_panel=_CHANGE)(operating.move)
app.command("deactivate", rich_help_panel=_CHANGE)(operating.deactivate)
app.command("activate", rich_help_panel=_CHANGE)(operating.activate)
app.command("commit", rich_help_panel=_CHANGE)(operating.commit)
app.command("rollback", rich_help_panel=_CHANGE)(operating.rollback)
app.command("operations", rich_help_panel=_CHANGE)(operating.operations)
app.command("list", rich_help_panel=_LOOK)(jobs.list_)
app.command("status", rich_help_panel=_LOOK)(status.status)
app.command("describe", rich_help_panel=_LOOK)(jobs.describe)
app.command("events", rich_help_panel=_LOOK)(looking.events)
app.command("logs", rich_help_panel=_LOOK)(looking.logs)
app.command("query", rich_help_panel=_LOOK)(query.query)
app.command("ledger", rich_help_panel=_LOOK)(ledger.ledger)
app.command("dead-letters", rich_help_panel=_LOOK)(dead_letters.dead_letters)
app.command("put", rich_help_panel=_DATA)(put.put)
app.add_typer(ingest.app, name="ingest", rich_help_panel=_DATA)
app.command("tail", rich_help_panel=_DATA)(tail.tail)
app.command("compact", rich_help_panel=_DATA)(compact.compact)
app.command("demo", rich_help_panel=_HELP)(demo.demo)
app.add_typer(bench.app, name="bench", rich_help_panel=_HELP)
app.add_typer(chaos.app, name="chaos", rich_help_panel=_HELP)
app.command("sim", rich_help_panel=_HELP)(sim.sim)
app.add_typer(services.app, name="services", rich_help_panel=_HELP)
app.command("doctor", rich_help_panel=_HELP)(doctor.doctor)
app.command("explain", rich_help_panel=_HELP)(explain.explain)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="lockstep")
    except LockstepError as error:
        if os.environ.get("LOCKSTEP_DEBUG"):
            traceback.print_exc()
        show_error(error)
        sys.exit(EXIT_RUN if isinstance(error, RunError | FunctionError) else EXIT_USER)
    except Exception as error:
        _show_crash(error)
        sys.exit(EXIT_RUN)


def _show_crash(error: Exception) -> None:
    """An exception nobody expected: one line for the person, the traceback in a file for whoever mends it."""
    said = without_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
    if os.environ.get("LOCKSTEP_DEBUG"):
        traceback.print_exc()
        to_stderr(f"lockstep failed unexpectedly: {said}")
        return
    try:
        with tempfile.NamedTemporaryFile("w", prefix="lockstep-crash-", suffix=".txt", delete=False) as file:
            file.write(without_secrets("".join(traceback.format_exception(error))))
        where = f"the traceback is in {file.name} (LOCKSTEP_DEBUG=1 shows it)"
    except OSError:
        where = "LOCKSTEP_DEBUG=1 shows the traceback"
    to_stderr(f"lockstep failed unexpectedly: {said}; {where}")
