"""`lockstep new`: a small project to start from."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli.output import to_stderr
from lockstep.cli.project import project_of
from lockstep.errors import EnvironmentError_

_NEXT = """\
next:
  cd {name}
  lockstep plan job.py                   # the graph, without starting anything
  pytest                                 # the whole job in a test (pip install pytest, if it is not there)
  lockstep run job.py                    # two replicas and a live table, until Ctrl-C

and beside it, in other terminals and the same folder:
  python make_orders.py | lockstep put orders     # records in, ten a second, until Ctrl-C
  lockstep tail out/revenue --follow              # published results out, every ten seconds
  lockstep status                                 # healthy or degraded, lag, latency

README.md in {name} has all of this."""


def new(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Of the folder and of the job: small letters, digits, dashes.", show_default=False
        ),
    ],
) -> None:
    """Make a small project: a job, a test of it that passes, settings, and something to feed it with.

    Everything goes into a new folder NAME. A folder that is there already is never touched.

    [bold]Examples[/bold]

      lockstep new shop

      lockstep --project /srv new shop
    """
    from lockstep.api.job import checked_job_name

    folder = project_of(context).folder / checked_job_name(name, hint="lockstep new {near}")
    written = make_project(folder)
    sys.stdout.write("".join(f"{name}/{file}\n" for file in written))
    to_stderr(_NEXT.format(name=name))


def make_project(folder: Path) -> list[str]:
    """Write a new project into ``folder``, which must not be there; the files, in the order in which to read them."""
    from lockstep.cli.new_files import project_files

    files = project_files(folder.name)
    try:
        # Not exist_ok: whoever made it meanwhile keeps it.
        folder.mkdir()
    except OSError as error:
        raise _cannot(folder, error) from None
    try:
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise _cannot(folder, error) from None
    return list(files)


def _cannot(folder: Path, error: OSError) -> EnvironmentError_:
    if isinstance(error, FileExistsError):
        return EnvironmentError_(
            "LS0019",
            f"{folder} is there already",
            why="a new project never touches what it did not make.",
            hint=f"take another name, e.g. lockstep new {folder.name}-2, or remove it first.",
        )
    return EnvironmentError_(
        "LS0019",
        f"{folder} cannot be made",
        why=f"{error.strerror or error}.",
        hint="go to a folder that you may write, or name one: lockstep --project DIR new NAME.",
    )
