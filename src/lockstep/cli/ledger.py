"""`lockstep ledger`: the epochs of a job, as they were sealed, published and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from lockstep.cli.output import iso_text, out, plain_table, print_json, span_text, time_text, to_stderr, waiting_text
from lockstep.cli.project import project_of

if TYPE_CHECKING:
    from lockstep.store.protocols import Cut, Digest, Entry, Published, Store

JobName = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="The job's name; not needed if there is only one.", show_default=False),
]

_COLUMNS_KEPT = 7
_MARKS_WIDTH_MIN = 110
"""Below this width there is no room for marks beside the cut."""


def ledger(
    context: typer.Context,
    job: JobName = None,
    last: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="How many of the newest epochs.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries as JSON.")] = False,
) -> None:
    """Show the newest epochs: when and where each ends, who sealed it, who published it, whether all digests agree.

    [bold]Examples[/bold]

      lockstep ledger

      lockstep ledger failed-logins --last 100 --json
    """
    with project_of(context).open_store(job) as (name, store):
        lines = _lines(store, last)
    if as_json:
        print_json({"job": name, "entries": [_as_json(line) for line in lines]})
    elif not lines:
        to_stderr(f'job "{name}" has sealed no epoch yet')
    else:
        out.print(_table(lines))


@dataclass(frozen=True)
class _Line:
    entry: Entry
    published: Published | None
    digests: list[Digest]

    @property
    def latency_ms(self) -> float | None:
        """Age of the epoch's oldest record when its output became visible."""
        if self.published is None or self.published.ingested_oldest_us is None:
            return None
        return (self.published.published_us - self.published.ingested_oldest_us) / 1000

    @property
    def agreed(self) -> bool | None:
        """Whether all digests of each sink and version are equal; None while fewer than two replicas have reported."""
        if len({digest.replica for digest in self.digests}) < 2:
            return None
        groups: dict[tuple[str, str], set[str]] = {}
        for digest in self.digests:
            groups.setdefault((digest.sink, digest.version), set()).add(digest.digest)
        return all(len(group) == 1 for group in groups.values())


def _lines(store: Store, last: int) -> list[_Line]:
    head = store.head()
    if head is None:
        return []
    first = max(store.floor(), head.epoch - last + 1)
    published = {line.epoch: line for line in store.published(first, head.epoch)}
    return [
        _Line(entry, published.get(entry.epoch), store.digests(entry.epoch))
        for entry in store.entries(first, head.epoch)
    ]


def _table(lines: list[_Line]) -> Table:
    table = plain_table("epoch", "time (UTC)", "records", "sealed", "published", "latency", "digests", "cut", "marks")
    for index in (0, 2, 5):
        table.columns[index].justify = "right"
    rows = [_cells(line) for line in lines]
    for index, column in enumerate(table.columns):
        column.no_wrap, column.overflow = True, "ellipsis"
        if index < _COLUMNS_KEPT:
            # The rest gives way on a narrow terminal: what is cut off there is in --json.
            column.min_width = max(len(str(column.header)), *(len(row[index]) for row in rows))
    if out.width < _MARKS_WIDTH_MIN:
        table.columns.pop()
    for row in rows:
        table.add_row(*row[: len(table.columns)])
    return table


def _cells(line: _Line) -> list[str | Text]:
    published = line.published
    return [
        str(line.entry.epoch),
        time_text(line.entry.epoch_time_us),
        f"{line.entry.records:,}",
        line.entry.sealed_by,
        published.replica if published else Text("not yet", style="dim"),
        "" if line.latency_ms is None else span_text(line.latency_ms),
        _digests_text(line),
        cut_text(line.entry.cut),
        _marks_text(line.entry),
    ]


def _digests_text(line: _Line) -> Text:
    replicas = len({digest.replica for digest in line.digests})
    if line.agreed is None:
        return Text(f"{replicas} so far" if replicas else "none", style="dim")
    return Text(f"{replicas} equal", style="green") if line.agreed else Text("DIFFER", style="bold red")


def cut_text(cut: Cut) -> str:
    """Where an epoch ends, in a few characters.

    >>> cut_text({"logins": {"0": 120, "1": 118}, "files": {"0": 7}})
    'files 7, logins 120+118'
    """
    return ", ".join(f"{source} {'+'.join(str(at) for _, at in sorted(cut[source].items()))}" for source in sorted(cut))


def _marks_text(entry: Entry) -> str:
    marks = [f"{step} {'none yet' if mark is None else time_text(mark)}" for step, mark in entry.marks.items()]
    return "; ".join(filter(None, [", ".join(marks), waiting_text(entry.held)]))


def _as_json(line: _Line) -> dict[str, object]:
    entry, published = line.entry, line.published
    return {
        "epoch": entry.epoch,
        "epoch_time": iso_text(entry.epoch_time_us),
        "epoch_time_us": entry.epoch_time_us,
        "records": entry.records,
        "cut": {source: dict(positions) for source, positions in entry.cut.items()},
        "marks_us": dict(entry.marks),
        "held_back_us": {source: dict(others) for source, others in entry.held.items()},
        "sealed_by": entry.sealed_by,
        "published_by": published.replica if published else None,
        "published_us": published.published_us if published else None,
        "latency_ms": line.latency_ms,
        "digests": [{"sink": d.sink, "replica": d.replica, "digest": d.digest, "rows": d.rows} for d in line.digests],
        "digests_equal": line.agreed,
    }
