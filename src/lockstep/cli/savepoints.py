"""`lockstep savepoint` and `lockstep savepoints`: keep the state of a job under a name, and look after what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.ledger import JobName
from lockstep.cli.output import iso_text, out, plain_table, print_json, to_stderr
from lockstep.cli.project import project_of

if TYPE_CHECKING:
    from lockstep.control.state.savepoints import Kept


def savepoint(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job.", show_default=False)],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.", show_default=False)],
    unpinned: Annotated[
        bool,
        typer.Option(
            "--unpinned", help="Do not hold retention back: the input after it may be forgotten while it is kept."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Keep the state of a job under a name, while it runs or when it is stopped.

    It is a folder with everything that is needed to go on from there, and a hash of each file: copy it wherever you
    like, and start from it with `lockstep run JOB --from`.

    [bold]Examples[/bold]

      lockstep savepoint failed-logins before-upgrade

      lockstep savepoint failed-logins nightly --unpinned
    """
    from lockstep.control.state import savepoints as kept_ones

    project = project_of(context)
    kept = kept_ones.take(kept_ones.Place.of(project.folder, project.job(job)), name, pinned=not unpinned)
    if as_json:
        print_json(_as_json(kept))
    else:
        to_stderr(f"savepoint {name} of {kept.savepoint.job} at epoch {kept.savepoint.epoch}: {kept.folder}")


def savepoints(
    context: typer.Context,
    job: JobName = None,
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="NAME", help="Delete this one.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the savepoints of a job on this host, or delete one.

    [bold]Examples[/bold]

      lockstep savepoints

      lockstep savepoints failed-logins --delete before-upgrade
    """
    from lockstep.control.state import savepoints as kept_ones

    project = project_of(context)
    place = kept_ones.Place.of(project.folder, project.job(job))
    if delete is not None:
        kept_ones.delete(place, delete)
        to_stderr(f"savepoint {delete} of {place.job} is deleted")
        return
    found = kept_ones.list_savepoints(place)
    if as_json:
        print_json({"job": place.job, "savepoints": [_as_json(kept) for kept in found]})
    elif not found:
        to_stderr(f'job "{place.job}" has no savepoints here: lockstep savepoint {place.job} NAME takes one')
    else:
        table = plain_table("name", "epoch", "taken", "size", "pinned", "folder")
        for kept in found:
            one = kept.savepoint
            pinned = "yes" if kept.pinned else "no"
            size = f"{one.size / 1e6:.1f} MB"
            table.add_row(one.name, str(one.epoch), iso_text(one.taken_us), size, pinned, str(kept.folder))
        out.print(table)


def _as_json(kept: Kept) -> dict[str, object]:
    one = kept.savepoint
    return {
        "job": one.job,
        "name": one.name,
        "id": one.id,
        "epoch": one.epoch,
        "taken": iso_text(one.taken_us),
        "size_bytes": one.size,
        "pinned": kept.pinned,
        "folder": str(kept.folder),
        "replica": one.replica,
        "state_digests": dict(one.state_digests),
    }
