"""Outputs as tables of rows that compare without regard to order, and say where they differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, overload

import pyarrow as pa

from lockstep.store.values import Unfit, record_converter

Row = dict[str, Any]
ROWS_SHOWN_MAX = 10
"""Rows of each kind in the description of a difference: enough to see the pattern."""


class Rows(Sequence[Row]):
    """Rows of an output. Equal to any list of dicts with the same rows, in whatever order.

    Times may be written as ISO 8601 text on the other side of ``==``: they are read as the column's type says.

    >>> found = rows([{"user": "ann", "n": 1}, {"user": "bob", "n": 2}])
    >>> found == [{"user": "bob", "n": 2}, {"user": "ann", "n": 1}]
    True
    >>> found.column("user")
    ['ann', 'bob']
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        """The same as an Arrow table."""
        self._rows: list[Row] = table.to_pylist(maps_as_pydicts="strict")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.table.column_names)

    def column(self, name: str) -> list[Any]:
        """The values of one column."""
        return [row[name] for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return not differences(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = "".join(f"\n  {_shown(row)}" for row in self._rows[:ROWS_SHOWN_MAX])
        more = len(self._rows) - ROWS_SHOWN_MAX
        return f"<{len(self._rows)} rows{lines}{f'{chr(10)}  and {more} more' if more > 0 else ''}>"


def rows(records: Iterable[Mapping[str, Any]], schema: pa.Schema | None = None) -> Rows:
    """Rows from dicts; their types are guessed where no Arrow schema is given.

    >>> len(rows([{"n": 1}, {"n": 2}]))
    2
    """
    return Rows(pa.Table.from_pylist([dict(record) for record in records], schema))


def assert_same_rows(actual: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> None:
    """Fail, with the rows that differ, unless both have the same rows, in whatever order.

    >>> assert_same_rows(rows([{"user": "ann", "n": 2}]), [{"user": "ann", "n": 3}])
    Traceback (most recent call last):
    ...
    AssertionError: the rows differ: 0 as expected, 1 missing, 1 unexpected
      missing     user='ann', n=3
      unexpected  user='ann', n=2   (n was expected to be 3)
    """
    found = differences(actual, expected)
    if found:
        raise AssertionError("\n".join(found))


def differences(actual: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is different, in lines for people; empty if nothing is."""
    schema = next((side.table.schema for side in (actual, expected) if isinstance(side, Rows)), None)
    ours = [_typed(row, schema) for row in actual]
    theirs = [_typed(row, schema) for row in expected]
    if (columns := _column_differences(ours, theirs, schema)) is not None:
        return columns
    mine, wanted = Counter(map(_canonical, ours)), Counter(map(_canonical, theirs))
    unexpected = _left_over(ours, mine - wanted)
    missing = _left_over(theirs, wanted - mine)
    if not missing and not unexpected:
        return []
    same = len(ours) - len(unexpected)
    head = f"the rows differ: {same} as expected, {len(missing)} missing, {len(unexpected)} unexpected"
    return [
        head,
        *_listed("missing", missing, []),
        *_listed("unexpected", unexpected, missing),
    ]


def _column_differences(actual: list[Row], expected: list[Row], schema: pa.Schema | None) -> list[str] | None:
    """The rows of a table have one set of columns: a row that was written with other ones is told apart first."""
    if schema is not None:
        columns = schema.names
    elif actual:
        columns = list(actual[0])
    else:
        return None
    for row in (*actual, *expected):
        absent = [name for name in columns if name not in row]
        extra = [name for name in row if name not in columns]
        if absent or extra:
            parts = [f"has no {', '.join(absent)}" if absent else "", f"has {', '.join(extra)}" if extra else ""]
            return [
                f"the columns differ: a row {' and '.join(part for part in parts if part)}",
                f"  columns     {', '.join(columns)}",
                f"  the row     {_shown(row)}",
            ]
    return None


def _typed(row: Mapping[str, Any], schema: pa.Schema | None) -> Row:
    """A row as the column's types read it: "2026-01-01" is a date in a column of dates."""
    if schema is None or set(row) != set(schema.names):
        return dict(row)
    try:
        converted = record_converter(schema)(row)
        typed = pa.Table.from_pylist([{name: converted[name] for name in schema.names}], schema)
    except (Unfit, AssertionError, pa.ArrowException, TypeError):
        # It does not fit the columns, so it is different from every row that does: shown as it was written.
        return dict(row)
    read: Row = typed.to_pylist(maps_as_pydicts="strict")[0]
    return read


def _canonical(value: Any) -> Any:
    """Equal for equal values, whatever they are made of, and hashable."""
    if isinstance(value, Mapping):
        return ("map", tuple(sorted(((str(key), _canonical(each)) for key, each in value.items()), key=repr)))
    if isinstance(value, list | tuple):
        return ("list", tuple(_canonical(each) for each in value))
    if isinstance(value, datetime):
        return ("time", value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, bool | date):
        return (type(value).__name__, value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value


def _left_over(rows_given: list[Row], counts: Counter[Any]) -> list[Row]:
    left = []
    for row in rows_given:
        key = _canonical(row)
        if counts[key] > 0:
            counts[key] -= 1
            left.append(row)
    return left


def _listed(kind: str, rows_given: list[Row], wanted: list[Row]) -> list[str]:
    lines = [f"  {kind:<10}  {_shown(row)}{_nearest(row, wanted)}" for row in rows_given[:ROWS_SHOWN_MAX]]
    more = len(rows_given) - ROWS_SHOWN_MAX
    return [*lines, f"  {kind:<10}  and {more} more"] if more > 0 else lines


def _nearest(row: Row, wanted: list[Row]) -> str:
    """What would have to change to make it the missing row that is most like it."""

    def unlike(other: Row) -> list[str]:
        return [name for name in row if _canonical(row[name]) != _canonical(other.get(name))]

    nearest = min(wanted, key=lambda other: len(unlike(other)), default=None)
    if nearest is None or len(unlike(nearest)) > max(1, len(row) // 2):
        return ""
    changes = ", ".join(f"{name} was expected to be {_value(nearest.get(name))}" for name in unlike(nearest))
    return f"   ({changes})"


def _shown(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in row.items()) or "(no columns)"


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        zoned = value.astimezone(UTC) if value.tzinfo else value
        return zoned.isoformat(sep=" ").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return repr(value)
