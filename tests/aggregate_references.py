"""What each aggregate means, a second time: in plain Python over the whole list of values, without any state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor
from typing import Any

Rows = Sequence[tuple[Any, ...]]
Reference = Callable[[Rows], Any]


def known(rows: Rows) -> list[Any]:
    """The values of a single input, without nulls; zero has one sign."""
    return [0.0 if row[0] == 0 and isinstance(row[0], float) else row[0] for row in rows if row[0] is not None]


def spark_order(value: Any) -> Any:
    """NaN after all other numbers."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _sum(rows: Rows) -> Any:
    values = known(rows)
    if not values or not isinstance(values[0], float):
        return sum(values) if values else None
    odd = [value for value in values if not math.isfinite(value)]
    if odd:
        return sum(odd)
    return float(sum(_eighteen_digits(value) for value in values))


def _average(rows: Rows) -> Any:
    values = known(rows)
    total = _sum(rows)
    if total is None:
        return None
    if isinstance(total, Decimal):
        with localcontext(prec=80, rounding=ROUND_HALF_UP):
            # Divided to 39 digits after the point, then rounded to four more than the type has.
            exact = (total / len(values)).quantize(Decimal(1).scaleb(-39))
            return exact.quantize(Decimal(1).scaleb(total.as_tuple().exponent - 4))  # type: ignore[operator]
    return float(total) / len(values)


def _eighteen_digits(value: float) -> Fraction:
    with localcontext(prec=80, rounding=ROUND_HALF_UP):
        return Fraction(Decimal(repr(value)).quantize(Decimal(1).scaleb(-18)))


def _different(rows: Rows) -> int:
    found = [tuple(map(spark_order, row)) for row in rows if None not in row]
    return len(set(found))


def _set(rows: Rows) -> list[Any]:
    return [value for value, _ in _counted(known(rows))]


def _counted(values: list[Any]) -> list[tuple[Any, int]]:
    ordered = sorted(values, key=spark_order)
    keys = sorted({spark_order(value) for value in values})
    firsts = {spark_order(value): value for value in ordered}
    return [(firsts[key], sum(1 for value in ordered if spark_order(value) == key)) for key in keys]


def _percentile(fraction: float) -> Reference:
    def found(rows: Rows) -> float | None:
        values = sorted(map(float, known(rows)), key=spark_order)
        if not values:
            return None
        place = (len(values) - 1) * fraction
        low, high = values[math.floor(place)], values[math.ceil(place)]
        if spark_order(low) == spark_order(high):
            return low
        return low + (place - math.floor(place)) * (high - low)

    return found


def _spread(*, sample: bool, root: bool = False) -> Reference:
    together = _together(sample=sample)

    def found(rows: Rows) -> float | None:
        value = together([(row[0], row[0]) for row in rows])
        return math.sqrt(value) if root and value is not None and not math.isnan(value) else value

    return found


def _together(*, sample: bool) -> Reference:
    """The definition: products of the distances from the means, added up as fractions."""

    def found(rows: Rows) -> float | None:
        pairs = [row for row in rows if None not in row]
        if len(pairs) < 1 + sample:
            return None
        if not _finite(pairs):
            return math.nan
        return _rounded(_products(pairs) / (len(pairs) - sample))

    return found


def _correlation(rows: Rows) -> float | None:
    pairs = [row for row in rows if None not in row]
    if len(pairs) < 2:
        return None
    if not _finite(pairs):
        return math.nan
    spread = _products([(x, x) for x, _ in pairs]) * _products([(y, y) for _, y in pairs])
    together = _products(pairs)
    if not spread:
        return None
    return math.sqrt(_rounded(together**2 / spread)) * (1 if together >= 0 else -1)


def _products(pairs: Rows) -> Fraction:
    exact = [(Fraction(x), Fraction(y)) for x, y in pairs]
    x_mean, y_mean = (sum(column) / len(pairs) for column in zip(*exact, strict=True))
    return sum(((x - x_mean) * (y - y_mean) for x, y in exact), Fraction(0))


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _finite(pairs: Rows) -> bool:
    return all(math.isfinite(value) for row in pairs for value in row)


def _best(*, largest: bool) -> Reference:
    def found(rows: Rows) -> Any:
        values = sorted(known(rows), key=spark_order, reverse=largest)
        return values[0] if values else None

    return found


def _best_by(*, largest: bool) -> Reference:
    def found(rows: Rows) -> Any:
        pairs = [row for row in rows if row[1] is not None]
        return sorted(pairs, key=lambda row: spark_order(row[1]), reverse=largest)[0][0] if pairs else None

    return found


def _folded(together: Callable[[Any, Any], Any]) -> Reference:
    return lambda rows: reduce(together, known(rows)) if known(rows) else None


REFERENCES: dict[str, Reference] = {
    "count": lambda rows: sum(1 for row in rows if None not in row),
    "count_if": lambda rows: sum(1 for row in rows if row[0]),
    "count_distinct": _different,
    "sum": _sum,
    "avg": _average,
    "min": _best(largest=False),
    "max": _best(largest=True),
    "min_by": _best_by(largest=False),
    "max_by": _best_by(largest=True),
    "bool_and": lambda rows: all(known(rows)) if known(rows) else None,
    "bool_or": lambda rows: any(known(rows)) if known(rows) else None,
    "bit_and": _folded(and_),
    "bit_or": _folded(or_),
    "bit_xor": _folded(xor),
    "collect_set": _set,
    "collect_list": lambda rows: [row[0] for row in rows if row[0] is not None],
    "first": lambda rows: rows[0][0] if rows else None,
    "last": lambda rows: rows[-1][0] if rows else None,
    "median": _percentile(0.5),
    "var_pop": _spread(sample=False),
    "var_samp": _spread(sample=True),
    "stddev_pop": _spread(sample=False, root=True),
    "stddev_samp": _spread(sample=True, root=True),
    "covar_pop": _together(sample=False),
    "covar_samp": _together(sample=True),
    "corr": _correlation,
}
"""By name. ``percentile`` is made for its fraction, and ``approx_count_distinct`` is compared with the exact count."""


def percentile(fraction: float) -> Reference:
    """The reference for one percentile."""
    return _percentile(fraction)
