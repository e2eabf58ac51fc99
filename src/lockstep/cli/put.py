"""`lockstep put`: append JSON lines to a journal."""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from lockstep.cli.output import err, print_json, to_stderr
from lockstep.cli.project import Project, project_of
from lockstep.errors import EnvironmentError_

if TYPE_CHECKING:
    import pyarrow as pa

    from lockstep.store.protocols import Journal

    Batches = Iterator[tuple[int, list[bytes]]]
    Append = Callable[[Journal, pa.RecordBatch], tuple[dict[int, tuple[int, int]], bool]]

BATCH_BYTES_MAX = 4 * 2**20
"""A batch is one durable append: large enough to be worth its sync, small enough to stay out of memory's way."""
CHUNK_BYTES = 4 * 2**20
"""Where the input of a put with a name is cut. Never to be changed: the chunks of a put that was broken off have to be
those of its repetition, also by a later release."""
LINE_BYTES_MAX = 64 * 2**20
"""A line without an end must not fill the memory: input that is not lines at all is refused here."""
PROGRESS_INTERVAL_S = 0.5


def put(
    context: typer.Context,
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="The journal's name.", show_default=False)],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="JSON lines; without it, stdin.", show_default=False)
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help='Makes the journal if there is none: "user string, ok boolean, at timestamp".'
        ),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Partitions of a journal that is made here.")] = 1,
    once: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Names this input: put again under the same name, what is there is skipped.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print counts and positions as JSON.")] = False,
) -> None:
    """Append JSON lines to a journal; a record that is acknowledged is on disk.

    A batch with a line that does not fit the schema is refused whole; the message has the line and the reason.
    Batches before it stay.

    With --once the input is written once, however often it is put and wherever an earlier put was broken off: it is cut
    into chunks of 4 MB at the ends of lines, chunk 1 is put under the name NAME/1 and so on, and chunks whose names the
    journal knows are skipped. A chunk that is not the same as under its name is refused (LS0428). Lines that trickle in
    wait until their chunk is full.

    [bold]Examples[/bold]

      lockstep put logins < logins.jsonl

      lockstep put logins more.jsonl --json

      lockstep put logins 2026-03-01.jsonl --once 2026-03-01

      echo '{"user": "ann", "ok": false}' | lockstep put logins --schema "user string, ok boolean"
    """
    append = _append if once is None else _Named(once)
    with opened_journal(project_of(context), journal, schema, partitions) as target, _input(file) as stream:
        tally = PutTally(journal)
        batches = line_batches(stream) if once is None else line_batches(stream, _read_chunk)
        try:
            with _interruptible() as interrupt:
                _append_all(target, batches, append, tally, interrupt)
        except KeyboardInterrupt:
            tally.interrupted = True
        finally:
            tally.show(as_json=as_json)
    raise typer.Exit(130 if tally.interrupted else 0)


class Tally:
    """What was acknowledged so far, by partition."""

    def __init__(self, journal: str) -> None:
        self.journal = journal
        self.records = 0
        self.positions: dict[int, tuple[int, int]] = {}
        self.interrupted = False
        self._started_s = self._shown_s = time.monotonic()

    def add(self, records: int, appended: dict[int, tuple[int, int]]) -> None:
        """Count one acknowledged batch."""
        self.records += records
        for partition, (first, end) in appended.items():
            self.positions[partition] = (self.positions.get(partition, (first, end))[0], end)
        if err.is_terminal and time.monotonic() - self._shown_s > PROGRESS_INTERVAL_S:
            self._shown_s = time.monotonic()
            rate = self.records / (self._shown_s - self._started_s)
            err.print(f"  {self.records:,} records, {rate:,.0f}/s{self._more()}", end="\r")

    def show(self, *, as_json: bool) -> None:
        """Say what was acknowledged: positions on stdout, the sentence on stderr."""
        if as_json:
            print_json(self.facts())
        else:
            for partition, (first, end) in sorted(self.positions.items()):
                sys.stdout.write(f"{self.journal} partition {partition}: {first} to {end - 1}\n")
        stopped = "stopped; " if self.interrupted else ""
        to_stderr(f"{stopped}{self.records:,} records acknowledged by journal {self.journal}{self._more()}")

    def facts(self) -> dict[str, object]:
        """The same as data."""
        return {
            "journal": self.journal,
            "records": self.records,
            "positions": {str(p): {"first": a, "end": b} for p, (a, b) in sorted(self.positions.items())},
            "interrupted": self.interrupted,
        }

    def _more(self) -> str:
        """What another command adds to the sentence."""
        return ""


