"""`lockstep ingest`: carry records from somewhere that cannot be read twice into a journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.output import to_stderr
from lockstep.cli.project import project_of
from lockstep.cli.put import Tally, opened_journal
from lockstep.cli.socket_lines import Gathered, Refused, SocketLines, stop_on_signals
from lockstep.errors import EnvironmentError_, StoreError
from lockstep.security import is_loopback

if TYPE_CHECKING:
    import pyarrow as pa

    from lockstep.store.protocols import Journal

TEXT_SCHEMA = "line string"
INGEST = ".ingest"
"""What is set aside on the way into a journal NAME is in NAME.ingest.dead-letters, in the form of dead letters."""

app = typer.Typer(
    help="Carry records from a place that cannot be read twice (a socket) into a journal, which can.",
    no_args_is_help=True,
)


class Format(StrEnum):
    """What a line is."""

    text = "text"
    jsonl = "jsonl"


@app.callback()
def _group() -> None:
    """Keeps ``socket`` a subcommand while it is the only one."""


@app.command("socket")
def socket_(
    context: typer.Context,
    journal: Annotated[str, typer.Option("--journal", metavar="NAME", help="The journal.", show_default=False)],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to connect to or to listen on.")] = 9999,
    host: Annotated[str, typer.Option(help="The host to connect to, or the address to listen on.")] = "127.0.0.1",
    listen: Annotated[bool, typer.Option("--listen", help="Wait for senders instead of connecting to one.")] = False,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="With --listen: other machines may connect. Nobody is asked who.")
    ] = False,
    format: Annotated[Format, typer.Option(help="A line is a text, or a JSON object.")] = Format.text,
    schema: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help=f'Makes the journal if there is none; for text "{TEXT_SCHEMA}" is taken.'),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Partitions of a journal that is made here.")] = 1,
    once: Annotated[
        bool, typer.Option("--once", help="End when the connection ends (the last one, if several).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="At the end print counts and positions as JSON.")] = False,
) -> None:
    """Read lines from a TCP socket and append them to a journal, in groups; Ctrl-C ends it and loses nothing it read.

    It connects to HOST:PORT, again and again if the connection breaks, or with --listen takes connections. Lines are
    read only as fast as the disk keeps them: a sender that is too fast waits. A line that is no record is counted and
    set aside in the journal NAME.ingest.dead-letters, with the reason, and the reading goes on.

    What was read is on disk after one group, a few milliseconds. What a sender has sent and nobody has read when this
    machine dies is gone: a socket cannot be asked to repeat it. Use files, or `lockstep put`, where that matters.

    [bold]Examples[/bold]

      lockstep ingest socket --port 9999 --journal lines

      lockstep ingest socket --listen --port 9999 --journal lines --schema "line string, at timestamp"

      lockstep ingest socket --port 9999 --journal logins --format jsonl --schema "user string, ok boolean"

      lockstep tail lines.ingest.dead-letters
    """
    from lockstep.store import dead_letters
    from lockstep.store.journal import list_journals

    _check_remote(host, listen=listen, allow_remote=allow_remote)
    project = project_of(context)
    is_new = journal not in list_journals(project.home)
    wanted = schema or (TEXT_SCHEMA if is_new and format == Format.text else None)
    tally = IngestTally(journal)
    with ExitStack() as stack:
        target = stack.enter_context(opened_journal(project, journal, wanted, partitions))
        # Made when the first line is refused: most journals never have it.
        name = dead_letters.journal_name(journal + INGEST)
        aside = cache(lambda: stack.enter_context(closing(dead_letters.open_letters(project.home, name))))
        keeper = Keeper(target, aside, tally, format)
        stop = stack.enter_context(stop_on_signals())
        try:
            lines = SocketLines(host, port, stop, to_stderr, listen=listen, once=once)
        except OSError as error:
            raise _cannot_listen(host, port, error) from None
        try:
            for gathered in lines.batches():
                keeper.keep(gathered)
        finally:
            lines.close()
            tally.show(as_json=as_json)


class IngestTally(Tally):
    """What was acknowledged, and how many lines were set aside."""

    def __init__(self, journal: str) -> None:
        super().__init__(journal)
        self.set_aside = 0

    def facts(self) -> dict[str, object]:
        """The counts as data."""
        return {**super().facts(), "set_aside": self.set_aside}

    def _more(self) -> str:
        return f", {self.set_aside:,} set aside" if self.set_aside else ""


class Keeper:
    """Turns lines into records and appends them; what is none goes into the other journal."""

    def __init__(self, target: Journal, aside: Callable[[], Journal], tally: IngestTally, format: Format) -> None:
        self._target = target
        self._aside = aside
        self._tally = tally
        self._text = _text_column(target.schema) if format == Format.text else None

    def keep(self, gathered: Gathered) -> None:
        """On disk when this returns."""
        import pyarrow as pa

        refused = list(gathered.refused)
        batches = self._texts(gathered.lines, refused) if self._text else self._objects(gathered.lines, refused)
        kept = pa.Table.from_batches(batches, self._target.schema)
        if kept.num_rows:
            self._tally.add(kept.num_rows, self._target.append(kept))
        if refused:
            self._set_aside(refused)

    def _texts(self, lines: Sequence[bytes], refused: list[Refused]) -> list[pa.RecordBatch]:
        import pyarrow as pa

        from lockstep.clock import wall_us

        texts = []
        for line in lines:
            try:
                texts.append(line.decode())
            except UnicodeDecodeError as error:
                refused.append(Refused(line, f"is not UTF-8: {error.reason} at byte {error.start}."))
        now_us = wall_us()
        columns = [
            pa.array(texts if field.name == self._text else [now_us] * len(texts), field.type)
            for field in self._target.schema
        ]
        return [pa.RecordBatch.from_arrays(columns, schema=self._target.schema)]

    def _objects(self, lines: Sequence[bytes], refused: list[Refused]) -> list[pa.RecordBatch]:
        """All at once if all are well; else by halves, so that a few bad lines among many cost little."""
        from lockstep.store.arrow import batch_from_json_lines

        try:
            return [batch_from_json_lines(lines, self._target.schema)]
        except StoreError as error:
            if len(lines) == 1:
                refused.append(Refused(lines[0], f"{error.fact.removeprefix('line 1: ')}: {error.why}"))
                return []
        half = len(lines) // 2
        return [*self._objects(lines[:half], refused), *self._objects(lines[half:], refused)]

    def _set_aside(self, refused: Sequence[Refused]) -> None:
        import pyarrow as pa

        from lockstep.store.dead_letters import Letter, raw_bytes, readable, rows

        source = self._tally.journal
        seen = self._tally.records + self._tally.set_aside
        letters = [
            Letter("ingest socket", source, "", seen + index, readable(one.line), one.reason, raw=raw_bytes(one.line))
            for index, one in enumerate(refused)
        ]
        journal = self._aside()
        journal.append(pa.RecordBatch.from_pylist(rows(letters), journal.schema))
        self._tally.set_aside += len(refused)


def _text_column(schema: pa.Schema) -> str:
    """The column that gets the line; another one may get the time."""
    import pyarrow.types as kinds

    texts = [field.name for field in schema if kinds.is_string(field.type)]
    times = [field.name for field in schema if kinds.is_timestamp(field.type)]
    if len(texts) != 1 or len(times) > 1 or len(texts) + len(times) != len(schema):
        raise EnvironmentError_(
            "LS0014",
            f"the journal has the columns {', '.join(schema.names)}, and a line of text is one",
            why='it needs one column of type string, and may have one of type timestamp: "line string, at timestamp".',
            hint="--format jsonl, if the lines are JSON objects; else another --journal.",
        )
    return str(texts[0])


def _check_remote(host: str, *, listen: bool, allow_remote: bool) -> None:
    if not listen or allow_remote or is_loopback(host):
        return
    raise EnvironmentError_(
        "LS0013",
        f"{host} can be reached from other machines",
        why="whoever connects can write into the journal; nobody is asked for a password.",
        hint="--host 127.0.0.1 (the default), or --allow-remote if that is meant.",
    )


def _cannot_listen(host: str, port: int, error: OSError) -> EnvironmentError_:
    return EnvironmentError_(
        "LS0013",
        f"cannot listen on {host}:{port}",
        why=f"{error.strerror or error}.",
        hint="another --port; --port 0 takes any that is free and says which.",
    )
