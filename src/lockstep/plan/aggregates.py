"""What each aggregate means: the one table that Spark's side and Lockstep's own side are both held to.

An aggregate is computed by Spark (`compile/aggregates.py`) or by Lockstep, record by record (`keyed/accumulators.py`).
Where both can do it they give the same result, to the last bit and for every order of the records; a test runs random
input through both and through a reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Takes = Literal["anything", "ordered", "number", "whole", "boolean"]
"""What the values are: of any type, of one with an order, numbers, whole numbers, booleans."""
Gives = Literal["bigint", "double", "as it is", "array", "sum", "average"]
"""The type of the result: one for all, the type of the first value, an array of it, or widened as Spark widens it."""
By = Literal["spark", "lowered", "lockstep"]
"""Who computes it: Spark as it is, Spark in other words that make it free of order, or Lockstep record by record."""
Moves = Literal["up", "down", ""]
"""How the result of a key can change with more records: only up, only down, or either way."""


@dataclass(frozen=True)
class Meaning:
    """One aggregate. Nulls are passed over by all but ``first`` and ``last`` (and ``count("*")``)."""

    takes: Takes
    gives: Gives
    by: By
    empty: Any = None
    """The result over no value at all, or over nulls only."""
    inputs: tuple[int, int | None] = (1, 1)
    """The fewest and the most arguments."""
    moves: Moves = ""
    repeats: bool = False
    """Whether it is the same when a value comes again."""
    ordered: bool = False
    """Whether it depends on the order of records; that is then the order of their times and positions."""
    also: tuple[str, ...] = ()
    """Other names of it."""


_SPREAD = Meaning("number", "double", "lockstep")
_PAIRS = Meaning("number", "double", "lockstep", inputs=(2, 2))

MEANINGS: dict[str, Meaning] = {
    "count": Meaning("anything", "bigint", "spark", empty=0, moves="up"),
    "count_if": Meaning("boolean", "bigint", "spark", empty=0, moves="up"),
    "count_distinct": Meaning("ordered", "bigint", "lowered", empty=0, inputs=(1, None), moves="up", repeats=True),
    # Not "up": where the estimate goes from one formula to the other it can fall by a little.
    "approx_count_distinct": Meaning("anything", "bigint", "spark", empty=0, inputs=(1, 2), repeats=True),
    "sum": Meaning("number", "sum", "lowered"),
    "avg": Meaning("number", "average", "lowered", also=("mean",)),
    "min": Meaning("ordered", "as it is", "lowered", moves="down", repeats=True),
    "max": Meaning("ordered", "as it is", "lowered", moves="up", repeats=True),
    "min_by": Meaning("ordered", "as it is", "lockstep", inputs=(2, 2), ordered=True),
    "max_by": Meaning("ordered", "as it is", "lockstep", inputs=(2, 2), ordered=True),
    "bool_and": Meaning("boolean", "as it is", "spark", moves="down", repeats=True, also=("every",)),
    "bool_or": Meaning("boolean", "as it is", "spark", moves="up", repeats=True, also=("some", "any")),
    "bit_and": Meaning("whole", "as it is", "spark", repeats=True),
    "bit_or": Meaning("whole", "as it is", "spark", repeats=True),
    "bit_xor": Meaning("whole", "as it is", "spark"),
    "collect_set": Meaning("ordered", "array", "lowered", empty=(), repeats=True),
    "collect_list": Meaning("anything", "array", "lockstep", empty=(), ordered=True, also=("array_agg",)),
    "first": Meaning(
        "anything", "as it is", "lockstep", inputs=(1, 2), ordered=True, also=("first_value", "any_value")
    ),
    "last": Meaning("anything", "as it is", "lockstep", inputs=(1, 2), ordered=True, also=("last_value",)),
    "median": Meaning("number", "double", "lowered"),
    "percentile": Meaning("number", "double", "lowered", inputs=(2, 2)),
    "var_pop": _SPREAD,
    "var_samp": Meaning("number", "double", "lockstep", also=("variance",)),
    "stddev_pop": _SPREAD,
    "stddev_samp": Meaning("number", "double", "lockstep", also=("stddev", "std")),
    "covar_pop": _PAIRS,
    "covar_samp": _PAIRS,
    "corr": _PAIRS,
}
"""All aggregates there are, by their names in ``F`` and in SQL."""

_NAMES = {name: name for name in MEANINGS} | {
    other: name for name, meaning in MEANINGS.items() for other in meaning.also
}


def canonical(function: str) -> str:
    """The name in the table of a function that may be written in another way; as it is if the table has none.

    >>> canonical("stddev"), canonical("Mean"), canonical("lower")
    ('stddev_samp', 'avg', 'lower')
    """
    return _NAMES.get(function.lower(), function)


def meaning_of(function: str) -> Meaning | None:
    """What a function means, by any of its names; None if it is no aggregate of the table."""
    return MEANINGS.get(canonical(function))


def names_by(*computed_by: By) -> frozenset[str]:
    """All names of the aggregates that are computed so."""
    return frozenset(name for name, known in _NAMES.items() if MEANINGS[known].by in computed_by)


def moving(way: Moves) -> frozenset[str]:
    """The aggregates (by their names in the table) whose results move only that way."""
    return frozenset(name for name, meaning in MEANINGS.items() if meaning.moves == way)
