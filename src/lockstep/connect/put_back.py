"""Putting dead letters back: each goes, once, to where the source reads it as new.

A line of a file goes into a new file beside the old one; a record that a function could not take is read again from its
source and appended to the journal (or written to a new file). What is about to be put back is noted first, and the
names of files and the keys of appends follow from that note alone. So a call that was killed is ended by the next one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lockstep.connect.disk import disk_trouble, inside, put_if_absent
from lockstep.connect.formats import json_lines
from lockstep.connect.protocols import ROWS_PER_CHUNK_BITS, Place
from lockstep.connect.registry import source_side
from lockstep.connect.specs import FilesSource, JournalSource, spec_from_json
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


def put_back(
    place: Place, facts: Facts, dead_letters: DeadLetters, letters: Sequence[Letter], *, whole_record: bool
) -> PutBack:
    """Put these letters back, and end what an earlier call left half done."""
    done = PutBack()
    doing = _Doing(place, _specs(facts), done)
    for handling in dead_letters.handlings():
        if handling.how == "put-back" and not handling.done:
            numbers = set(handling.numbers)
            doing.perform([one for one in dead_letters.letters(handled=True) if one.number in numbers])
            dead_letters.end(handling)
            letters = [one for one in letters if one.number not in numbers]
    done.stay = {one.number: why for one in letters if (why := doing.why_not(one, whole_record=whole_record))}
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


@dataclass
class _Doing:
    place: Place
    specs: Mapping[str, object]
    done: PutBack

    def why_not(self, letter: Letter, *, whole_record: bool) -> str:
        """Why this letter cannot be put back, empty if it can."""
        spec = self.specs.get(letter.source)
        if not isinstance(spec, FilesSource | JournalSource):
            return "its source takes no records back"
        if letter.step != letter.source:
            return self._why_not_original(letter) if whole_record else _PASSED
        if not letter.record:
            return "it stands for a part of a file that cannot be read at all; give a mended file a new name"
        if len(letter.record) >= RECORD_CHARACTERS_MAX:
            return "only its beginning is kept"
        assert isinstance(spec, FilesSource), "a journal takes only what parses"
        if not fnmatchcase(_file_name(letter, letter.number).name, spec.pattern):
            return f"the source reads files like {spec.pattern}, and a new one beside {letter.partition} is none"
        return ""

    def perform(self, letters: Sequence[Letter]) -> None:
        """Nothing here may depend on anything but the letters: it may be the second time."""
        groups: dict[tuple[str, str, bool], list[Letter]] = {}
        for letter in letters:
            is_line = letter.step == letter.source
            groups.setdefault((letter.source, letter.partition if is_line else "", is_line), []).append(letter)
        for (source, _, is_line), group in groups.items():
            spec = self.specs[source]
            if is_line:
                assert isinstance(spec, FilesSource)
                self._write(spec, group[0], _lines_of(group, spec.format), len(group))
            else:
                self._put_originals(source, spec, group)

    def _put_originals(self, source: str, spec: object, letters: list[Letter]) -> None:
        """A record may have failed in several steps, or several times in one: it goes back once."""
        where = sorted({(one.partition, one.offset) for one in letters})
        originals = pa.concat_tables([self._original(source, spec, *one) for one in where])
        if isinstance(spec, JournalSource):
            journal = open_journal(self.place.store, spec.name)
            try:
                journal.append_once(
                    originals.cast(journal.schema), f"{journal_name(self.place.job)}/{letters[0].number}"
                )
            finally:
                journal.close()
            self._note(f"journal {spec.name}", originals.num_rows)
        else:
            assert isinstance(spec, FilesSource)
            self._write(spec, letters[0], _file_of(originals, spec.format), originals.num_rows)

    def _why_not_original(self, letter: Letter) -> str:
        try:
            self._original(letter.source, self.specs[letter.source], letter.partition, letter.offset)
        except (LockstepError, AssertionError) as error:
            return f"its record is gone: {error.fact if isinstance(error, LockstepError) else error}"
        return ""

    def _original(self, source: str, spec: object, partition: str, offset: int) -> pa.Table:
        """The record as the source had it."""
        assert isinstance(spec, SourceSpec)
        bits = ROWS_PER_CHUNK_BITS if isinstance(spec, FilesSource) else 0
        position, row = offset >> bits, offset & ((1 << bits) - 1)
        side = source_side(spec, self.place, source)
        try:
            pieces = [
                piece
                for piece in side.slices({partition: position}, {partition: position + 1})
                if piece.partition == partition
            ]
            table = pa.Table.from_batches([batch for piece in pieces for batch in side.read(piece)])
        finally:
            side.close()
        return table.slice(row, 1)

    def _write(self, spec: FilesSource, first: Letter, data: bytes, records: int) -> None:
        folder = self.place.project / spec.path
        named = first if first.step == first.source else _beside(first, spec)
        path = inside(folder, str(_file_name(named, first.number)))
        with disk_trouble(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            put_if_absent(path, path.with_name(f".{path.name}.tmp"), data)
        self._note(str(path), records)

    def _note(self, where: str, records: int) -> None:
        self.done.records += records
        self.done.places.append(where)


_PASSED = (
    "a function could not take it: put back, its record goes through the whole job again, also through the steps that "
    "had taken it (--whole-record does that)"
)


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


def _lines_of(letters: list[Letter], format: str) -> bytes:
    records = [letter.record for letter in letters]
    if format == "csv":
        header = records[0].partition("\n")[0]
        records = [header, *(record.partition("\n")[2] for record in records)]
    return "".join(f"{record}\n" for record in records).encode()


def _file_of(table: pa.Table, format: str) -> bytes:
    if format == "jsonl":
        return json_lines(table)
    buffer = io.BytesIO()
    if format == "csv":
        pa.csv.write_csv(table, buffer)
    else:
        pq.write_table(table, buffer)
    return buffer.getvalue()
