"""`lockstep chaos`: hurt a running job in every way there is a word for, and check that nobody could notice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.text import Text

from lockstep.cli.output import err, out, print_json, show_error
from lockstep.cli.project import project_of
from lockstep.errors import LockstepError

app = typer.Typer(
    help="Hurt a running job: kill, stop, corrupt, flood; then check every row.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

SEEDS = 1_000_000
_Prepared = TypeVar("_Prepared")
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130
JobFile = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="The job's file; a built-in monitor without.", show_default=False)
]
Rate = Annotated[float, typer.Option(metavar="N", min=0.1, max=100_000, help="Records a second into each journal.")]


@app.command("run")
def run(
    context: typer.Context,
    job: JobFile = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Fixes actions, victims and input; random without.")
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="M", min=0.1, max=24 * 60, help="How long it is hurt.")] = 2.0,
    replicas: Annotated[int, typer.Option(metavar="R", min=1, max=16, help="Replicas of the job.")] = 2,
    rate: Rate = 200.0,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ACTION", help="Only this action; may be repeated.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A Python file with reference(inputs) -> {sink: rows}.", show_default=False),
    ] = None,
    report: Annotated[Path, typer.Option(metavar="FILE", help="Where the report goes.")] = Path("chaos-report.html"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder it ran in, with journals and logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, too.")] = False,
) -> None:
    """Run a job in a copy of the project, hurt it by a random schedule, and compare its output row by row.

    Ctrl-C once ends the chaos and still checks; twice ends everything at once.

    Exit code 0 only if every checker is content; then the folder is removed. Exit code 1 if one is not: then the folder
    is kept and named, with the seed. 2 if it was refused before anything ran, 130 after a second Ctrl-C.

    [bold]Examples[/bold]

      lockstep chaos run --seed 7 --minutes 1

      lockstep chaos run --replicas 3 --only kill-jvm --only pause-replica job.py

      lockstep chaos run --reference answers.py job.py
    """
    from lockstep.chaos.command import Order, prepare, run_chaos

    order = Order(
        job=job,
        project=project_of(context).folder,
        seed=random.randrange(SEEDS) if seed is None else seed,  # noqa: S311  (not a secret)
        minutes=minutes,
        replicas=replicas,
        rate=rate,
        only=tuple(only or ()),
        reference=reference,
        report=report,
        keep=keep,
        as_json=as_json,
    )
    _carry_out(lambda: prepare(order), lambda wish: run_chaos(order, wish))


@app.command("operations")
def operations(
    context: typer.Context,
    job: JobFile = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Fixes the moments and the input; random without.")
    ] = None,
    replicas: Annotated[int, typer.Option(metavar="R", min=1, max=15, help="Replicas of the job.")] = 1,
    rate: Rate = 100.0,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A Python file with reference(inputs) -> {sink: rows}.", show_default=False),
    ] = None,
    report: Annotated[Path, typer.Option(metavar="FILE", help="Where the report goes.")] = Path("chaos-report.html"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder it ran in, with journals and logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON instead of a table.")] = False,
) -> None:
    """Ask a job for every kind of operation, and kill its coordinator with -9 at every step of each.

    The operations: rescale of partitions, upgrade, restart, one replica more and one less, upgrade in the shadow. After
    each kill the next coordinator is started at once. A table says for each kill how long the take-over took, what
    became of the operation, and how many epochs were lost or came twice; every check of `chaos run` is made, too.

    Exit codes as of `chaos run`. It takes about a quarter of an hour.

    [bold]Example[/bold]

      lockstep chaos operations --seed 7 --replicas 2
    """
    from lockstep.chaos.command import Order, prepare_take_overs, run_take_overs

    order = Order(
        job=job,
        project=project_of(context).folder,
        seed=random.randrange(SEEDS) if seed is None else seed,  # noqa: S311  (not a secret)
        minutes=0.0,
        replicas=replicas,
        rate=rate,
        only=(),
        reference=reference,
        report=report,
        keep=keep,
        as_json=as_json,
        verb="operations",
    )
    _carry_out(lambda: prepare_take_overs(order), lambda made: run_take_overs(order, *made))


def _carry_out(prepare: Callable[[], _Prepared], run: Callable[[_Prepared], int]) -> NoReturn:
    """Refuse before anything runs, or run; the exit code says which."""
    try:
        prepared = prepare()
    except LockstepError as error:
        show_error(error)
        raise typer.Exit(EXIT_REFUSED) from None
    try:
        code = run(prepared)
    except KeyboardInterrupt:
        err.print("interrupted: everything was ended")
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


@app.command("hosts")
def hosts(
    seed: Annotated[int | None, typer.Option(metavar="N", help="Fixes what is done; random without.")] = None,
    minutes: Annotated[float, typer.Option(metavar="M", min=0.1, max=24 * 60, help="How long it is hurt.")] = 4.0,
    report: Annotated[Path, typer.Option(metavar="FILE", help="Where the report goes.")] = Path("chaos-report.html"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder it ran in, with all logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Hurt hosts instead of processes: a job from topic to topic on three hosts, drawn by a seed.

    Hosts are killed and cut off (longer than their sessions live, so that they come back as zombies), their disks are
    full for a while, and the coordinator, members of ZooKeeper, its leader, and the broker are killed. The output is
    compared with an independent computation: exit code 0 only if nothing was lost and nothing came twice.

    [bold]Example[/bold]

      lockstep chaos hosts --seed 7 --minutes 5
    """
    from lockstep.bench.hosts.demo import run_cluster_demo
    from lockstep.bench.hosts.schedule import schedule
    from lockstep.cli.output import to_stderr

    chosen = random.randrange(SEEDS) if seed is None else seed  # noqa: S311  (not a secret)
    events = schedule(chosen, minutes)
    to_stderr(f"seed {chosen}: {', '.join(events)}")
    raise typer.Exit(run_cluster_demo(report, None, keep=keep, as_json=as_json, events=events))


@app.command("list")
def list_actions(
    as_json: Annotated[bool, typer.Option("--json", help="Print the vocabulary as JSON.")] = False,
) -> None:
    """Show every action: what it does, what it requires and takes away, and whether it can be done here."""
    from lockstep.chaos.catalogue import all_actions

    rows: list[dict[str, Any]] = [
        {
            "action": action.name,
            "title": action.title,
            "requires": sorted(need.value for need in action.requires),
            "takes": sorted(part.value for part in action.takes),
            "lasts_s_max": action.lasts_s_max,
            "not_here": action.impossible(),
        }
        for action in all_actions()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        _show(row)


def _show(row: dict[str, Any]) -> None:
    """One action in three lines: a table of so much text would be all columns and no words."""
    out.print(f"[bold]{row['action']}[/bold]  {row['title']}")
    words = [f"requires {', '.join(row['requires'])}"] if row["requires"] else []
    words += [f"takes {', '.join(row['takes'])}"] if row["takes"] else []
    words += [f"lasts up to {row['lasts_s_max']:g} s"] if row["lasts_s_max"] else []
    out.print(f"    [dim]{'; '.join(words)}[/dim]")
    if row["not_here"] is not None:
        out.print(Text(f"    NOT HERE: {row['not_here']}"))
