"""`lockstep run`: run a job as several replicas until it ends or is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.assignments import assignments
from lockstep.cli.plan import JobFile
from lockstep.cli.project import project_of


def run(
    context: typer.Context,
    job: JobFile,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-n", min=1, max=16, help="How many replicas; 1 is the plain mode.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Where Spark runs: local[2], spark://host:7077, yarn, k8s://...")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the run, e.g. epoch_interval_s=0.5 (repeatable)."
        ),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            "--spark-conf", metavar="KEY=VALUE", help="A setting of Spark, e.g. spark.ui.enabled=true (repeatable)."
        ),
    ] = None,
    until_epoch: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Stop when epoch N is published (for tests and scripts).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what happens as JSON lines instead of a live table.")
    ] = False,
) -> None:
    """Run a job; run it again in the same folder and it goes on where it was.

    Ctrl-C finishes the epoch under way and stops; a second Ctrl-C stops at once, and loses nothing either.

    [bold]Examples[/bold]

      lockstep run job.py

      lockstep run job.py --replicas 3 --set on_divergence=continue

      lockstep run jobs.py:alerts --master spark://host:7077 --spark-conf spark.executor.memory=2g
    """
    from lockstep.api.loading import load_job
    from lockstep.control import run_job

    run_overrides: dict[str, object] = {**assignments("--set", settings)}
    if replicas is not None:
        run_overrides["replicas"] = replicas
    spark_overrides: dict[str, object] = {}
    if master is not None:
        spark_overrides["master"] = master
    code = run_job(
        load_job(job),
        project=project_of(context).folder,
        run_overrides=run_overrides,
        spark_overrides=spark_overrides,
        spark_conf=assignments("--spark-conf", spark_conf),
        until_epoch=until_epoch,
        as_json=as_json,
    )
    raise typer.Exit(code)
