"""`lockstep bench`: the figures that Lockstep claims, measured here."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.output import out, print_json
from lockstep.cli.project import project_of

app = typer.Typer(
    help="Measure failover, latency, throughput and the store on this machine. Exit code 1: a target was missed.",
    no_args_is_help=True,
)

Quick = Annotated[bool, typer.Option("--quick", help="A short run: to see that it works, not to quote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of tables.")]
Save = Annotated[bool, typer.Option("--save", help="Also write them to benchmarks/results/ in the project folder.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the temporary folder: jobs, logs, output.")]


@app.command()
def failover(
    context: typer.Context, quick: Quick = False, as_json: AsJson = False, save: Save = False, keep: Keep = False
) -> None:
    """Kill replicas with -9 under load; the gaps that a reader of the sink sees (about 12 minutes).

    [bold]Example[/bold]

      lockstep bench failover --quick
    """
    _measure(context, ["failover"], quick=quick, as_json=as_json, save=save, keep=keep)


@app.command()
def latency(
    context: typer.Context, quick: Quick = False, as_json: AsJson = False, save: Save = False, keep: Keep = False
) -> None:
    """Time per epoch and from end to end, beside the same query hand-written in PySpark (about 14 minutes).

    [bold]Example[/bold]

      lockstep bench latency --quick
    """
    _measure(context, ["latency"], quick=quick, as_json=as_json, save=save, keep=keep)


@app.command()
def throughput(
    context: typer.Context, quick: Quick = False, as_json: AsJson = False, save: Save = False, keep: Keep = False
) -> None:
    """Windowed count and sum over 2 million JSON lines, beside hand-written PySpark (about 6 minutes).

    [bold]Example[/bold]

      lockstep bench throughput --quick
    """
    _measure(context, ["throughput"], quick=quick, as_json=as_json, save=save, keep=keep)


@app.command()
def store(
    context: typer.Context, quick: Quick = False, as_json: AsJson = False, save: Save = False, keep: Keep = False
) -> None:
    """Rates of the journal and the ledger, and memory while records pass through (about a minute).

    [bold]Example[/bold]

      lockstep bench store --json
    """
    _measure(context, ["store"], quick=quick, as_json=as_json, save=save, keep=keep)


@app.command()
def api(
    context: typer.Context, quick: Quick = False, as_json: AsJson = False, save: Save = False, keep: Keep = False
) -> None:
    """Events per second of windows, joins, process functions, reduce and fold, beside hand-written PySpark.

    [bold]Example[/bold]

      lockstep bench api --quick
    """
    _measure(context, ["api"], quick=quick, as_json=as_json, save=save, keep=keep)


@app.command("all")
def everything(
    context: typer.Context, quick: Quick = False, as_json: AsJson = False, save: Save = False, keep: Keep = False
) -> None:
    """All of them, one after the other.

    [bold]Example[/bold]

      lockstep bench all --save
    """
    names = ["store", "latency", "throughput", "api", "failover"]
    _measure(context, names, quick=quick, as_json=as_json, save=save, keep=keep)


def _measure(context: typer.Context, names: list[str], *, quick: bool, as_json: bool, save: bool, keep: bool) -> None:
    """Run the benches and show each as soon as it is there; as JSON, all of them in one document."""
    from lockstep.bench import report as reports
    from lockstep.bench.benches import run_bench
    from lockstep.cli.output import to_stderr

    done = []
    for name in names:
        found = run_bench(name, quick=quick, keep=keep)
        done.append(found)
        if not as_json:
            reports.show(found, out)
        if save:
            to_stderr(f"saved {reports.save(found, project_of(context).folder)}")
    if as_json:
        documents = [reports.as_json(found) for found in done]
        print_json(documents[0] if len(documents) == 1 else documents)
    raise typer.Exit(0 if all(found.met for found in done) else 1)
