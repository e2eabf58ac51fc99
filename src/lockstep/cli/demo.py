"""`lockstep demo`: kill replicas and see no gap."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    report: Annotated[Path, typer.Option(metavar="FILE", help="Where the report with the plot goes.")] = Path(
        "demo-report.html"
    ),
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the plot as SVG too.", show_default=False)
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder it ran in, with journals and logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")] = False,
) -> None:
    """Run a security monitor, kill its replicas with -9, and compare the output with an independent computation.

    Takes about two and a half minutes. Exit code 0 only if nothing was lost, nothing came twice and all digests agreed.

    [bold]Example[/bold]

      lockstep demo --report /tmp/report.html
    """
    from lockstep.bench.demo.command import run_demo

    raise typer.Exit(run_demo(report, picture, keep=keep, as_json=as_json))
