"""Putting dead letters back: each goes, once, to where the source reads it as new.

A line of a file goes into a new file beside the old one; a record that a function could not take is read again from its
source and appended to the journal (or written to a new file). What is about to be put back is noted first, and the
names of files and the keys of appends follow from that note alone. So a call that was killed is ended by the next one.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lockstep.connect.disk import disk_trouble, inside, put_if_absent
from lockstep.connect.formats import json_lines
from lockstep.connect.protocols import ROWS_PER_CHUNK_BITS, Place, SourceSide
from lockstep.connect.registry import source_side
from lockstep.connect.specs import FilesSource, JournalSource, spec_from_json
from lockstep.connect.text_records import csv_record_ends
from lockstep.errors import LockstepError
from lockstep.plan.specs import SourceSpec
from lockstep.store.dead_letters import RECORD_CHARACTERS_MAX, DeadLetters, Handling, Letter, journal_name
from lockstep.store.journal import open_journal
from lockstep.store.protocols import Facts

SOURCES = "sources"
"""Fact: the specs of the newest run's sources, by name."""


@dataclass
class PutBack:
    """What a call has done: where records went, and which letters stay open and why."""

    records: int = 0
    places: list[str] = field(default_factory=list)
    stay: dict[int, str] = field(default_factory=dict)


def sources_text(sources: Iterable[tuple[str, SourceSpec]]) -> str:
    """The value of the fact :data:`SOURCES`."""
    return json.dumps({name: {"kind": spec.kind, **spec.to_json()} for name, spec in sources})


def readings(sources: Iterable[tuple[str, SourceSpec]]) -> dict[str, str]:
    """How each source is read, by name: letters of functions carry it.

    The rows of a chunk are counted without those that are bad, and what is bad follows from the schema. So a position
    in a file means a record only together with the schema and the format that it was counted with.
    """
    return {name: _reading(spec) for name, spec in sources}


def _reading(spec: object) -> str:
    if isinstance(spec, FilesSource):
        counted: list[object] = [spec.kind, spec.format, spec.schema.to_json()]
    elif isinstance(spec, JournalSource):
        counted = [spec.kind, spec.name]
    else:
        return ""
    return hashlib.sha256(json.dumps(counted).encode()).hexdigest()[:16]


def put_back(
    place: Place, facts: Facts, dead_letters: DeadLetters, letters: Sequence[Letter], *, whole_record: bool
) -> PutBack:
    """Put these letters back, and end what an earlier call left half done."""
    done = PutBack()
    doing = _Doing(place, _specs(facts), done)
    for left in dead_letters.handlings():
        if left.how == "put-back" and not left.done:
            numbers = set(left.numbers)
            begun = [one for one in dead_letters.letters(handled=True) if one.number in numbers]
            doing.look(begun, whole_record=True)
            doing.note_done(begun)
            # Names follow from the letters that are noted. So those that stay leave the note before anything is done.
            handling = dead_letters.release(left, done.stay)
            doing.perform([one for one in begun if one.number not in done.stay])
            dead_letters.end(handling)
            letters = [one for one in letters if one.number not in numbers]
    doing.look(letters, whole_record=whole_record)
    wanted = [one for one in letters if one.number not in done.stay]
    if wanted:
        handling = dead_letters.begin(wanted, "put-back")
        doing.perform(wanted)
        dead_letters.end(handling)
    return done


def dismiss(dead_letters: DeadLetters, letters: Sequence[Letter]) -> Handling:
    """Note that nobody waits for these any more."""
    handling = dead_letters.begin(letters, "dismissed")
    dead_letters.end(handling)
    return handling


@dataclass(frozen=True)
class _Group:
    """Letters that go to one place."""

    spec: FilesSource | JournalSource
    letters: list[Letter]
    header: bytes | None
    """That of lines of a file, empty where the format has none; None for the records of functions."""


