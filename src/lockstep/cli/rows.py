"""Records for people and for programs: aligned columns as they come, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

CELL_CHARACTERS_MAX = 60
"""Longer values are cut in the aligned view; --json has them whole."""


class RowPrinter:
    """Prints rows in columns that grow as wider values come; the header once, before the first row."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._widths = [len(name) for name in names]
        self._has_header = False

    def print(self, row: Mapping[str, object]) -> None:
        """One line on stdout."""
        cells = [_cell(row[name]) for name in self._names]
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)]
        if not self._has_header:
            self._write(self._names)
            self._has_header = True
        self._write(cells)

    def _write(self, cells: Sequence[str]) -> None:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
        sys.stdout.flush()


def json_row(row: Mapping[str, object]) -> dict[str, object]:
    """A record with values that JSON has: times in ISO 8601, decimals as text, bytes in hexadecimal.

    >>> json_row({"at": datetime(2024, 5, 1, 12, 30), "price": Decimal("1.50"), "raw": b"\\x01\\xff", "n": 3})
    {'at': '2024-05-01T12:30:00', 'price': '1.50', 'raw': '01ff', 'n': 3}
    """
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    return value


def _cell(value: object) -> str:
    simple = _json_value(value)
    text = simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False, default=str)
    text = text.replace("\n", "\\n")
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + "…"
