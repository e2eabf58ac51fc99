"""`lockstep bench compare`, `list`, `install` and `docs`: Lockstep beside other engines."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lockstep.cli.output import out, plain_table, print_json, show_error, to_stderr
from lockstep.cli.project import project_of
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.bench.compare.runner import Selection

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def compare(
    context: typer.Context,
    workload: Annotated[list[str] | None, typer.Option(metavar="W", help="A workload (repeatable).")] = None,
    engine: Annotated[list[str] | None, typer.Option(metavar="E", help="An engine (repeatable).")] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(metavar="M", help="failover, latency, throughput, restart, state or partitions (repeatable)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few workloads, ten seconds each: about half an hour.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="How often everything is measured, engines alternating.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.5, help="Stop when this time is over, with what was measured by then.")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Store the results in benchmarks/results/, cell by cell.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder: input, output, logs.")] = False,
) -> None:
    """Measure the same workloads on Lockstep and on other engines, alternating; every result is verified.

    Without --workload, --engine and --measure: all that can run here. Ctrl-C ends it and keeps what was measured.

    [bold]Examples[/bold]

      lockstep bench compare --quick --save

      lockstep bench compare --measure failover --engine lockstep-2 --engine spark

      lockstep bench compare --minutes 60 --save
    """
    from lockstep.bench.compare.runner import Selection

    selection = Selection(workload or (), engine or (), measure or (), quick, rounds, minutes)
    project = project_of(context).folder
    try:
        document = _compared(selection, project if save else None, keep=keep)
    except LockstepError as error:
        show_error(error)
        raise typer.Exit(2) from None
    _tell(document, project, as_json=as_json, save=save)
    wrong = any("error" in cell or not cell.get("check", {}).get("right", True) for cell in document["cells"])
    raise typer.Exit(INTERRUPTED if document["interrupted"] else 1 if wrong else 0)


def _compared(selection: Selection, project: Path | None, *, keep: bool) -> dict[str, Any]:
    from lockstep.bench.compare import results
    from lockstep.bench.compare.runner import Comparing
    from lockstep.bench.workspace import say_to_stderr, workspace

    say = say_to_stderr()

    def stored(document: dict[str, Any]) -> None:
        if project is not None:
            results.save(document, project)

    command = shlex.join(["lockstep", *sys.argv[1:]])
    with workspace("compare", say, keep=keep) as folder:
        return Comparing(selection, folder, say, command, keep=keep).run(stored)


def _tell(document: dict[str, Any], project: Path, *, as_json: bool, save: bool) -> None:
    from lockstep.bench.compare import results
    from lockstep.bench.compare.docs import write_comparison
    from lockstep.bench.compare.tables import tables
    from lockstep.bench.report import show_table

    if as_json:
        print_json(document)
    else:
        for table in tables(document):
            show_table(table, out)
    if save:
        to_stderr(f"saved {results.path_of(document, project)}")
        if (page := write_comparison(project)) is not None:
            to_stderr(f"wrote {page}, from all that is stored")


def list_all(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List the workloads and the engines, and why an engine cannot run here.

    [bold]Example[/bold]

      lockstep bench list
    """
    from lockstep.bench.compare.results import engine_facts, workload_facts
    from lockstep.bench.engines.catalogue import ENGINES, workloads

    engines = {name: engine_facts(one) for name, one in ENGINES.items()}
    every = {name: workload_facts(one) for name, one in workloads().items()}
    if as_json:
        print_json({"engines": engines, "workloads": every})
        return
    table = plain_table("engine", "", "version", "promise, or what is missing")
    for name, facts in engines.items():
        state = Text("no", style="yellow") if facts["missing"] else Text("yes", style="green")
        table.add_row(name, state, facts["version"] or "-", facts["missing"] or facts["guarantee"])
    out.print(table)
    out.print()
    table = plain_table("workload", "records/s", "what is computed")
    for name, facts in every.items():
        rates = " and ".join(f"{rate:,.0f}" for rate in facts["rates_per_s"].values())
        table.add_row(name, rates, facts["steps"])
    out.print(table)


def install(
    engines: Annotated[list[str], typer.Argument(metavar="ENGINE...", help="flink, bytewax, pathway.")],
) -> None:
    """Make an environment for other engines, each its own, from the exact versions in benchmarks/engines.

    [bold]Example[/bold]

      lockstep bench install flink bytewax pathway
    """
    from lockstep.bench.engines.environments import install as make

    try:
        make(engines, to_stderr)
    except LockstepError as error:
        show_error(error)
        raise typer.Exit(1) from None


def docs(context: typer.Context) -> None:
    """Write docs/benchmarks.md and benchmarks/results/index.html anew from the stored results.

    [bold]Example[/bold]

      lockstep bench docs
    """
    from lockstep.bench.compare.docs import write_comparison, write_docs

    project = project_of(context).folder
    to_stderr(f"wrote {write_docs(project)}")
    if (page := write_comparison(project)) is not None:
        to_stderr(f"wrote {page}")


def add_to(app: typer.Typer) -> None:
    """Put the commands into `lockstep bench`."""
    app.command("compare")(compare)
    app.command("list")(list_all)
    app.command("install")(install)
    app.command("docs")(docs)
