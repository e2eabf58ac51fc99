"""`lockstep compact`: merge the many small files of a sink."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.output import print_json, to_stderr
from lockstep.cli.project import project_of
from lockstep.cli.tail import sink_path


def compact(
    context: typer.Context,
    sink: Annotated[
        str, typer.Argument(metavar="SINK", help="The folder or address of a files sink.", show_default=False)
    ],
    keep_last: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Leave the newest N epochs as they are.", show_default="100")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Merge the many small files of a files sink into few; safe while its job runs and while others read it.

    [bold]Examples[/bold]

      lockstep compact out/alerts

      lockstep compact out/alerts --keep-last 1000
    """
    from lockstep.connect.sinks import compaction

    path = sink_path(project_of(context), sink)
    merged = compaction.compact(path, compaction.KEEP_LAST if keep_last is None else keep_last)
    if as_json:
        print_json({"sink": str(path), "epochs_merged": merged})
    else:
        to_stderr(f"{merged:,} epochs of {path} merged" if merged else f"nothing to merge in {path}")
