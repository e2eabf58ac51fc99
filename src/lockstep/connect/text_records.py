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


@dataclass(frozen=True)
class CsvEnds:
    """Positions just after each row of a CSV text, the last one too if only the text ends there."""

    ends: Ends
    doubtful: bool = False
    """Whether a quote stands where none should, or is never closed: then rows are looked at one by one."""


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


def csv_records(data: bytes) -> CsvEnds:
    r"""The rows of a whole text.

    >>> csv_records(b'1,a\n2,b')
    CsvEnds(ends=array([4, 7]), doubtful=False)
    >>> csv_records(b'1,"a\n2,b\n').doubtful
    True
    """
    ends = csv_record_ends(data)
    if data and (not len(ends) or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    quotes = _quotes(data)
    if not len(quotes):
        return CsvEnds(ends)
    return CsvEnds(ends, len(quotes) % 2 == 1 or not (_open_properly(data, quotes) and _close_properly(data, quotes)))


def quote_trouble(record: bytes) -> str:
    r"""Why the quotes of one CSV row cannot be meant as they stand, empty if they can.

    A quote that is never closed, or that closes lines later in the middle of something, swallows rows that are well.

    >>> quote_trouble(b'1,"a\n2,b\n')
    'a quote is opened and never closed'
    >>> quote_trouble(b'1,"a\n2,"b"\n')
    'a quote is opened and closed in the middle of a field lines later'
    >>> quote_trouble(b'1,"a\nb"\n'), quote_trouble(b'1,5" pipe\n')
    ('', '')
    """
    at = 0
    while at < len(record):
        field = _FIELD.match(record, at)
        assert field is not None, "the pattern matches anything, at least up to the end"
        closing, rest = field.group(1), field.group(2)
        if closing == b"":
            return "a quote is opened and never closed"
        if closing and rest.strip(b"\r") and b"\n" in record[at : field.start(1)]:
            return "a quote is opened and closed in the middle of a field lines later"
        at = field.end()
    return ""


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
