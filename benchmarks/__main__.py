"""`python -m benchmarks`: compare Lockstep with other engines, and its operators with hand-written PySpark."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lockstep.cli.output import out, plain_table, print_json, show_error, to_stderr
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from benchmarks.compare.runner import Selection
    from lockstep.bench.benches import Bench

ROOT = Path(__file__).resolve().parents[1]
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def compare(
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

      python -m benchmarks compare --quick --save

      python -m benchmarks compare --measure failover --engine lockstep-2 --engine spark

      python -m benchmarks compare --minutes 60 --save
    """
    from benchmarks.compare.runner import Selection

    selection = Selection(workload or (), engine or (), measure or (), quick, rounds, minutes)
    project = ROOT
    try:
        document = _compared(selection, project if save else None, keep=keep)
    except LockstepError as error:
        show_error(error)
        raise typer.Exit(2) from None
    _tell(document, project, as_json=as_json, save=save)
    wrong = any("error" in cell or not cell.get("check", {}).get("right", True) for cell in document["cells"])
    raise typer.Exit(INTERRUPTED if document["interrupted"] else 1 if wrong else 0)


def _compared(selection: Selection, project: Path | None, *, keep: bool) -> dict[str, Any]:
    from benchmarks.compare import results
    from benchmarks.compare.runner import Comparing
    from lockstep.bench.workspace import say_to_stderr, workspace

    say = say_to_stderr()

    def stored(document: dict[str, Any]) -> None:
        if project is not None:
            results.save(document, project)

    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    with workspace("compare", say, keep=keep) as folder:
        return Comparing(selection, folder, say, command, keep=keep).run(stored)


def _tell(document: dict[str, Any], project: Path, *, as_json: bool, save: bool) -> None:
    from benchmarks.compare import results
    from benchmarks.compare.docs import write_comparison
    from benchmarks.compare.tables import tables
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

      python -m benchmarks list
    """
    from benchmarks.compare.results import engine_facts, workload_facts
    from benchmarks.engines.catalogue import ENGINES, workloads

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
    """Make an environment for other engines, each its own, from the exact versions in benchmarks/programs.

    [bold]Example[/bold]

      python -m benchmarks install flink bytewax pathway
    """
    from benchmarks.engines.environments import install as make

    try:
        make(engines, to_stderr)
    except LockstepError as error:
        show_error(error)
        raise typer.Exit(1) from None


def docs() -> None:
    """Write docs/benchmarks.md and benchmarks/results/index.html anew from the stored results.

    [bold]Example[/bold]

      python -m benchmarks docs
    """
    from benchmarks.compare.docs import write_comparison, write_docs

    project = ROOT
    to_stderr(f"wrote {write_docs(project)}")
    if (page := write_comparison(project)) is not None:
        to_stderr(f"wrote {page}")


def api(
    quick: Annotated[bool, typer.Option("--quick", help="A short run: to see that it works, not to quote.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of tables.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Also write them to benchmarks/results/.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
) -> None:
    """Events per second of windows, joins, process functions, reduce and fold, beside hand-written PySpark.

    [bold]Example[/bold]

      python -m benchmarks api --quick
    """
    from benchmarks.api.bench import run_api

    _report("api", run_api, quick=quick, as_json=as_json, save=save, keep=keep)


def change(
    quick: Annotated[bool, typer.Option("--quick", help="A short run: to see that it works, not to quote.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of tables.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Also write them to benchmarks/results/.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
    side: Annotated[
        list[str] | None, typer.Option(metavar="S", help="lockstep, spark or flink (repeatable); all without it.")
    ] = None,
) -> None:
    """`lockstep bench change` with PyFlink beside it: rescale and new code under load, in one table.

    [bold]Examples[/bold]

      python -m benchmarks change --save

      python -m benchmarks change --quick --side flink
    """
    from benchmarks.change import flink_side
    from benchmarks.engines.environments import missing_environment
    from lockstep.bench.change.bench import SIDES, run_change

    sides = {**SIDES, "flink": flink_side.measure}
    if missing := missing_environment("flink"):
        to_stderr(f"flink: {missing}")
        del sides["flink"]
    if unknown := sorted(set(side or ()) - set(sides)):
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(sides)}", param_hint="--side")
    chosen = {name: sides[name] for name in side or sides}
    _report("change", partial(run_change, sides=chosen), quick=quick, as_json=as_json, save=save, keep=keep)


def _report(name: str, bench: Bench, *, quick: bool, as_json: bool, save: bool, keep: bool) -> None:
    from lockstep.bench import report as reports
    from lockstep.bench.benches import run_bench

    found = run_bench(name, quick=quick, keep=keep, bench=bench)
    if as_json:
        print_json(reports.as_json(found))
    else:
        reports.show(found, out)
    if save:
        to_stderr(f"saved {reports.save(found, ROOT)}")
    raise typer.Exit(0 if found.met else 1)


app = typer.Typer(
    name="python -m benchmarks",
    help="Lockstep beside other engines and beside hand-written PySpark, every result verified.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("compare")(compare)
app.command("list")(list_all)
app.command("install")(install)
app.command("api")(api)
app.command("change")(change)
app.command("docs")(docs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    app(args=None if arguments is None else list(arguments), prog_name="python -m benchmarks")


if __name__ == "__main__":
    main()
