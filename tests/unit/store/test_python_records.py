"""Records in every form that people have them in, compared with the plain values they were made from."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lockstep.errors import StoreError
from lockstep.plan.schema import parse_schema
from lockstep.store.python_records import table_from_records
from lockstep.store.types import arrow_schema

SCHEMA = arrow_schema(parse_schema("user string, n bigint, share double, ok boolean, at timestamp"))
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PLAIN: list[dict[str, Any]] = [
    {"user": "ann", "n": 1, "share": 0.5, "ok": True, "at": NOON},
    {"user": "Žofie 🐌", "n": None, "share": None, "ok": None, "at": None},
    {"user": "", "n": -(2**62), "share": 3.0, "ok": False, "at": NOON + timedelta(microseconds=1)},
]


@dataclass
class Login:
    user: str | None
    n: int | None
    share: float | None
    ok: bool | None
    at: datetime | None


Tuple = namedtuple("Tuple", ["user", "n", "share", "ok", "at"])

FORMS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: PLAIN,
    "a generator": lambda: (row for row in PLAIN),
    "dataclasses": lambda: [Login(**row) for row in PLAIN],
    "named tuples": lambda: [Tuple(**row) for row in PLAIN],
    "a mix": lambda: [PLAIN[0], Login(**PLAIN[1]), Tuple(**PLAIN[2])],
    "a table": lambda: pa.Table.from_pylist(PLAIN, SCHEMA),
    "a batch": lambda: pa.RecordBatch.from_pylist(PLAIN, SCHEMA),
    "a reader": lambda: pa.Table.from_pylist(PLAIN, SCHEMA).to_reader(max_chunksize=1),
    "a table in another order": lambda: pa.Table.from_pylist(PLAIN, SCHEMA).select(["at", "ok", "n", "user", "share"]),
    "a table of another library's types": lambda: pa.Table.from_pylist(PLAIN, SCHEMA).cast(
        pa.schema(
            [
                ("user", pa.large_string()),
                ("n", pa.int64()),
                ("share", pa.float32()),
                ("ok", pa.bool_()),
                ("at", pa.timestamp("ns", "Europe/Berlin")),
            ]
        )
    ),
    "a dictionary": lambda: pa.Table.from_pylist(PLAIN, SCHEMA).set_column(
        0, "user", pa.array([row["user"] for row in PLAIN]).dictionary_encode()
    ),
    "pandas with its own types": lambda: pd.DataFrame(PLAIN).convert_dtypes(),
    "pandas with an index": lambda: pd.DataFrame(PLAIN, index=[7, 3, 9]).convert_dtypes(),
    "pandas with objects": lambda: pd.DataFrame(PLAIN, dtype=object),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_records_in_every_form_are_the_same_table(form: str) -> None:
    table = table_from_records(FORMS[form](), SCHEMA)
    assert table.schema == SCHEMA
    assert table.to_pylist() == PLAIN


def test_whole_numbers_that_pandas_made_floats_of_are_whole_again() -> None:
    frame = pd.DataFrame({"n": [1, None, 3]})
    assert frame["n"].dtype == "float64"
    assert table_from_records(frame, SCHEMA).column("n").to_pylist() == [1, None, 3]
    for floats in ([1, None, 3.5], [1.0, 3.0]):
        with pytest.raises(StoreError, match=r"record 1: .*should be bigint, but 1\.0"):
            table_from_records(pd.DataFrame({"n": floats}), SCHEMA)


def test_no_records_are_a_table_of_the_schema() -> None:
    nothings: list[Any] = [[], iter(()), pa.table({}), pd.DataFrame()]
    for nothing in nothings:
        table = table_from_records(nothing, SCHEMA)
        assert (table.num_rows, table.schema) == (0, SCHEMA)


def test_missing_columns_and_fields_are_null() -> None:
    for records in ([{"user": "ann"}], pa.table({"user": ["ann"]}), pd.DataFrame({"user": ["ann"]})):
        assert table_from_records(records, SCHEMA).to_pylist() == [{**dict.fromkeys(SCHEMA.names), "user": "ann"}]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([{"n": 1}, {"n": "2"}], 'record 2: field "n" should be bigint, but "2" (string) came'),
        ([{"n": 1}, 7], "record 2: should be struct<"),
        ([{"name": "ann"}], 'record 1: field "name" is not in the schema'),
        (pa.table({"n": pa.array([1, None, 2.5])}), 'record 1: field "n" should be bigint, but 1.0 came'),
        (pa.table({"n": pa.array([1, 2**63], pa.uint64())}), 'record 2: field "n" should be bigint, but 9223'),
        (pa.table({"ok": [1, 0]}), 'record 1: field "ok" should be boolean, but 1 came'),
        (pa.table({"user": ["a", "b"], "name": ["a", "b"]}), 'column "name" is not in the schema'),
        (pa.table([pa.array(["a"]), pa.array(["b"])], names=["user", "user"]), 'column "user" is there twice'),
        (pd.DataFrame({"n": [1, "two"]}), 'record 2: field "n" should be bigint, but "two" (string) came'),
        (pa.table({"at": pa.array([0, 2**60], pa.timestamp("us", "UTC"))}), "record 2: "),
        ({"user": "ann"}, "records came as one dict"),
        ('{"user": "ann"}', "records came as one str"),
    ],
)
def test_what_does_not_fit_is_named(records: Any, said: str) -> None:
    with pytest.raises(StoreError) as caught:
        table_from_records(records, SCHEMA)
    assert caught.value.code == "LS0403"
    assert caught.value.fact.startswith(said)


def test_a_column_that_lies_about_its_text_is_refused() -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    with pytest.raises(StoreError, match="LS0403 a table is not what it says it is"):
        table_from_records(pa.table({"user": broken}), SCHEMA)


def test_times_without_a_zone_are_utc_and_a_time_without_one_takes_none() -> None:
    schema = arrow_schema(parse_schema("at timestamp, wall timestamp_ntz, day date, cents decimal(10,2)"))
    plain = datetime(2026, 3, 1, 12)
    table = table_from_records(
        pa.table(
            {
                "at": pa.array([plain], pa.timestamp("ms")),
                "wall": pa.array([plain], pa.timestamp("s")),
                "day": pa.array([date(2026, 3, 1)], pa.date64()),
                "cents": pa.array([7], pa.int32()),
            }
        ),
        schema,
    )
    assert table.to_pylist() == [{"at": NOON, "wall": plain, "day": date(2026, 3, 1), "cents": Decimal("7.00")}]
    zoned = pa.table({"wall": pa.array([plain], pa.timestamp("us", "UTC"))})
    with pytest.raises(StoreError, match=r"record 1: .*timestamp_ntz"):
        table_from_records(zoned, schema)
    berlin = timezone(timedelta(hours=1))
    assert table_from_records([{"at": NOON.astimezone(berlin)}], schema).to_pylist()[0]["at"] == NOON


def test_nested_values_of_an_equal_type_are_taken() -> None:
    schema = arrow_schema(parse_schema("tags array<string>, sizes map<string,int>, at struct<x:int,y:int>"))
    rows = [{"tags": ["a", None], "sizes": [("a", 1)], "at": {"x": 1, "y": None}}, dict.fromkeys(schema.names)]
    assert table_from_records(pa.Table.from_pylist(rows, schema), schema).to_pylist() == rows
    dicts = [{**rows[0], "sizes": {"a": 1}}, rows[1]]
    assert table_from_records(dicts, schema).to_pylist() == rows