class PutTally(Tally):
    """What was acknowledged, and how many records were there before, under the same names."""

    def __init__(self, journal: str) -> None:
        super().__init__(journal)
        self.repeated = 0

    def facts(self) -> dict[str, object]:
        """The counts as data."""
        return {**super().facts(), "repeated": self.repeated}

    def _more(self) -> str:
        return f", {self.repeated:,} were there already" if self.repeated else ""


class _Interrupt:
    """Ctrl-C as a question between batches: an append under way is finished first, so that what is said is exact."""

    def __init__(self) -> None:
        self.appending = False
        self.wanted = False

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        self.wanted = True
        if not self.appending:
            raise KeyboardInterrupt


@contextmanager
def _interruptible() -> Iterator[_Interrupt]:
    interrupt = _Interrupt()
    before = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def _append_all(target: Journal, batches: Batches, append: Append, tally: PutTally, interrupt: _Interrupt) -> None:
    from lockstep.store.arrow import batch_from_json_lines

    for first_line, lines in batches:
        batch = batch_from_json_lines(lines, target.schema, first_line)
        interrupt.appending = True
        appended, repeated = append(target, batch)
        if repeated:
            tally.repeated += batch.num_rows
        else:
            tally.add(batch.num_rows, appended)
        interrupt.appending = False
        if interrupt.wanted:
            raise KeyboardInterrupt


def _append(target: Journal, batch: pa.RecordBatch) -> tuple[dict[int, tuple[int, int]], bool]:
    return target.append(batch), False


class _Named:
    """Appends chunk after chunk, each under the name of the input and its own number."""

    def __init__(self, name: str) -> None:
        from lockstep.store.names import checked_batch_name

        self._name = checked_batch_name(name)
        self._number = 0

    def __call__(self, target: Journal, batch: pa.RecordBatch) -> tuple[dict[int, tuple[int, int]], bool]:
        self._number += 1
        return target.append_named(batch, f"{self._name}/{self._number}")


def _read_ready(stream: BinaryIO) -> bytes:
    """At least one byte (none at the end), and as many more as are there without waiting."""
    pieces = [_read_some(stream, BATCH_BYTES_MAX)]
    size = len(pieces[0])
    while pieces[-1] and size < BATCH_BYTES_MAX and _is_ready(stream):
        pieces.append(_read_some(stream, BATCH_BYTES_MAX))
        size += len(pieces[-1])
    return b"".join(pieces)


def _read_chunk(stream: BinaryIO) -> bytes:
    """As many bytes as a chunk has, fewer only at the end: chunks depend on the input alone, not on how it comes."""
    pieces, missing = [], CHUNK_BYTES
    while missing and (piece := _read_some(stream, missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def line_batches(
    stream: BinaryIO, read: Callable[[BinaryIO], bytes] = _read_ready
) -> Iterator[tuple[int, list[bytes]]]:
    """The stream's lines in batches, each with the number of its first line.

    Lines that trickle in through a pipe come as soon as they are there; those of a file come a few megabytes at a time.
    """
    number, rest = 1, b""
    while chunk := read(stream):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest += chunk
            if len(rest) > LINE_BYTES_MAX:
                raise _not_lines(number)
            continue
        lines = (rest + head).split(b"\n")
        yield number, lines
        number, rest = number + len(lines), tail
    if rest:
        yield number, [rest]


def _read_some(stream: BinaryIO, bytes_max: int) -> bytes:
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(bytes_max)


def _is_ready(stream: BinaryIO) -> bool:
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):
        return True  # a stream in memory, not a file: never waits


def _not_lines(number: int) -> EnvironmentError_:
    return EnvironmentError_(
        "LS0011",
        f"line {number} does not end",
        why=f"it is longer than {LINE_BYTES_MAX // 2**20} MB.",
        hint="`put` reads one JSON object per line; a JSON array has to be taken apart first (jq -c '.[]').",
    )


@contextmanager
def opened_journal(project: Project, name: str, schema: str | None, partitions: int) -> Iterator[Journal]:
    """The journal, made if there is none and a schema was given, closed at the end."""
    from lockstep.connect.writing import open_named

    target = open_named(project.home, name, schema, partitions)
    try:
        yield target
    finally:
        target.close()


@contextmanager
def _input(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        if sys.stdin.isatty():
            to_stderr("reading JSON lines from the keyboard; Ctrl-D ends")
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise EnvironmentError_(
            "LS0009",
            f"{file} cannot be read",
            why=f"{error.strerror}.",
            hint="give the path of a file with one JSON object per line, or pipe it in.",
        ) from None
    with stream:
        yield stream
