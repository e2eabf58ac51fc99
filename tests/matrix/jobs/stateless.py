"""Steps that keep nothing: one record at a time, in expressions and in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lockstep as ls
from lockstep import F
from tests.matrix.case import Case, Expected, Given, Row, Rows
from tests.matrix.inputs import SCHEMA, events, only, two_sides


def expressions(_: Given) -> ls.Job:
    """Everything that is lowered to expressions."""
    job = ls.Job("expressions")
    source = job.source("events", ls.journal("events", schema=SCHEMA, partitions=2))
    source.filter("n >= 1").to(ls.files("out/filtered"), name="filtered")
    changed = source.with_columns(m=F.coalesce("n", F.lit(-1)), half="n div 2").drop("x", "at").rename(k="key")
    changed.to(ls.files("out/changed"), name="changed")
    chosen = source.select("k", upper=F.upper("k"), equal=F.col("big") == F.col("n"), x=F.col("x") * 2)
    chosen.to(ls.files("out/chosen"), name="chosen")
    parts = source.split(low="n < 1", high="big > 0")
    parts.low.select("n").union(parts.high.select("n")).to(ls.files("out/parts"), name="parts")
    parts.rest.select("k", "n").to(ls.files("out/rest"), name="rest_of_it")
    numbers = source.with_columns(numbers=F.array("n", "big")).explode("numbers", as_="number")
    numbers.select("k", "number").to(ls.files("out/exploded"), name="exploded")
    letters = source.explode(letter=F.when(F.col("n") > 0, F.array("k")), outer=True, name="outer")
    letters.select("n", "letter").to(ls.files("out/outer"), name="exploded_outer")
    return job


def expressions_expected(given: Given) -> Expected:
    """Record by record."""
    rows = list(given.records())
    low = [one for one in rows if one[1]["n"] is not None and one[1]["n"] < 1]
    high = [one for one in rows if _is_positive(one[1]["big"]) and not _is_below_one(one[1]["n"])]
    rest = [one for one in rows if not _is_positive(one[1]["big"]) and not _is_below_one(one[1]["n"])]
    return {
        "filtered": [(e, *row.values()) for e, row in rows if row["n"] is not None and row["n"] >= 1],
        "changed": [(e, *only(row, "k", "n", "big"), _or(row["n"], -1), _half(row["n"])) for e, row in rows],
        "chosen": [
            (e, row["k"], _map(str.upper, row["k"]), _equal(row["big"], row["n"]), _map(lambda x: x * 2, row["x"]))
            for e, row in rows
        ],
        "parts": [(e, row["n"]) for e, row in (*low, *high)],
        "rest_of_it": [(e, *only(row, "k", "n")) for e, row in rest],
        "exploded_outer": [(e, row["n"], row["k"] if _is_positive(row["n"]) else None) for e, row in rows],
        "exploded": [(e, row["k"], number) for e, row in rows for number in only(row, "n", "big")],
    }


def _is_positive(value: int | None) -> bool:
    return value is not None and value > 0


def _is_below_one(value: int | None) -> bool:
    return value is not None and value < 1


def _or(value: int | None, other: int) -> int:
    return other if value is None else value


def _half(value: int | None) -> int | None:
    """SQL rounds towards zero."""
    return None if value is None else abs(value) // 2 * (1 if value >= 0 else -1)


def _equal(one: int | None, two: int | None) -> bool | None:
    return None if one is None or two is None else one == two


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else function(value)


def _tripled(record: Row) -> Row:
    return {"k": record["k"], "triple": _map(lambda n: n * 3, record["n"]), "big": record["big"], "at": record["at"]}


def _letters(record: Row) -> Iterator[Row]:
    for letter in record["k"] or "":
        yield {"letter": letter, "n": record["n"]}


def _checked(record: Row) -> Row:
    if record["n"] == 9:
        raise ValueError("nine")
    return {"n": record["n"]}


def _checked_letters(record: Row) -> Iterator[Row]:
    yield {"n": record["n"]}
    yield _checked(record)


def _known(table: pa.Table) -> pa.Table:
    return table.filter(pc.is_valid(table["n"])).select(["k", "n"])


def _strict(table: pa.Table) -> pa.Table:
    if 9 in table["n"].to_pylist():
        raise ValueError("nine")
    return table.select(["n"])


def python(_: Given) -> ls.Job:
    """The same with Python functions."""
    job = ls.Job("python")
    source = job.source("events", ls.journal("events", schema=SCHEMA))
    tripled = source.map(_tripled, schema="k string, triple bigint, big bigint, at timestamp")
    tripled.to(ls.files("out/tripled"), name="tripled")
    source.flat_map(_letters, schema="letter string, n bigint").to(ls.files("out/letters"), name="letters")
    source.map_batches(_known, schema="k string, n bigint").to(ls.files("out/known"), name="known")
    source.map(_checked, schema="n bigint", on_error="skip", name="check").to(ls.files("out/checked"), name="checked")
    strict = source.map_batches(_strict, schema="n bigint", on_error="skip", name="check_batches")
    strict.to(ls.files("out/strict"), name="strict")
    flat = source.flat_map(_checked_letters, schema="n bigint", on_error="skip", name="check_each")
    flat.to(ls.files("out/flat"), name="flat_checked")
    return job


def python_expected(given: Given) -> Expected:
    """The functions themselves, one record after the other."""
    rows = list(given.records())
    return {
        "tripled": [(e, *_tripled(row).values()) for e, row in rows],
        "letters": [(e, *made.values()) for e, row in rows for made in _letters(row)],
        "known": [(e, *only(row, "k", "n")) for e, row in rows if row["n"] is not None],
        "checked": [(e, row["n"]) for e, row in rows if row["n"] != 9],
        "strict": [(e, row["n"]) for e, row in rows if row["n"] != 9],
        "flat_checked": [(e, row["n"]) for e, row in rows if row["n"] != 9 for _ in range(2)],
    }


def united(_: Given) -> ls.Job:
    """Two sources in one stream, whose columns are in another order."""
    job = ls.Job("united")
    left = job.source("left", ls.journal("left", schema=SCHEMA)).select("k", "n", "big")
    right = job.source("right", ls.journal("right", schema=SCHEMA)).select("big", "n", "k")
    left.union(right).to(ls.files("out/both"), name="both")
    return job


def united_expected(given: Given) -> Expected:
    """Both."""
    both: Rows = [(e, *only(row, "k", "n", "big")) for side in ("left", "right") for e, row in given.records(side)]
    return {"both": both}


CASES = [
    Case("expressions", "stateless", expressions, events, expressions_expected),
    Case("Python functions", "stateless", python, events, python_expected),
    Case("union", "stateless", united, two_sides, united_expected),
]
