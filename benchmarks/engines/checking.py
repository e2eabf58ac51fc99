"""Results compared with the right ones: what was lost, what came more than once, what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.engines.contract import CLOSING_MS, Results, Row, Workload

EXAMPLES_MAX = 3
_DIGITS = 6
"""Averages are compared to so many digits: engines add in different orders."""

Values = tuple[object, ...]


@dataclass(frozen=True)
class Comparison:
    """How published results differ from the right ones."""

    expected: int
    published: int
    lost: int
    """Results that are missing."""
    repeated: int
    """Rows that a reader saw again, beyond the first time."""
    wrong: int
    """Results with other values than they should have, or that should not be there."""
    examples: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the results are right; rows that came again are counted apart. No result at all proves nothing."""
        return self.expected > 0 and not (self.lost or self.wrong)


def compare(workload: Workload, rows: Iterable[Row], expected: Sequence[Row]) -> Comparison:
    """Published rows, in their order, against the right ones."""
    counted = [row for row in rows if row.get("window_start_ms", 0) < CLOSING_MS]
    if not workload.key:
        return _as_multiset(workload.columns, counted, expected)
    right = {_values(row, workload.key): _values(row, workload.columns) for row in expected}
    last: dict[Values, Values] = {}
    repeated, wrong = 0, []
    seen: set[Values] = set()
    for row in counted:
        key, values = _values(row, workload.key), _values(row, workload.columns)
        repeated += _is_again(workload.results, known=values in seen, had=key in last)
        seen.add(values)
        last[key] = values
    for key, values in last.items():
        if right.get(key) != values:
            wrong.append(f"{values} should be {right[key]}" if key in right else f"{values} should not be there")
    lost = [f"{right[key]} is missing" for key in right if key not in last]
    return Comparison(len(right), len(counted), len(lost), repeated, len(wrong), tuple((lost + wrong)[:EXAMPLES_MAX]))


def _is_again(results: Results, *, known: bool, had: bool) -> bool:
    """Whether a row has come before. Of updates only those that are like an earlier one; of anything final, any."""
    if results is Results.REVISIONS:
        return False
    return known if results is Results.UPDATES else had


def _as_multiset(columns: tuple[str, ...], rows: Sequence[Row], expected: Sequence[Row]) -> Comparison:
    """Results without a key: each as often as it should be."""
    found = Counter(_values(row, columns) for row in rows)
    right = Counter(_values(row, columns) for row in expected)
    lost, more = right - found, found - right
    repeated = sum(count for values, count in more.items() if values in right)
    wrong = [values for values in more if values not in right]
    examples = [f"{values} is missing" for values in lost] + [f"{values} should not be there" for values in wrong]
    return Comparison(
        right.total(),
        found.total(),
        lost.total(),
        repeated,
        sum(more[values] for values in wrong),
        tuple(examples[:EXAMPLES_MAX]),
    )


def _values(row: Row, columns: Sequence[str]) -> Values:
    return tuple(round(value, _DIGITS) if isinstance(value := row[name], float) else value for name in columns)
