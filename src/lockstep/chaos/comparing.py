"""Rows against rows: what is missing, what came twice, what nobody asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

EXAMPLES_SHOWN = 3


@dataclass(frozen=True)
class Comparison:
    """How one sink differs from what it has to hold."""

    sink: str
    expected: int
    found: int
    missing: int
    repeated: int
    """Rows that are right and came too often."""
    wrong: int
    """Rows that should not be there at all."""
    examples: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return self.missing == self.repeated == self.wrong == 0


def compare(sink: str, expected: Iterable[Mapping[str, object]], found: Iterable[Mapping[str, object]]) -> Comparison:
    """Compare all rows, in no order; columns count by name.

    >>> compare("out", [{"n": 1}, {"n": 2}], [{"n": 2}, {"n": 2}, {"n": 3}])
    Comparison(sink='out', expected=2, found=3, missing=1, repeated=1, wrong=1, \
examples=('missing: n=1', 'too often: n=2', 'wrong: n=3'))
    """
    wanted, there = Counter(map(frozen, expected)), Counter(map(frozen, found))
    missing, extra = wanted - there, there - wanted
    repeated = Counter({row: count for row, count in extra.items() if row in wanted})
    wrong = Counter({row: count for row, count in extra.items() if row not in wanted})
    kinds = (("missing", missing), ("too often", repeated), ("wrong", wrong))
    examples = [f"{kind}: {_shown(row)}" for kind, rows in kinds for row in list(rows)[:EXAMPLES_SHOWN]]
    return Comparison(
        sink, wanted.total(), there.total(), missing.total(), repeated.total(), wrong.total(), tuple(examples)
    )


def frozen(value: object) -> Hashable:
    """A value that can be counted; equal for what is equal, whichever way it was computed.

    >>> frozen({"b": [1.0, float("nan")], "a": None}) == frozen({"a": None, "b": [1, float("nan")]})
    True
    """
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), frozen(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, datetime):
        # Spark's times are in UTC, with or without saying so.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, Decimal):
        return value.normalize()
    assert isinstance(value, Hashable), f"{type(value).__name__} is no value of a row"
    return value


def _shown(row: Hashable) -> str:
    if not isinstance(row, tuple):
        return repr(row)
    return ", ".join(f"{name}={value}" for name, value in row)
