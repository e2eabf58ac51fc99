"""Digests: equal for equal rows in any order, different as soon as one row differs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lockstep.compile.digests import digest_text, hash_columns, hash_sums

Row = tuple[Any, ...]


def _digest(session: SparkSession, ddl: str, rows: list[Row], partitions: int = 1) -> str:
    frame = session.createDataFrame(rows, ddl).repartition(partitions)
    table = frame.select("*", *hash_columns(frame.schema, "out")).toArrow()
    return digest_text(table.num_rows, hash_sums(table))


def test_the_order_of_rows_and_the_number_of_partitions_do_not_show(session: SparkSession) -> None:
    rows: list[Row] = [(f"user {n % 7}", n * 0.1, None if n % 3 else n) for n in range(200)]
    shuffled = random.Random(5).sample(rows, len(rows))
    ddl = "user string, x double, n bigint"
    assert _digest(session, ddl, rows) == _digest(session, ddl, shuffled, partitions=5)


@pytest.mark.parametrize(
    ("ddl", "left", "right"),
    [
        ("a string, n int", [("x", 1), ("y", 2)], [("x", 1), ("y", 3)]),
        ("a string, n int", [("x", 1), ("y", 2)], [("x", 1), ("y", 2), ("y", 2)]),
        ("a string, n int", [("x", 1), ("y", 2)], [("x", 1)]),
        ("a string, n int", [("x", 1), ("y", 2)], [("x", 2), ("y", 1)]),
        ("a string, b string", [("x", None)], [(None, "x")]),
        ("a int, b int", [(None, 0)], [(0, None)]),
        ("a string, b string", [("xy", "z")], [("x", "yz")]),
        ("a int, b int", [(None, None)], []),
        ("a array<int>", [([1, None],)], [([None, 1],)]),
        ("a array<int>", [([],)], [(None,)]),
        ("a array<array<int>>", [([[1], [2]],)], [([[1, 2]],)]),
        ("s struct<a: int, b: int>", [((1, None),)], [((None, 1),)]),
        ("s struct<a: int>", [((None,),)], [(None,)]),
        ("l array<struct<a: int, b: int>>", [([(1, None)],)], [([(None, 1)],)]),
        ("m map<string, int>", [({"a": 1, "b": 2},)], [({"a": 2, "b": 1},)]),
        ("m map<string, int>", [({"a": None},)], [({},)]),
    ],
)
def test_any_difference_shows(session: SparkSession, ddl: str, left: list[Row], right: list[Row]) -> None:
    assert _digest(session, ddl, left) != _digest(session, ddl, right)


def test_what_is_equal_hashes_alike(session: SparkSession) -> None:
    ddl = "x double, m map<string, int>"
    left: list[Row] = [(0.0, {"a": 1, "b": 2}), (float("nan"), None)]
    right: list[Row] = [(float("nan"), None), (-0.0, {"b": 2, "a": 1})]
    assert _digest(session, ddl, left) == _digest(session, ddl, right)
