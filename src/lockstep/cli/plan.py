"""`lockstep plan`: draw a job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lockstep.cli.output import out, print_json

JobFile = Annotated[str, typer.Argument(metavar="JOB", help="The job's file, or file.py:variable.", show_default=False)]


def plan(
    job: JobFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph as JSON.")] = False,
) -> None:
    """Draw a job: its sources, steps, stages and sinks, and which steps run Python.

    Needs no Java and starts nothing. Types are not known here; `lockstep check` looks at those.

    [bold]Examples[/bold]

      lockstep plan job.py

      lockstep plan jobs.py:alerts --json
    """
    from lockstep.api.loading import load_job
    from lockstep.plan.draw import draw, to_json

    graph = load_job(job).job.graph()
    if as_json:
        print_json(to_json(graph))
    else:
        sys.stdout.write(draw(graph, out.width if out.is_terminal else 100).rstrip("\n") + "\n")
