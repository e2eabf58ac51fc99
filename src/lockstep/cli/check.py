"""`lockstep check`: whether a job is sound before it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.plan import JobFile
from lockstep.cli.project import project_of


def check(
    context: typer.Context,
    job: JobFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Check a job against Spark: types, determinism as far as it can be seen, and what each sink guarantees.

    Starts a JVM for a few seconds, reads no data and writes none.

    [bold]Examples[/bold]

      lockstep check job.py

      lockstep check jobs.py:alerts --json
    """
    from lockstep.api.loading import load_job
    from lockstep.control import check_job

    raise typer.Exit(check_job(load_job(job), project=project_of(context).folder, as_json=as_json))
