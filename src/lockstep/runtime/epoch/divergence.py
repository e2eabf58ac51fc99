"""When two replicas' digests of an epoch differ: are the rows really different, and which?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

RELATIVE_TOLERANCE = 1e-9
"""Float sums of a million addends in another order differ by about 1e-12 of their value; this leaves three digits."""
_ROWS_SHOWN = 3
Row = tuple[Any, ...]


def differing_rows(ours: pa.Table, theirs: pa.Table) -> tuple[list[Row], list[Row]]:
    """The rows only we have and those only they have, as multisets; floats are compared with a relative tolerance.

    >>> left, right = (pa.table({"k": ["a", "b"], "x": [1.0, n]}) for n in (2.0, 2.0 + 1e-13))
    >>> differing_rows(left, right)
    ([], [])
    >>> differing_rows(left, pa.table({"k": ["a", "b"], "x": [1.0, 3.0]}))
    ([('b', 2.0)], [('b', 3.0)])
    """
    left, right = Counter(_rows(ours)), Counter(_rows(theirs))
    only_left = sorted((left - right).elements(), key=_sort_key)
    only_right = sorted((right - left).elements(), key=_sort_key)
    if len(only_left) == len(only_right) and all(map(_close, only_left, only_right)):
        return [], []
    return only_left, only_right


def describe(
    epoch: int, sink: str, ours: Sequence[Row] | None, theirs: Sequence[Row] | None, python_steps: Sequence[str]
) -> str:
    """What a person should read about a divergence."""
    lines = [f'epoch {epoch}, sink "{sink}":', *contrast(ours, theirs)]
    if python_steps:
        lines.append(f"  steps that run Python, where to look first: {', '.join(python_steps)}")
    else:
        lines.append("  no step runs Python: suspect the machine (memory, disk) or a Spark setting")
    return "\n".join(lines)


def contrast(ours: Sequence[Row] | None, theirs: Sequence[Row] | None) -> list[str]:
    """The rows that only one side has, the first of them, as lines."""
    if ours is None or theirs is None:
        return [
            "  only digests were compared: there are too many rows, or the sink cannot give back those of one epoch"
        ]
    lines = [f"  {len(ours)} row(s) only here, {len(theirs)} only in the published copy; the first of them:"]
    lines += [f"    here:      {row!r}" for row in ours[:_ROWS_SHOWN]]
    return lines + [f"    published: {row!r}" for row in theirs[:_ROWS_SHOWN]]


def _rows(table: pa.Table) -> list[Row]:
    columns = [[_hashable(value) for value in table.column(name).to_pylist()] for name in table.schema.names]
    return list(zip(*columns, strict=True))


def _hashable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(sorted((key, _hashable(item)) for key, item in value.items()))
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return value


def _sort_key(row: Row) -> str:
    return repr(tuple(f"{value:.6g}" if isinstance(value, float) else value for value in row))


def _close(left: Row, right: Row) -> bool:
    return all(map(_same, left, right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and _close(left, right)
    return bool(left == right)
