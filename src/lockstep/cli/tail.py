"""`lockstep tail`: what was published in a files sink, or appended to a journal."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.cli.assignments import epoch_range
from lockstep.cli.output import print_json_line, time_text, to_stderr
from lockstep.cli.project import Project, project_of
from lockstep.cli.rows import RowPrinter, json_row
from lockstep.errors import EnvironmentError_

if TYPE_CHECKING:
    from lockstep.connect.reading import Reader
    from lockstep.connect.remote.paths import AnyPath
    from lockstep.store.protocols import Journal

POLL_INTERVAL_S = 0.1


def tail(
    context: typer.Context,
    place: Annotated[
        str,
        typer.Argument(
            metavar="SINK|JOURNAL", help="The folder or address of a files sink, or a journal.", show_default=False
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes; Ctrl-C ends.")] = False,
    last: Annotated[
        int, typer.Option("--last", metavar="N", min=0, help="The newest N epochs with rows (records, of a journal).")
    ] = 10,
    epochs: Annotated[
        str | None, typer.Option(metavar="A:B", help="These epochs instead, both included; A: and :B work.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON per row, with its epoch or position.")
    ] = False,
) -> None:
    """Show the rows that a sink has published, epoch by epoch; or the records of a journal.

    Only published epochs are seen, whole and in order, however many replicas write.

    [bold]Examples[/bold]

      lockstep tail out/alerts

      lockstep tail out/alerts --follow --json | jq .row

      lockstep tail out/alerts --epochs 100:120

      lockstep tail logins --last 3
    """
    first, end = epoch_range(epochs)
    project = project_of(context)
    try:
        if journal := _journal(project, place):
            _refuse_epochs(epochs)
            _tail_journal(project, journal, last, follow=follow, as_json=as_json)
        else:
            reader = _reader(project, place)
            begin = first if epochs is not None else reader.last_with_rows(last)
            _tail_sink(reader, begin, end, follow=follow, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def sink_path(project: Project, place: str) -> AnyPath:
    """The folder that ``place`` names: in the project, or where the command is called; LS0010 if neither is there."""
    from lockstep.connect.remote.paths import is_remote, location
    from lockstep.store.journal import list_journals

    if is_remote(place):
        return location(place)
    for path in (project.folder / place, Path(place)):
        if path.exists():
            return path
    journals = list_journals(project.home)
    near = difflib.get_close_matches(place, journals, n=1)
    raise EnvironmentError_(
        "LS0010",
        f'there is nothing at "{place}"',
        why=f"no such folder; the journals here are: {', '.join(journals)}."
        if journals
        else "no such folder or journal.",
        hint=f"did you mean {near[0]}?" if near else "give the path that the job passes to ls.files(...).",
    )


def _journal(project: Project, place: str) -> str | None:
    from lockstep.store.journal import list_journals

    if (project.folder / place).exists():
        return None
    return place if place in list_journals(project.home) else None


def _reader(project: Project, place: str) -> Reader:
    from lockstep.connect.reading import Reader

    return Reader(sink_path(project, place))


def _refuse_epochs(epochs: str | None) -> None:
    if epochs is not None:
        raise EnvironmentError_(
            "LS0007", "--epochs is for sinks", why="a journal has positions, not epochs.", hint="use --last N."
        )


def _tail_sink(reader: Reader, first: int, last: int | None, *, follow: bool, as_json: bool) -> None:
    printer = RowPrinter(reader.schema.names)
    rows = 0
    for publication, table in reader.follow(first, timeout_s=None if follow else 0.0):
        if last is not None and publication.epoch > last:
            break
        if table.num_rows:
            if not as_json:
                when = time_text(publication.published_us)
                to_stderr(
                    f"epoch {publication.epoch}, published by {publication.by} at {when}, {table.num_rows:,} rows"
                )
            for row in _rows(table):
                if as_json:
                    print_json_line({"epoch": publication.epoch, "row": json_row(row)})
                else:
                    printer.print(row)
            rows += table.num_rows
        if publication.epoch == last:
            break
    if rows == 0:
        to_stderr("no rows were published in these epochs")


def _rows(table: Any) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=1000):
        yield from batch.to_pylist()


def _tail_journal(project: Project, name: str, last: int, *, follow: bool, as_json: bool) -> None:
    from lockstep.store.journal import open_journal

    journal = open_journal(project.home, name)
    try:
        printer = RowPrinter(journal.schema.names)
        begins = journal.begins()
        at = {partition: max(begins[partition], end - last) for partition, end in journal.ends().items()}
        while True:
            at = _print_records(journal, at, printer, as_json=as_json)
            if not follow:
                return
            time.sleep(POLL_INTERVAL_S)
    finally:
        journal.close()


def _print_records(journal: Journal, at: dict[int, int], printer: RowPrinter, *, as_json: bool) -> dict[int, int]:
    """Print what lies after ``at``; returns where that ends."""
    ends = journal.ends()
    for partition, end in ends.items():
        position = at.get(partition, 0)
        for batch in journal.read(partition, position, end):
            for row in batch.to_pylist():
                if as_json:
                    print_json_line({"partition": partition, "position": position, "row": json_row(row)})
                else:
                    printer.print(row)
                position += 1
    return ends