@dataclass
class _Doing:
    place: Place
    specs: Mapping[str, object]
    done: PutBack
    originals: dict[int, pa.Table] = field(default_factory=dict)
    """The records of functions' letters as their sources have them, by the number of the letter."""

    def look(self, letters: Sequence[Letter], *, whole_record: bool) -> None:
        """Note of each letter that cannot be put back why it stays; read the records of the others."""
        originals = []
        for letter in letters:
            why = self._why_not(letter, whole_record=whole_record)
            if why:
                self.done.stay[letter.number] = why
            elif letter.step != letter.source:
                originals.append(letter)
        self._read(originals)

    def note_done(self, letters: Sequence[Letter]) -> None:
        """What a killed call had put back does not stay, even if nobody could put it back again."""
        for group in self._groups(letters):
            if self._is_there(group):
                for letter in group.letters:
                    self.done.stay.pop(letter.number, None)

    def perform(self, letters: Sequence[Letter]) -> None:
        """Put these back. Names follow from the letters alone: it may be the second time."""
        for group in self._groups(letters):
            if not self._is_there(group):
                self._put(group)
            self.done.records += len({(one.partition, one.offset) for one in group.letters})
            self.done.places.append(self._where(group))

    def _groups(self, letters: Sequence[Letter]) -> list[_Group]:
        """Letters by the place they go to; those that no place is known for are in none."""
        found: dict[tuple[str, str, bytes | None], list[Letter]] = {}
        for letter in letters:
            is_line = letter.step == letter.source
            header = self._header(letter) if is_line else None
            found.setdefault((letter.source, letter.partition if is_line else "", header), []).append(letter)
        return [
            _Group(spec, group, header)
            for (source, _, header), group in found.items()
            if isinstance(spec := self.specs.get(source), FilesSource)
            or (isinstance(spec, JournalSource) and header is None)
        ]

    def _why_not(self, letter: Letter, *, whole_record: bool) -> str:
        """Why this letter cannot be put back, as far as it tells without its record; empty if it can."""
        spec = self.specs.get(letter.source)
        if not isinstance(spec, FilesSource | JournalSource):
            return "its source takes no records back"
        if letter.step != letter.source:
            return _why_not_original(letter, spec) if whole_record else _PASSED
        return _why_not_line(letter, spec)

    def _read(self, letters: Sequence[Letter]) -> None:
        """Read the records of letters again, each chunk once."""
        chunks: dict[tuple[str, str, int], list[Letter]] = {}
        for letter in letters:
            position = letter.offset >> self._row_bits(letter.source)
            chunks.setdefault((letter.source, letter.partition, position), []).append(letter)
        for source in {source for source, _, _ in chunks}:
            spec = self.specs[source]
            assert isinstance(spec, SourceSpec)
            with closing(source_side(spec, self.place, source)) as side:
                for (_, partition, position), group in sorted((at, of) for at, of in chunks.items() if at[0] == source):
                    self._read_chunk(side, partition, position, group)

    def _read_chunk(self, side: SourceSide, partition: str, position: int, letters: list[Letter]) -> None:
        mask = (1 << self._row_bits(letters[0].source)) - 1
        try:
            batches = list(_batches(side, partition, position))
        except (LockstepError, AssertionError, OSError) as error:
            why = f"its record is gone: {error.fact if isinstance(error, LockstepError) else error}"
            self.done.stay.update((one.number, why) for one in letters)
            return
        table = pa.Table.from_batches(batches, batches[0].schema if batches else pa.schema([]))
        for letter in letters:
            row = letter.offset & mask
            if row < table.num_rows:
                # Taken, not sliced: a slice would keep the whole chunk in memory.
                self.originals[letter.number] = table.take([row])
            else:
                self.done.stay[letter.number] = "its record is gone: its source has no record at this position"

    def _header(self, letter: Letter) -> bytes:
        spec = self.specs.get(letter.source)
        is_csv = isinstance(spec, FilesSource) and spec.format == "csv"
        return letter.record.encode()[: _header_length(letter)] if is_csv else b""

    def _row_bits(self, source: str) -> int:
        return ROWS_PER_CHUNK_BITS if isinstance(self.specs[source], FilesSource) else 0

    def _originals_of(self, group: _Group) -> pa.Table:
        """A record may have failed in several steps, or several times in one: it goes back once."""
        once = {(one.partition, one.offset): self.originals[one.number] for one in group.letters}
        return pa.concat_tables([once[at] for at in sorted(once)])

    def _is_there(self, group: _Group) -> bool:
        if isinstance(group.spec, FilesSource):
            return self._path(group.spec, group).exists()
        with closing(open_journal(self.place.home, group.spec.name)) as journal:
            return journal.was_appended(self._key(group))

    def _where(self, group: _Group) -> str:
        spec = group.spec
        return str(self._path(spec, group)) if isinstance(spec, FilesSource) else f"journal {spec.name}"

    def _key(self, group: _Group) -> str:
        return f"{journal_name(self.place.job)}/{group.letters[0].number}"

    def _path(self, spec: FilesSource, group: _Group) -> Path:
        first = group.letters[0]
        named = first if group.header is not None else _beside(first, spec)
        return inside(self.place.project / spec.path, str(_file_name(named, first.number)))

    def _put(self, group: _Group) -> None:
        if isinstance(group.spec, JournalSource):
            with closing(open_journal(self.place.home, group.spec.name)) as journal:
                # Without the time at which it came in: it comes in once more.
                originals = self._originals_of(group).select(journal.schema.names)
                journal.append_once(originals.cast(journal.schema), self._key(group))
        elif group.header is None:
            self._write(self._path(group.spec, group), _file_of(self._originals_of(group), group.spec.format))
        else:
            self._write(self._path(group.spec, group), _lines_of(group.letters, group.header))

    def _write(self, path: Path, data: bytes) -> None:
        with disk_trouble(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            put_if_absent(path, path.with_name(f".{path.name}.tmp"), data)


_PASSED = (
    "a function could not take it: put back, its record goes through the whole job again, also through the steps that "
    "had taken it (--whole-record does that)"
)


def _why_not_line(letter: Letter, spec: object) -> str:
    if not letter.record:
        return "it stands for a part of a file that cannot be read at all; give a mended file a new name"
    if len(letter.record) >= RECORD_CHARACTERS_MAX:
        return "only its beginning is kept"
    if not isinstance(spec, FilesSource):
        return "it is a line of a file, and its source reads a journal now"
    if not fnmatchcase(_file_name(letter, letter.number).name, spec.pattern):
        return f"the source reads files like {spec.pattern}, and a new one beside {letter.partition} is none"
    return ""


def _why_not_original(letter: Letter, spec: object) -> str:
    if not letter.reading:
        return "it was set aside by an older release, which did not note how its source was read"
    if letter.reading != _reading(spec):
        return (
            "which record of its source it was cannot be told any more: its source is read in another way now "
            "(schema or format), or it failed in a bolt; --export shows the record"
        )
    return ""


def _batches(side: SourceSide, partition: str, position: int) -> Iterator[pa.RecordBatch]:
    for piece in side.slices({partition: position}, {partition: position + 1}):
        if piece.partition == partition:
            yield from side.read(piece)


def _specs(facts: Facts) -> dict[str, object]:
    held: dict[str, dict[str, Any]] = json.loads(facts.fact(SOURCES) or "{}")
    known = {name: data for name, data in held.items() if data["kind"] in ("files", "journal")}
    return {name: spec_from_json(str(data["kind"]), data) for name, data in known.items()}


def _file_name(letter: Letter, number: int) -> PurePosixPath:
    """A name beside the old file's that the source takes for a new file.

    >>> str(_file_name(Letter("a", "a", "2024/orders.csv", 3, "", ""), 12))
    '2024/orders.put-back-12.csv'
    """
    path = PurePosixPath(letter.partition)
    return path.with_name(f"{path.stem}.put-back-{number}{path.suffix}")


def _beside(letter: Letter, spec: FilesSource) -> Letter:
    """A function's letter knows no file: its record goes into one with a name of the pattern's form."""
    suffix = spec.pattern.rpartition("*")[2] if spec.pattern.endswith((".jsonl", ".csv", ".parquet")) else ""
    return Letter(letter.step, letter.source, f"{letter.source}{suffix or '.' + spec.format}", 0, "", "")


def _header_length(letter: Letter) -> int:
    """How much of a CSV row's letter is the header, with its line end: names in quotes may span lines."""
    ends = csv_record_ends(letter.record.encode())
    return int(ends[0]) if len(ends) else 0


def _lines_of(letters: list[Letter], header: bytes) -> bytes:
    r"""Lines as they came, byte by byte.

    >>> text = Letter("a", "a", "a.csv", 2, "n,s\n1,x", "")
    >>> _lines_of([text, Letter("a", "a", "a.csv", 3, "n,s\n\\xe2", "", raw="4g==")], b"n,s\n")
    b'n,s\n1,x\n\xe2\n'
    """
    lines = [base64.b64decode(one.raw) if one.raw else one.record.encode()[len(header) :] for one in letters]
    return header + b"".join(line + b"\n" for line in lines)


def _file_of(table: pa.Table, format: str) -> bytes:
    if format == "jsonl":
        return json_lines(table)
    buffer = io.BytesIO()
    if format == "csv":
        pa.csv.write_csv(table, buffer)
    else:
        pq.write_table(table, buffer)
    return buffer.getvalue()
