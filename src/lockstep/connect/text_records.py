"""Where records end in text: lines, and the rows of a CSV file, whose quotes may span lines.

Vectors find the ends quickly where quotes stand as they should: one opens only at the beginning of a field and closes
only at its end. Where one does not (``5" pipe``), a walk field by field decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

Ends = np.ndarray[Any, Any]

_NEWLINE = 10
_QUOTE = ord('"')
_BEFORE_OPENING = np.frombuffer(b',\n"', np.uint8)
_AFTER_CLOSING = np.frombuffer(b',\r\n"', np.uint8)
_FIELD = re.compile(rb'(?:"[^"]*(?:""[^"]*)*("|\Z))?([^,\n]*)(?:([,\n])|\Z)')


_WINDOW_BYTES = 1 << 16
"""So much is looked at with vectors at once; where quotes are doubtful, so much is walked through at most."""


@dataclass(frozen=True)
class Trouble:
    """A line of a CSV text whose quotes cannot be meant as they stand."""

    start: int
    end: int
    """Just after its line end."""
    why: str


@dataclass(frozen=True)
class CsvRows:
    """The rows of a CSV text: where each begins and ends, the last one too if only the text ends there."""

    starts: Ends
    ends: Ends
    troubles: list[Trouble]
    """These lines are in no row."""


def line_ends(data: bytes) -> Ends:
    r"""Positions just after each line end.

    >>> line_ends(b"a\nbc\nd").tolist()
    [2, 5]
    """
    return np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1


def csv_record_ends(data: bytes) -> Ends:
    r"""Positions just after each line end outside quotes; ``data`` begins at a row.

    >>> csv_record_ends(b'1,"a\nb"\n2,c\n').tolist()
    [8, 12]
    """
    ends = line_ends(data)
    quotes = _quotes(data)
    if not len(quotes):
        return ends
    if not _open_properly(data, quotes):
        return _ends_by_field(data)
    outside: Ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return outside


def csv_rows(data: bytes) -> CsvRows:
    r"""The rows of a whole text. Of one whose quotes cannot be meant only the first line is left out.

    A quote that is never closed, or that closes lines later in the middle of something, would swallow rows that are
    well. Every row is found from its beginning alone, so the cost grows with the text, however many are bad.

    >>> csv_rows(b'1,a\n2,b').ends.tolist()
    [4, 7]
    >>> rows = csv_rows(b'1,"a\n2,b\n3,"c\nd"\n')
    >>> rows.starts.tolist(), rows.troubles
    ([5, 9], [Trouble(start=0, end=5, why='a quote is opened and closed in the middle of a field lines later')])
    """
    starts: list[Ends] = [np.empty(0, np.int64)]
    ends: list[Ends] = [np.empty(0, np.int64)]
    troubles: list[Trouble] = []
    at = 0
    while at < len(data):
        cut = _window_end(data, at)
        rows = _ends_by_vectors(data[at:cut])
        if rows is not None and len(rows):
            walked = CsvRows(at + np.append(0, rows[:-1]), at + rows, [])
            at = int(walked.ends[-1])
        else:
            # A row that is longer than a window is walked through alone.
            walked, at = _walked(data, at, cut if rows is None else at + 1)
        starts.append(walked.starts)
        ends.append(walked.ends)
        troubles += walked.troubles
    return CsvRows(np.concatenate(starts), np.concatenate(ends), troubles)


def _window_end(data: bytes, at: int) -> int:
    """The end of the text if it is near, else just after the last line end within a window, or the first behind it."""
    until = at + _WINDOW_BYTES
    if until >= len(data):
        return len(data)
    return data.rfind(b"\n", at, until) + 1 or data.find(b"\n", until) + 1 or len(data)


def _ends_by_vectors(window: bytes) -> Ends | None:
    """The ends of the rows that end within a window; None if a quote stands where none should.

    So no row that is left open is among them, and none of the others can swallow what follows it.
    """
    ends, quotes = line_ends(window), _quotes(window)
    if len(quotes) and not (_open_properly(window, quotes) and _close_properly(window, quotes)):
        return None
    outside: Ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    is_whole = len(quotes) % 2 == 0 and not (len(outside) and outside[-1] == len(window))
    return np.append(outside, len(window)) if is_whole else outside


def _walked(data: bytes, at: int, until: int) -> tuple[CsvRows, int]:
    """The rows that begin before ``until``, field by field, and where the next one begins."""
    starts, ends, troubles = [], [], []
    while at < until:
        end, why = _row(data, at)
        if why:
            end = data.find(b"\n", at) + 1 or len(data)
            troubles.append(Trouble(at, end, why))
        else:
            starts.append(at)
            ends.append(end)
        at = end
    return CsvRows(np.array(starts, np.int64), np.array(ends, np.int64), troubles), at


def _row(data: bytes, at: int) -> tuple[int, str]:
    """Where the row ends that begins here, and why its quotes cannot be meant, empty if they can."""
    while at < len(data):
        field = _FIELD.match(data, at)
        assert field is not None, "the pattern matches anything, at least up to the end"
        closing, after = field.group(1), field.group(2)[:1]
        if closing == b"":
            return at, "a quote is opened and never closed"
        if closing and after not in (b"", b"\r") and data.find(b"\n", at, field.start(1)) >= 0:
            return at, "a quote is opened and closed in the middle of a field lines later"
        at = field.end()
        if field.group(3) == b"\n":
            break
    return at, ""


def _quotes(data: bytes) -> Ends:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == _QUOTE)


def _open_properly(data: bytes, quotes: Ends) -> bool:
    opening = quotes[::2]
    before = np.frombuffer(data, np.uint8)[opening - 1]
    return bool(((opening == 0) | np.isin(before, _BEFORE_OPENING)).all())


def _close_properly(data: bytes, quotes: Ends) -> bool:
    closing = quotes[1::2]
    closing = closing[closing < len(data) - 1]
    return bool(np.isin(np.frombuffer(data, np.uint8)[closing + 1], _AFTER_CLOSING).all())


def _ends_by_field(data: bytes) -> Ends:
    ends, at = [], 0
    while at < len(data):
        field = _FIELD.match(data, at)
        assert field is not None, "the pattern matches anything, at least up to the end"
        at = field.end()
        if field.group(3) == b"\n":
            ends.append(at)
    return np.array(ends, dtype=np.int64)
