"""Dead letters: records that could not be read, or that a Python function could not take, each with the reason.

They are in a journal of the job's, ``JOB.dead-letters`` (on several hosts in a topic, ``connect/kafka/letters.py``).
Every replica meets the same bad record, and again after a crash; the journal keeps it once, by a key made of the
record's position. Nothing is ever trimmed there: a letter waits until a person has put it back or dismissed it, and a
job with too many that wait stops (``dead_letters_max``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from lockstep.errors import StoreError
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import JOURNAL_FILE, JOURNALS_FOLDER, SqliteJournal, open_journal
from lockstep.store.protocols import Facts

SUFFIX = ".dead-letters"
SCHEMA = (
    "step string, source string, partition string, offset bigint, record string, error string, "
    "reading string, raw string"
)
_ANOTHER_SCHEMA = "LS0409"
HANDLED = "dead-letters-handled"
"""Fact: what people have done with dead letters, a list of :class:`Handling`."""
RECORD_CHARACTERS_MAX = 1_000_000
"""So much of a record is kept; a longer one is cut, and its letter says so."""


@dataclass(frozen=True)
class Letter:
    """One record that was set aside. ``number`` is its place in the journal of dead letters."""

    step: str
    """The step that could not take it; for a record that does not parse, its source."""
    source: str
    partition: str
    """For a record of a file, the file (relative to the source's folder)."""
    offset: int
    """For a record of a file, its line."""
    record: str
    """As it came: the line of a file, a CSV row below its header; for a function, the record as JSON."""
    error: str
    reading: str = ""
    """For a record that a function could not take: how its source was read, which says what ``offset`` counts."""
    raw: str = ""
    """The bytes in base64, if they are not UTF-8: then ``record`` only shows them. A CSV row's without its header."""
    number: int = -1


@dataclass(frozen=True)
class Handling:
    """What is done with some letters, noted before: a second call ends it instead of doing it again."""

    numbers: tuple[int, ...]
    how: str
    """``put-back`` or ``dismissed``."""
    done: bool = False


def journal_name(job: str) -> str:
    """The dead-letter journal of a job.

    >>> journal_name("logins")
    'logins.dead-letters'
    """
    return f"{job}{SUFFIX}"


def readable(record: bytes) -> str:
    r"""A record as text, whatever its bytes are, and not beyond what is kept.

    >>> readable(b'{"user": "\xff"}')
    '{"user": "\\xff"}'
    """
    return record[: 4 * RECORD_CHARACTERS_MAX].decode(errors="backslashreplace")[:RECORD_CHARACTERS_MAX]


def raw_bytes(record: bytes) -> str:
    r"""What a letter has to keep beside the readable text, so that not a byte is changed when it is put back.

    >>> raw_bytes(b"caf\xe9,1"), raw_bytes(b"text")
    ('Y2Fm6Swx', '')
    """
    try:
        record.decode()
    except UnicodeDecodeError:
        return base64.b64encode(record).decode() if len(readable(record)) < RECORD_CHARACTERS_MAX else ""
    return ""


def open_letters(store: Path, name: str) -> SqliteJournal:
    """Open a journal of letters, made if it is not there. One of an older release keeps the columns it has."""
    try:
        return open_journal(store, name, parse_schema(SCHEMA))
    except StoreError as error:
        if error.code != _ANOTHER_SCHEMA:
            raise
        return open_journal(store, name)


def rows(letters: Iterable[Letter]) -> list[dict[str, Any]]:
    """Letters as their journal keeps them."""
    return [{name: value for name, value in asdict(letter).items() if name != "number"} for letter in letters]


@dataclass(frozen=True)
class DeadLetterWriter:
    """Plain data until a worker calls it."""

    store: str
    job: str
    readings: Mapping[str, str] = field(default_factory=dict)
    """How each source is read, by its name."""

    def __call__(self, key: str, step: str, facts: dict[str, Any]) -> None:
        """Keep a record that a function could not take, once."""
        self.keep(key, [Letter(**{"step": step, "reading": self.readings.get(facts["source"], ""), **facts})])

    def keep(self, key: str, letters: Sequence[Letter]) -> bool:
        """Keep letters that belong together, once: whether they were new under ``key``."""
        journal = open_letters(Path(self.store), journal_name(self.job))
        try:
            return journal.append_once(pa.RecordBatch.from_pylist(rows(letters), journal.schema), json.dumps(key))
        finally:
            journal.close()


def too_many(job: str, waiting: int, most: int, first: Letter) -> StoreError:
    """Why a job stops that has set too much aside."""
    return StoreError(
        "LS0418",
        f"{waiting:,} dead letters of {job} wait, and dead_letters_max is {most:,}",
        why=f"the first is of {first.source}, {first.partition}, {first.offset}: {first.error}.",
        hint=f"lockstep dead-letters {job} lists them; mend the cause, put them back or dismiss them, and run again.",
    )


class LetterBook(Protocol):
    """Where the dead letters of a job are kept, in an order that never changes."""

    def kept(self) -> int:
        """How many there are, handled ones included."""

    def letters(self) -> Iterator[Letter]:
        """All of them in order, with their numbers."""

    def close(self) -> None:
        """Give back what is open."""


class JournalLetters:
    """Dead letters in a journal of this host."""

    def __init__(self, store: Path, job: str) -> None:
        self._store = store
        self._job = job
        self._journal: SqliteJournal | None = None

    def _opened(self) -> SqliteJournal | None:
        """None while nothing was ever set aside: most jobs never have the journal."""
        path = self._store / JOURNALS_FOLDER / journal_name(self._job) / JOURNAL_FILE
        if self._journal is None and path.exists():
            self._journal = open_letters(self._store, journal_name(self._job))
        return self._journal

    def kept(self) -> int:
        """How many there are."""
        journal = self._opened()
        return journal.ends()[0] if journal is not None else 0

    def letters(self) -> Iterator[Letter]:
        """All of them in order, with their numbers."""
        journal = self._opened()
        if journal is None:
            return
        rows = (row for batch in journal.read(0, 0, journal.ends()[0]) for row in batch.to_pylist())
        for number, row in enumerate(rows):
            yield Letter(**row, number=number)

    def close(self) -> None:
        """Close the journal if it was opened."""
        if self._journal is not None:
            self._journal.close()
        self._journal = None


class DeadLetters:
    """The dead letters of one job, and what became of them."""

    def __init__(self, store: Path, job: str, facts: Facts, book: LetterBook | None = None) -> None:
        self._job = job
        self._facts = facts
        self._book = book or JournalLetters(store, job)

    def kept(self) -> int:
        """How many there are, handled ones included."""
        return self._book.kept()

    def open(self) -> int:
        """How many wait for somebody."""
        kept = self.kept()
        return kept - sum(len(one.numbers) for one in self.handlings()) if kept else 0

    def letters(self, *, handled: bool = False) -> Iterator[Letter]:
        """The open ones in order, with ``handled`` all of them."""
        gone = set() if handled else {number for one in self.handlings() for number in one.numbers}
        return (one for one in self._book.letters() if one.number not in gone)

    def handlings(self) -> list[Handling]:
        """What people have done with letters, in order."""
        return _handlings(self._facts.fact(HANDLED))

    def begin(self, letters: Iterable[Letter], how: str) -> Handling:
        """Note what is about to be done with open letters; LS0419 if somebody else was quicker."""
        before = self._facts.fact(HANDLED)
        wanted = Handling(tuple(letter.number for letter in letters), how)
        taken = {number for one in _handlings(before) for number in one.numbers}
        if taken & set(wanted.numbers) or not self._facts.swap_fact(
            HANDLED, before, _text([*_handlings(before), wanted])
        ):
            raise StoreError(
                "LS0419",
                f"somebody else is handling dead letters of {self._job} at the same time",
                why="each letter is put back or dismissed once, so only one of two calls may have it.",
                hint=f"look again: lockstep dead-letters {self._job}.",
            )
        return wanted

    def release(self, handling: Handling, numbers: Collection[int]) -> Handling:
        """Let some of its letters wait again: it cannot be done for them. What is left of it."""
        left = tuple(number for number in handling.numbers if number not in numbers)
        return self._replaced(handling, Handling(left, handling.how))

    def end(self, handling: Handling) -> None:
        """Note that it is done."""
        self._replaced(handling, Handling(handling.numbers, handling.how, done=True))

    def _replaced(self, handling: Handling, by: Handling) -> Handling:
        while True:
            before = self._facts.fact(HANDLED)
            after = [by if one == handling else one for one in _handlings(before)]
            if self._facts.swap_fact(HANDLED, before, _text(after)):
                return by

    def close(self) -> None:
        """Give back what is open."""
        self._book.close()


def _handlings(text: str | None) -> list[Handling]:
    """Numbers are kept as ranges: people handle thousands at a time.

    >>> _handlings(_text([Handling((1, 2, 3, 7), "put-back")]))
    [Handling(numbers=(1, 2, 3, 7), how='put-back', done=False)]
    """
    return [
        Handling(tuple(number for first, end in ranges for number in range(first, end)), how, done)
        for ranges, how, done in json.loads(text or "[]")
    ]


def _text(handlings: Iterable[Handling]) -> str:
    return json.dumps([[_ranges(one.numbers), one.how, one.done] for one in handlings])


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1][1] = number + 1
        else:
            found.append([number, number + 1])
    return found
