"""`lockstep check`: whether a job is sound before it runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

from lockstep.cli.output import err, out, plain_table, print_json, show_error
from lockstep.cli.plan import JobFile
from lockstep.cli.project import project_of
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.control.start.check import Found, PythonFound

EXIT_UNSOUND = 2


def check(
    context: typer.Context,
    job: JobFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Check a job against Spark: types, determinism as far as it can be seen, and what each sink guarantees.

    Starts a JVM for a few seconds, reads no data and writes none. Exit code 0 if the job is sound, 2 if it is not.

    [bold]Examples[/bold]

      lockstep check job.py

      lockstep check jobs.py:alerts --json
    """
    try:
        found = _checked(job, project_of(context).folder)
    except LockstepError as error:
        if as_json:
            print_json({"sound": False, "error": error_json(error)})
        show_error(error)
        raise typer.Exit(EXIT_UNSOUND) from None
    if as_json:
        print_json({"sound": not found.obstacles, "error": None, **asdict(found)})
    else:
        _show(found)
    raise typer.Exit(EXIT_UNSOUND if found.obstacles else 0)


def error_json(error: LockstepError) -> dict[str, str]:
    """An error for a program."""
    return {"code": error.code, "fact": error.fact, "why": error.why, "hint": error.hint}


def _checked(job: str, project: Path) -> Found:
    from lockstep.api.loading import load_job

    loaded = load_job(job)
    # What can be seen without Spark is said without waiting for it.
    loaded.job.graph()
    with err.status("starting Spark ..."):
        from lockstep.control.start.check import check_job

        return check_job(loaded, project)


def _show(found: Found) -> None:
    verdict = ("cannot go on in this folder", "bold red") if found.obstacles else ("is sound", "bold green")
    out.print(Text.assemble(("job ", ""), (found.job, "bold"), " ", verdict))
    _section("steps", [(step.step, step.schema) for step in found.steps])
    _section("sinks", [(sink.sink, sink.place, f"{sink.guarantee}: {sink.why}") for sink in found.sinks])
    _heading("determinism")
    _show_python(found.python)
    _heading("output mode")
    _line(f"{found.output_mode}: {found.output_meaning}")
    if found.advice:
        _heading("look again")
        for one in found.advice:
            _line(one, "yellow")
    _heading("checkpoint")
    _show_checkpoint(found)
    _section("pinned for all replicas", [(key, _short(value)) for key, value in found.pinned.items()])


def _heading(title: str) -> None:
    out.print()
    out.print(Text(title, style="bold"))


def _line(text: str, style: str = "") -> None:
    out.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))


def _section(title: str, rows: list[tuple[Any, ...]]) -> None:
    _heading(title)
    table = plain_table(*("" for _ in rows[0]))
    table.show_header = False
    table.columns[-1].overflow = "fold"
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _show_python(steps: tuple[PythonFound, ...]) -> None:
    if not steps:
        _line("every step is native Spark, and checked: all replicas compute the same")
        return
    names = ", ".join(step.step for step in steps)
    _line(f"native steps are checked; these run Python, which nobody can prove to be deterministic: {names}")
    for step in steps:
        where = f" ({step.where})" if step.where else ""
        if not step.suspicions:
            _line(f"{step.step}: nothing suspicious in {step.function}{where}")
        for one in step.suspicions:
            _line(f"{step.step}: line {one.line} of {step.function}{where}: {one.what} {one.advice}", "yellow")
    _line("with two or more replicas the digests of every epoch are compared, and a difference is found at once", "dim")


def _show_checkpoint(found: Found) -> None:
    if found.obstacles:
        for obstacle in found.obstacles:
            _line(obstacle, "bold red")
        _line("undo the change, or run it as a new job: another name, and other places for its sinks (LS0609)")
    elif found.checkpoint_epoch is None:
        _line("none in this folder: the job would begin at the beginning")
    else:
        _line(f"the job goes on after epoch {found.checkpoint_epoch} with this plan")


def _short(value: str) -> str:
    """The optimizer's rules are class names: the last part says enough."""
    return ", ".join(part.rpartition(".")[2] if part.count(".") > 2 else part for part in value.split(","))
