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
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="On three hosts instead, with a real Kafka and three ZooKeepers (5 minutes)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")] = False,
) -> None:
    """Run a security monitor, kill its replicas with -9, and compare the output with an independent computation.

    Takes about two and a half minutes. Exit code 0 only if nothing was lost, nothing came twice and all digests agreed.

    With --cluster a job from topic to topic runs on three hosts, made of Linux's namespaces where these are permitted.
    A host is killed, another one's cable is pulled and put back, ZooKeeper's leader and the coordinator are killed.

    [bold]Examples[/bold]

      lockstep demo --report /tmp/report.html

      lockstep demo --cluster --report /tmp/cluster.html
    """
    if cluster:
        from lockstep.bench.hosts.demo import run_cluster_demo

        raise typer.Exit(run_cluster_demo(report, picture, keep=keep, as_json=as_json))
    from lockstep.bench.demo.command import run_demo

    raise typer.Exit(run_demo(report, picture, keep=keep, as_json=as_json))
