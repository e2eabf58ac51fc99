"""Rows compare as sets do, with repetitions, by the types of their columns; and a difference is told."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lockstep.testing import assert_same_rows, rows
from lockstep.testing.fixtures import pytest_assertrepr_compare
from lockstep.testing.tables import Rows, differences

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
ROW: dict[str, Any] = {
    "user": "ann",
    "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
    "day": date(2026, 1, 1),
    "price": Decimal("1.50"),
    "x": math.nan,
    "tags": ["a", None],
    "counts": {"a": 1},
}


def test_order_does_not_matter_and_repetitions_do() -> None:
    found = rows([{"n": 1}, {"n": 2}, {"n": 2}])
    assert found == [{"n": 2}, {"n": 1}, {"n": 2}]
    assert found != [{"n": 1}, {"n": 2}]
    assert found != [{"n": 1}, {"n": 1}, {"n": 2}]
    assert found == rows([{"n": 2}, {"n": 2}, {"n": 1}])
    assert found == [{"n": 2}, {"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"at": "2026-01-01T12:00:00Z"},
        {"at": "2026-01-01 14:00:00+02:00", "day": "2026-01-01", "price": "1.50"},
        {"at": datetime(2026, 1, 1, 12)},
    ],
)
def test_values_may_be_written_as_the_column_reads_them(written: dict[str, Any]) -> None:
    assert rows([ROW], SCHEMA) == [{**ROW, **written}]


@pytest.mark.parametrize(
    "other",
    [
        *({"user": "bob"}, {"user": None}, {"at": "2026-01-01T12:00:01Z"}, {"day": "2026-01-02"}, {"price": "1.51"}),
        *({"x": 0.0}, {"x": None}, {"tags": ["a"]}, {"tags": ["a", ""]}, {"counts": {"a": 2}}, {"counts": {}}),
        {"price": "a text"},
    ],
)
def test_another_value_is_another_row(other: dict[str, Any]) -> None:
    assert rows([ROW], SCHEMA) != [{**ROW, **other}]


def test_no_rows_are_equal_to_no_rows_only() -> None:
    empty = rows([], SCHEMA)
    assert empty == []
    assert not empty
    assert empty != [ROW]


def test_a_difference_names_what_is_missing_what_is_too_many_and_the_nearest_row() -> None:
    found = rows([{"user": "ann", "n": 2, "m": 1}, {"user": "cy", "n": 9, "m": 9}, {"user": "bob", "n": 1, "m": 1}])
    with pytest.raises(AssertionError) as caught:
        assert_same_rows(found, [{"user": "bob", "n": 1, "m": 1}, {"user": "ann", "n": 3, "m": 1}])
    assert str(caught.value).splitlines() == [
        "the rows differ: 1 as expected, 1 missing, 2 unexpected",
        "  missing     user='ann', n=3, m=1",
        "  unexpected  user='ann', n=2, m=1   (n was expected to be 3)",
        "  unexpected  user='cy', n=9, m=9",
    ]


def test_other_columns_are_told_apart_from_other_rows() -> None:
    assert differences(rows([{"user": "ann", "n": 2}]), [{"user": "ann", "m": 2}]) == [
        "the columns differ: a row has no n and has m",
        "  columns     user, n",
        "  the row     user='ann', m=2",
    ]
    assert differences([{"a": 1}], [{"a": 1}]) == []
    assert differences([{"a": 1}], [{"a": 2}])[0] == "the rows differ: 0 as expected, 1 missing, 1 unexpected"


def test_a_long_difference_is_cut() -> None:
    lines = differences(rows([{"n": n} for n in range(25)]), [])
    assert lines[-1] == "  unexpected  and 15 more"
    assert len(lines) == 12


def test_pytest_shows_the_difference_of_an_assertion() -> None:
    found = rows([{"n": 1}])
    expected = ["the rows differ: 0 as expected, 1 missing, 1 unexpected", "  missing     n=2"]
    assert (pytest_assertrepr_compare("==", found, [{"n": 2}]) or [])[:2] == expected
    assert (pytest_assertrepr_compare("==", [{"n": 2}], found) or [])[:2] == expected
    assert pytest_assertrepr_compare("==", 1, 2) is None
    assert pytest_assertrepr_compare("in", found, [{"n": 2}]) is None


def test_rows_show_themselves() -> None:
    found = Rows(pa.table({"user": ["ann"], "at": [datetime(2026, 1, 1, tzinfo=UTC)]}))
    assert repr(found) == "<1 rows\n  user='ann', at=2026-01-01 00:00:00Z>"
    assert (found.columns, found[0]["user"], found[0:], len(found)) == (("user", "at"), "ann", list(found), 1)
