"""`lockstep bench`: the figures that Lockstep claims, measured here."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Measure failover, latency, throughput and the store on this machine.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")]


@app.command()
def failover(as_json: AsJson = False) -> None:
    """Kill replicas with -9 under load; the longest gap that a reader of the sink sees."""
    _measure(["failover"], as_json=as_json)


@app.command()
def latency(as_json: AsJson = False) -> None:
    """Time per epoch and from end to end, beside the same query hand-written in PySpark."""
    _measure(["latency"], as_json=as_json)


@app.command()
def throughput(as_json: AsJson = False) -> None:
    """Windowed aggregation over files, beside the same query hand-written in PySpark."""
    _measure(["throughput"], as_json=as_json)


@app.command()
def store(as_json: AsJson = False) -> None:
    """Rates of the journal and the ledger."""
    _measure(["store"], as_json=as_json)


@app.command("all")
def everything(as_json: AsJson = False) -> None:
    """All of them, one after the other."""
    _measure(["failover", "latency", "throughput", "store"], as_json=as_json)


def _measure(names: list[str], *, as_json: bool) -> None:
    from lockstep.bench import run_benchmarks

    raise typer.Exit(run_benchmarks(names, as_json=as_json))
