"""Random queries of queries: aggregates of aggregates, by keys or by the aggregates themselves, with WHERE and HAVING.

The same text is a query for Lockstep and for DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

EVENTS = "a string, b string, n bigint"
LEVELS_MAX = 3


@dataclass(frozen=True)
class Query:
    """A query whose rows are told apart by ``key``; numbers that are whole can be compared with whole ones."""

    text: str
    key: tuple[str, ...]
    whole: tuple[str, ...]
    floats: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.whole, *self.floats)


def nested_query(chance: Random) -> Query:
    """One with two or three levels, or with a condition on its aggregates."""
    made = _grouped(chance, Query("SELECT * FROM events", ("a", "b"), ("n",)), 0)
    levels = chance.choice([1, 2, 2, LEVELS_MAX])
    for level in range(1, levels):
        made = _grouped(chance, made, level)
    if levels > 1 and chance.random() < 0.5:
        return made
    text = f"SELECT * FROM ({made.text}) AS held WHERE {_condition(chance, made)}"
    return Query(text, made.key, made.whole, made.floats)


def _grouped(chance: Random, source: Query, level: int) -> Query:
    # Of the records both columns; later also what was computed, so that rows go from group to group.
    choices = list(source.key if level == 0 else (*source.key, *source.whole))
    keys = chance.sample(choices, 2 if level == 0 else min(len(choices), chance.choice([1, 1, 2])))
    names = tuple(f"k{level}_{number}" for number in range(len(keys)))
    values = [_aggregate(chance, source) for _ in range(2)]
    selected = [f"{column} AS {name}" for column, name in zip(keys, names, strict=True)]
    selected += [f"{value} AS v{level}_{number}" for number, (value, _) in enumerate(values)]
    where = f" WHERE {_condition(chance, source)}" if level and chance.random() < 0.4 else ""
    having = f" HAVING {_having(chance, source)}" if chance.random() < 0.5 else ""
    text = f"SELECT {', '.join(selected)} FROM ({source.text}) AS s{level}{where} GROUP BY {', '.join(keys)}{having}"
    found = {f"v{level}_{number}": whole for number, (_, whole) in enumerate(values)}
    whole = tuple(name for name, is_whole in found.items() if is_whole)
    return Query(text, names, whole, tuple(name for name, is_whole in found.items() if not is_whole))


def _aggregate(chance: Random, source: Query) -> tuple[str, bool]:
    """An aggregate, and whether it is a whole number."""
    if not source.whole or chance.random() < 0.2:
        return "count(*)", True
    function = chance.choice(["sum({})", "min({})", "max({})", "count({})", "count(DISTINCT {})", "avg({})"])
    column = chance.choice([*source.whole, *source.floats])
    is_whole = function.startswith("count") or (column in source.whole and not function.startswith("avg"))
    return function.format(column), is_whole


def _having(chance: Random, source: Query) -> str:
    if not source.whole:
        return "count(*) < 3"
    column = chance.choice(source.whole)
    return chance.choice(
        [f"sum({column}) % 2 = 0", f"max({column}) < 3", "count(*) < 4", f"min({column}) > -3 OR count(*) = 1"]
    )


def _condition(chance: Random, source: Query) -> str:
    if not source.whole:
        return f"{source.key[0]} IS NOT NULL"
    column = chance.choice(source.whole)
    return chance.choice(
        [f"{column} % 2 = 0", f"{column} < 3", f"{column} IS NULL OR {column} > 1", f"{column} BETWEEN -2 AND 2"]
    )
