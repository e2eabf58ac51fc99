"""`lockstep query`: what a step keeps for a key, while the job runs."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.output import print_json, to_stderr
from lockstep.cli.project import project_of
from lockstep.cli.rows import RowPrinter, json_row


def query(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job.", show_default=False)],
    step: Annotated[str, typer.Argument(metavar="STEP", help="A step with state, by its id.", show_default=False)],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="K", help="The key; once for each part of it.", show_default=False),
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="A", help="Keys from this one on.", show_default=False)
    ] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="B", help="Keys before this.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Rows at most.")] = 100,
    savepoint: Annotated[
        str | None,
        typer.Option("--savepoint", metavar="NAME", help="The state of a savepoint instead.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Show what a step keeps for a key, a range of keys, or all of them, as of a published epoch.

    It is read from a replica's files on this host, running or not: the job does not notice.

    [bold]Examples[/bold]

      lockstep query failed-logins agg --key ann

      lockstep query orders totals --from 1000 --to 2000 --limit 20 --json

      lockstep query orders totals --savepoint before-upgrade
    """
    from lockstep.control.state import state_query
    from lockstep.control.state.savepoints import Place

    project = project_of(context)
    place = Place.of(project.folder, project.job(job))
    found = state_query.query(place, step, key=key, first=first, last=last, limit=limit, savepoint=savepoint)
    if as_json:
        rows = [json_row(row) for row in found.rows]
        answer = {"job": found.job, "step": step, "epoch": found.epoch, "columns": list(found.columns), "rows": rows}
        print_json({**answer, "more": found.more})
        return
    printer = RowPrinter(found.columns)
    for row in found.rows:
        printer.print({name: row.get(name) for name in found.columns})
    more = f"; there are more than {limit}" if found.more else ""
    to_stderr(f"{len(found.rows)} rows of {step} after epoch {found.epoch}{more}")
