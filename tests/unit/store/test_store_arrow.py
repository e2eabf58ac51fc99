"""Records against schemas: the two ways of reading JSON agree, and what is refused is refused with the reason."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.errors import StoreError
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import _line_by_line, _quickly, arrow_schema, batch_from_json_lines, batch_from_pylist
from lockstep.store.types import arrow_type, spark_type

TYPES = [
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "array<bigint>",
    "array<string>",
    "struct<x:bigint,y:string>",
    "array<struct<x:double>>",
]

json_texts = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
        max_leaves=4,
    ).map(json.dumps),
    st.sampled_from(
        [
            *("1.0", "1e3", "-0", "-0.0", "1e999", "1e39", "3.4028236e38", "1e-400", "NaN", "-Inf", "Infinity", "01"),
            *("127", "128", "-129", "9223372036854775807", "9223372036854775808", "1" * 40, '"5"', '"true"', "True"),
            *('"2024-02-29T23:59:59Z"', '"2024-02-30T00:00:00Z"', '"2024-01-01"', '"2024-01-01 00:00"', '"0000-01-01"'),
            *('"2024-01-01T00:00:00.123456+02:00"', '"2024-01-01T00:00:00.1234567Z"', '"2024-01-01T00:00:00-0130"'),
            *('"2024-01-01T24:00:00Z"', '"2024-01-01T00:00:60Z"', '"2024-01-01T00:00:00+99:00"', '"2024-01-01Z"'),
            *('"0001-01-01T00:00:00+02:00"', '"9999-12-31T23:59:59.999999-01:00"', '"2024-01-01T00:00:00Z\\n"'),
            *(
                '"\\ud800"',
                '"\\ud83d\\ude00"',
                '"\\u0000"',
                '"a\tb"',
                '"\\x"',
                "[1,]",
                "{}",
                '{"x":1,"x":2}',
                "1}{",
                "1 ",
            ),
        ]
    ),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30))])).map(
        lambda at: json.dumps(at.isoformat())
    ),
)
lines_of_a = st.lists(
    json_texts.map(lambda text: f'{{"a":{text}}}')
    | json_texts
    | st.sampled_from(["", "  ", "{}", '{"a":1,"a":1}', '{"b":1}', '{"a":null}', '{"a":', "1}", '{"a":1}{"a":2}']),
    min_size=1,
    max_size=4,
)


def refusal(lines: list[bytes], schema: pa.Schema) -> pa.RecordBatch | StoreError:
    try:
        return _line_by_line(lines, schema, 1)
    except StoreError as error:
        return error


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(TYPES), lines_of_a)
@example("bigint", ['{"a":1}{"a":2}', '{"a":', "3}"])
@example("float", ['{"a":0.10000000149011612}', '{"a":-0}'])
@example("double", ['{"a":NaN}'])
def test_the_quick_way_never_takes_what_the_slow_way_refuses_and_reads_the_same(kind: str, texts: list[str]) -> None:
    schema = arrow_schema(parse_schema(f"a {kind}"))
    lines = [text.encode("utf-8", "surrogatepass") for text in texts]
    quick = _quickly(lines, schema)
    if quick is not None:
        slow = refusal(lines, schema)
        assert isinstance(slow, pa.RecordBatch), f"the quick way read {quick.to_pylist()}, the slow way says {slow}"
        assert repr(quick.to_pylist()) == repr(slow.to_pylist())


def test_the_quick_way_is_taken_for_ordinary_records() -> None:
    schema = arrow_schema(parse_schema("s string, b boolean, n int, f float, t timestamp, u timestamp_ntz, d date"))
    line = b'{"s":"x","b":true,"n":1,"f":1.5,"t":"2024-01-01T00:00:00","u":"2024-01-01 00:00:00.5","d":"2024-01-01"}'
    zoned = line.replace(b'00:00:00",', b'00:00:00+01:00",', 1)
    quick = _quickly([line, b"", zoned], schema)
    assert quick is not None
    assert quick.equals(_line_by_line([line, zoned], schema, 1))
    assert quick.column("t").to_pylist() == [datetime(2024, 1, 1, tzinfo=UTC), datetime(2023, 12, 31, 23, tzinfo=UTC)]


@given(st.lists(st.fixed_dictionaries({"a": st.integers(-(2**63), 2**63 - 1), "b": st.text()}), max_size=20))
def test_json_and_python_dicts_give_the_same_batch(records: list[dict[str, Any]]) -> None:
    schema = parse_schema("a bigint, b string")
    lines = [json.dumps(record).encode() for record in records]
    assert batch_from_json_lines(lines, schema).equals(batch_from_pylist(records, schema))


@given(st.datetimes(timezones=st.just(timezone(timedelta(hours=5, minutes=45))) | st.just(UTC)))
def test_times_are_kept_to_the_microsecond_in_utc(at: datetime) -> None:
    try:
        expected = at.astimezone(UTC)
    except OverflowError:
        return
    schema = parse_schema("t timestamp")
    for batch in (
        batch_from_json_lines([json.dumps({"t": at.isoformat()}).encode()], schema),
        batch_from_pylist([{"t": at}], schema),
    ):
        assert batch.column("t").to_pylist() == [expected]


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-10000, max_value=10000))
def test_decimals_are_kept_exactly_or_refused(number: Decimal) -> None:
    schema = parse_schema("n decimal(6,2)")
    fits = number == number.quantize(Decimal("0.01")) and abs(number) < 10000
    for text in (f'{{"n":{number}}}', f'{{"n":"{number}"}}'):
        if fits:
            assert batch_from_json_lines([text], schema).column("n").to_pylist() == [number]
        else:
            with pytest.raises(StoreError, match="LS0403"):
                batch_from_json_lines([text], schema)


def test_a_decimal_that_arrow_would_wrap_around_is_refused() -> None:
    with pytest.raises(StoreError, match=r"would not fit exactly"):
        batch_from_json_lines([b'{"n":' + b"9" * 38 + b"}"], parse_schema("n decimal(38,2)"))
    with pytest.raises(StoreError, match=r"LS0403"):
        batch_from_json_lines([b'{"n":1e99999999999999999999}'], parse_schema("n decimal(38,2)"))


@pytest.mark.parametrize(
    ("kind", "line", "fact"),
    [
        ("boolean", '{"a":"yes"}', 'line 8: field "a" should be boolean, but "yes" (string) came'),
        ("bigint", '{"a":1.5}', 'line 8: field "a" should be bigint, but 1.5 came'),
        ("tinyint", '{"a":300}', 'line 8: field "a" should be tinyint, but 300 came'),
        ("bigint", '{"a":true}', 'line 8: field "a" should be bigint, but true (boolean) came'),
        ("string", '{"a":5}', 'line 8: field "a" should be string, but 5 came'),
        ("double", '{"a":"1.5"}', 'line 8: field "a" should be double, but "1.5" (string) came'),
        ("timestamp", '{"a":1700000000}', 'line 8: field "a" should be timestamp, but 1700000000 came'),
        ("timestamp_ntz", '{"a":"2024-01-01T00:00:00Z"}', "should be timestamp_ntz"),
        ("string", '{"b":5}', 'line 8: field "b" is not in the schema'),
        ("string", '{"a":"x","a":"x"}', 'line 8: field "a" is there twice'),
        ("string", "[1]", "line 8: is not an object in braces"),
        ("string", '{"a":', "line 8: is not JSON"),
        ("double", '{"a":NaN}', "line 8: is not JSON"),
        ("binary", '{"a":"%"}', 'line 8: field "a" should be binary'),
        ("array<struct<x:int>>", '{"a":[{"x":1},{"x":"2"}]}', 'line 8: field "a.1.x" should be int, but "2" (string)'),
        ("map<string,int>", '{"a":{"k":"v"}}', 'line 8: field "a.k" should be int'),
    ],
)
def test_a_refusal_names_line_field_what_came_and_what_was_expected(kind: str, line: str, fact: str) -> None:
    good = b"{}"
    with pytest.raises(StoreError) as caught:
        batch_from_json_lines([good, b"", line.encode()], parse_schema(f"a {kind}"), first_line_number=6)
    assert caught.value.code == "LS0403"
    assert fact in caught.value.fact
    assert f"a {kind}" in caught.value.hint


def test_an_unknown_field_is_refused_with_the_fields_there_are() -> None:
    with pytest.raises(StoreError) as caught:
        batch_from_json_lines([b'{"usr":"ann"}'], parse_schema("user string, ok boolean"))
    assert caught.value.why == "the fields are: user, ok."


def test_bad_bytes_and_half_characters_are_refused() -> None:
    schema = parse_schema("a string")
    for line in (b'{"a":"\xff"}', b'{"a":"\\ud800"}', '{"a":"\ud800"}'):
        with pytest.raises(StoreError, match="LS0403"):
            batch_from_json_lines([line], schema)


def test_a_million_brackets_are_refused_without_a_crash() -> None:
    with pytest.raises(StoreError, match="nested too deeply"):
        batch_from_json_lines([b'{"a":' + b"[" * 1_000_000], parse_schema("a string"))


def test_no_lines_give_an_empty_batch_of_the_schema() -> None:
    batch = batch_from_json_lines([b"", b" \r\n"], parse_schema("a string"))
    assert (batch.num_rows, batch.schema.names) == (0, ["a"])


def test_nested_values_maps_and_bytes_come_through() -> None:
    schema = parse_schema("m map<string,array<int>>, k map<bigint,string>, b binary, s struct<x:date,y:decimal(4,1)>")
    line = b'{"m":{"a":[1,null]},"k":{"-5":"x"},"b":"aGk=","s":{"x":"2024-02-29","y":1.5}}'
    assert batch_from_json_lines([line], schema).to_pylist() == [
        {"m": [("a", [1, None])], "k": [(-5, "x")], "b": b"hi", "s": {"x": date(2024, 2, 29), "y": Decimal("1.5")}}
    ]


def test_python_values_are_checked_like_json() -> None:
    schema = parse_schema("n bigint, x double, t timestamp, b binary")
    good = {"n": 3, "x": 2, "t": datetime(2024, 1, 1), "b": b"\x00"}
    assert batch_from_pylist([good], schema).to_pylist() == [{**good, "x": 2.0, "t": datetime(2024, 1, 1, tzinfo=UTC)}]
    for wrong in ({"n": True}, {"n": "3"}, {"x": "2"}, {"t": 5}, {"t": date(2024, 1, 1)}, {"b": 1}, {"y": 1}):
        with pytest.raises(StoreError, match="LS0403 record 2"):
            batch_from_pylist([good, wrong], schema)


@pytest.mark.parametrize("kind", [*TYPES, "binary", "decimal(10,2)", "map<string,array<struct<a:int,b:date>>>"])
def test_types_survive_the_way_to_arrow_and_back(kind: str) -> None:
    assert spark_type(arrow_type(kind)) == kind


def test_a_struct_field_in_back_quotes_keeps_its_name() -> None:
    assert arrow_type("struct<`a:b,c`:int,`d``e`:string>") == pa.struct({"a:b,c": pa.int32(), "d`e": pa.string()})


def test_a_type_without_an_arrow_form_is_refused() -> None:
    with pytest.raises(StoreError, match="LS0415"):
        arrow_type("interval")
