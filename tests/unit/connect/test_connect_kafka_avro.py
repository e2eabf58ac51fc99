"""Values in Avro: columns from schemas, values against plain Python, and bytes that are wrong."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.connect.kafka import avro
from lockstep.connect.kafka.avro_bytes import strict_reader
from lockstep.connect.kafka.avro_schema import avro_record
from lockstep.connect.kafka.specs import KafkaSource, kafka
from lockstep.errors import LockstepError
from lockstep.store.values import Unfit

EPOCH = datetime(1970, 1, 1)
ORDER = {
    "type": "record",
    "name": "order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "ok", "type": "boolean"},
        {"name": "share", "type": "float"},
        {"name": "price", "type": "double"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": ["bytes", "null"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {
            "name": "tax",
            "type": {"type": "fixed", "name": "Tax", "size": 16, "logicalType": "decimal", "precision": 38},
        },
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "sizes", "type": {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}},
        {
            "name": "buyer",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Buyer",
                    "fields": [
                        {"name": "name", "type": "string"},
                        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
                        {"name": "state", "type": "shop.State"},
                    ],
                },
            ],
        },
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
    ],
}
NOW = datetime(2026, 3, 1, 12, 30, 15, 123_000, tzinfo=UTC)
ROW = {
    "id": 2**63 - 1,
    "count": -(2**31),
    "ok": True,
    "share": 0.5,
    "price": -0.1,
    "item": "schön 🙂",
    "raw": b"\x00\xff",
    "state": "PAID",
    "before": None,
    "day": date(1, 1, 1),
    "at": NOW,
    "seen": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "local": datetime(1969, 12, 31, 23, 59, 59, 999_999),
    "total": Decimal("-99999999.99"),
    "tax": Decimal("9" * 38),
    "tags": ["a", None, ""],
    "sizes": {"x": NOW, "": datetime(1, 1, 1, tzinfo=UTC)},
    "buyer": {"name": "ann", "born": date(2000, 2, 29), "state": "NEW"},
    "hash": b"ab",
    "uuid": "not looked at",
    "clock": 86_399_999_999,
}


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
    return {"type": "record", "name": "r", "fields": fields}


def source(schema: Any, /, **more: Any) -> KafkaSource:
    return kafka("t", servers="h:1", format="avro", avro_schema=json.dumps(schema), **more)


def written(schema: Any, value: Any) -> bytes:
    """The bytes of fastavro's writer, which does the logical types its own way."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def parsed(schema: Any, values: list[bytes | None], /, **more: Any) -> tuple[list[Any], dict[int, str]]:
    spec = source(schema, **more)
    bad: dict[int, str] = {}
    table = avro.avro_values(spec.avro_schema, spec.avro_header, spec.values).table(values, bad.setdefault)
    assert tuple(table.column_names) == spec.values.names
    return table.to_pylist(), bad


def as_arrow_tells(value: Any) -> Any:
    """Arrow's Python form of a map is a list of pairs."""
    return {**value, "sizes": list(value["sizes"].items())}


def test_columns_follow_from_the_schema() -> None:
    assert source(ORDER).schema.ddl() == (
        "id bigint, count int, ok boolean, share float, price double, item string, raw binary, state string, "
        "before string, day date, at timestamp, seen timestamp, local timestamp_ntz, total decimal(10,2), "
        "tax decimal(38,0), tags array<string>, sizes map<string,timestamp>, "
        "buyer struct<name:string,born:date,state:string>, hash binary, uuid string, clock bigint"
    )


def test_values_are_those_that_were_written_extremes_and_nulls_too() -> None:
    nulls = {**ROW, "item": None, "raw": None, "seen": None, "buyer": None, "tags": [], "sizes": {}, "before": "NEW"}
    schema = {**ORDER, "fields": [each for each in ORDER["fields"] if each["name"] != "clock"]}  # type: ignore[index]
    rows = [{name: each for name, each in row.items() if name != "clock"} for row in (ROW, nulls)]
    values = [written(schema, row) for row in rows]
    assert parsed(schema, [values[0], None, values[1]]) == (
        [as_arrow_tells(rows[0]), dict.fromkeys(rows[0]), as_arrow_tells(rows[1])],
        {},
    )


def test_bytes_by_hand_are_read_as_the_specification_says() -> None:
    """Zigzag: 0, -1, 1, -64, 64 are 00, 01, 02, 7f, 80 01; an array in two blocks, the second with its size."""
    assert parsed(record("long", "long"), [b"\x7f\x80\x01"]) == ([{"f0": -64, "f1": 64}], {})
    array = {"type": "array", "items": "long"}
    assert parsed(record(array), [b"\x02\x06" + b"\x03\x04\x01\x02" + b"\x00"]) == ([{"f0": [3, -1, 1]}], {})
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    assert parsed(record(millis), [b"\x01"])[0][0]["f0"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    assert parsed(record(decimal), [b"\x04\xff\x85"]) == ([{"f0": Decimal("-1.23")}], {})
    assert parsed(record(["null", "string"], "boolean"), [b"\x02\x06foo\x01"]) == ([{"f0": "foo", "f1": True}], {})


ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}
DATE = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
SMALL = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
MAP = {"type": "map", "values": "long"}
LONGS = {"type": "array", "items": "long"}
MALFORMED = [
    ("long", b"", "no bytes are left"),
    ("long", b"\x02\x02", "bytes, and 1 more follow"),
    ("long", b"\xff" * 11 + b"\x01", "does not end"),
    ("long", b"\xff" * 9 + b"\x7f", "more than 64 bits"),
    ("int", b"\x80\x80\x80\x80\x10", "should be an int of 32 bits, and is 2147483648"),
    ("boolean", b"\x02", "should be true"),
    ("boolean", b"", "should have 1 bytes"),
    ("float", b"abc", "should have 4 bytes, and 3 are left"),
    ("double", b"abc", "should have 8 bytes, and 3 are left"),
    ("string", b"\x14abc", "should have 10 bytes, and 3 are left"),
    ("string", b"\x03abc", "should have -2 bytes"),
    ("string", b"\x02\xff", "is not UTF-8"),
    ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc", "should have 9223372036854775807 bytes"),
    ({"type": "fixed", "name": "x", "size": 4}, b"abc", "should have 4 bytes"),
    (ENUM, b"\x06", "has symbol 3 of an enum of 3"),
    (ENUM, b"\x01", "has symbol -1 of an enum of 3"),
    (["null", "long"], b"\x04\x02", "has branch 2 of a union of 2"),
    (["null", "long"], b"\x01\x02", "has branch -1 of a union of 2"),
    (LONGS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc", "elements"),
    (LONGS, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x04\x00", "elements"),
    (LONGS, b"\x02\x02", "no bytes are left"),
    (MAP, b"\x04\x02a\x02\x02a\x04\x00", 'the key "a" twice'),
    (DATE, b"\xfe\xff\xff\xff\x0f", "outside the years 1 to 9999"),
    (MICROS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "outside the years 1 to 9999"),
    (MILLIS, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "outside the years 1 to 9999"),
    (SMALL, b"\x02\x64", "should be a decimal of 2 digits"),
    (SMALL, b"\x00", "should be a decimal of 2 digits"),
]


@pytest.mark.parametrize(("type_", "data", "reason"), MALFORMED, ids=[reason for _, _, reason in MALFORMED])
def test_a_malformed_value_is_set_aside_alone(type_: Any, data: bytes, reason: str) -> None:
    is_union = isinstance(type_, list)
    schema = record("string", type_ if is_union else ["null", type_])
    well = written(schema, {"f0": "x", "f1": None})
    rows, bad = parsed(record("string", type_), [b"\x02a" + data])
    assert rows == []
    assert reason in bad[0]
    rows, bad = parsed(schema, [well, b"\x02a" + (b"" if is_union else b"\x02") + data, well])
    assert rows == [{"f0": "x", "f1": None}] * 2
    assert list(bad) == [1]
    assert reason in bad[1]
    assert 'field "f1"' in bad[1] or "more follow" in bad[1]


def test_numbers_that_are_longer_than_needed_are_read() -> None:
    """Avro does not forbid them, and fastavro would write them otherwise."""
    assert parsed(record("long"), [b"\x82\x80\x00"]) == ([{"f0": 1}], {})
    assert parsed(record("float"), [struct.pack("<I", 0x7FA00001)])[1] == {}


def test_the_reason_is_the_same_every_time() -> None:
    """The words of fastavro have an address in memory in them."""
    assert parsed(record("boolean"), [b""]) == parsed(record("boolean"), [b""])


def test_confluents_header_is_skipped_and_has_to_be_there() -> None:
    well = written(record("long"), {"f0": 7})
    values = [b"\x00\x00\x00\x00\x01" + well, well, b"\x01\x00\x00\x00\x01" + well, b"", None, b"\x00\x00\x00\x00\x02"]
    rows, bad = parsed(record("long"), values, avro_header="confluent")
    assert rows == [{"f0": 7}, {"f0": None}]
    assert sorted(bad) == [1, 2, 3, 5]
    assert "Confluent's header" in bad[1]


def test_schema_may_name_some_of_the_fields_in_any_order() -> None:
    data = written(record("long", "string", MICROS), {"f0": 1, "f1": "a", "f2": NOW})
    assert parsed(record("long", "string", MICROS), [data], schema="f1 string, f0 bigint") == (
        [{"f1": "a", "f0": 1}],
        {},
    )


SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(st.characters(exclude_categories=["Cs"]))),
    ("bytes", st.binary()),
    (DATE, st.dates()),
    (MICROS, st.datetimes(timezones=st.just(UTC))),
    (
        MILLIS,
        st.integers(-62_135_596_800_000, 253_402_300_799_999).map(
            lambda ms: EPOCH.replace(tzinfo=UTC) + timedelta(milliseconds=ms)
        ),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 5},
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-5)),
    ),
]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text("abc", max_size=3)
    arrays = inner.map(lambda of: ({"type": "array", "items": of[0]}, st.lists(of[1], max_size=3)))
    maps = inner.map(lambda of: ({"type": "map", "values": of[0]}, st.dictionaries(keys, of[1], max_size=3)))
    nullable = inner.filter(lambda of: not isinstance(of[0], list)).map(
        lambda of: (["null", of[0]], st.none() | of[1]),
    )
    return arrays | maps | nullable


TYPES = st.recursive(st.sampled_from(SIMPLE), nested, max_leaves=4)


@st.composite
def schemas_with_rows(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    types = draw(st.lists(TYPES, min_size=1, max_size=4))
    rows = st.fixed_dictionaries({f"f{at}": values for at, (_, values) in enumerate(types)})
    return record(*[type_ for type_, _ in types]), draw(st.lists(rows, max_size=4))


def plain(type_: Any, value: Any) -> Any:
    """What Arrow answers for a value of Python's."""
    if value is None:
        return None
    if isinstance(type_, list):
        return plain(type_[1], value)
    if isinstance(type_, dict) and type_["type"] == "map":
        return [(key, plain(type_["values"], each)) for key, each in value.items()]
    if isinstance(type_, dict) and type_["type"] == "array":
        return [plain(type_["items"], each) for each in value]
    return value


@given(case=schemas_with_rows())
def test_what_fastavro_writes_comes_back(case: tuple[Any, list[Any]]) -> None:
    schema, rows = case
    types = {each["name"]: each["type"] for each in schema["fields"]}
    expected = [{name: plain(types[name], value) for name, value in row.items()} for row in rows]
    assert parsed(schema, [written(schema, row) for row in rows]) == (expected, {})


MIXED = record("boolean", ["null", "string"], ENUM, LONGS, MAP, "int")


@given(
    start=st.fixed_dictionaries(
        {
            "f0": st.booleans(),
            "f1": st.none() | st.text("ab"),
            "f2": st.sampled_from("ABC"),
            "f3": st.lists(st.integers(-9, 9)),
            "f4": st.dictionaries(st.text("ab"), st.integers(-9, 9)),
            "f5": st.integers(-9, 9),
        }
    ),
    at=st.integers(0, 60),
    instead=st.binary(max_size=3),
    removed=st.integers(0, 3),
)
def test_bytes_that_were_hurt_are_judged_as_the_strict_reader_judges_them(
    start: dict[str, Any], at: int, instead: bytes, removed: int
) -> None:
    well = written(MIXED, start)
    hurt = well[:at] + instead + well[at + removed :]
    rows, bad = parsed(MIXED, [well, hurt, well])
    assert (len(rows), list(bad)) in ((3, []), (2, [1]))
    try:
        strictly = strict_reader(avro_record(json.dumps(MIXED)))(hurt)
    except Unfit:
        assert bad
    else:
        assert rows[1] == {**strictly, "f4": list(strictly["f4"].items())}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "it is not JSON"),
        ('"long"', "has to be a record"),
        (json.dumps(record(["long", "string"])), "f0.*null and one other type"),
        (json.dumps(record(["null", "long", "string"])), "f0.*null and one other type"),
        (json.dumps(record("null")), "f0.*always null"),
        (json.dumps(record(["null"])), "f0.*null and one other type"),
        (json.dumps(record("lnog")), "f0.*lnog"),
        (json.dumps(record(["null", "r"])), "f0.*holds itself"),
        (json.dumps(record({"type": "array", "items": {"type": "map", "values": "r"}})), r"f0\.items\.values"),
        (json.dumps(record()), "no fields"),
        (json.dumps(record({"type": "fixed", "name": "x", "size": 0})), "size of a fixed"),
        (json.dumps(record({"type": "enum", "name": "x", "symbols": []})), "symbols of an enum"),
        (json.dumps(record({"type": "array"})), 'no "items"'),
        (json.dumps(record({"type": "bytes", "logicalType": "decimal", "precision": 39})), "precision 39"),
        (json.dumps(record({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3})), "scale 3"),
        (json.dumps(record(ENUM, ENUM)), "defined twice"),
    ],
)
def test_what_no_column_can_hold_is_refused_when_it_is_written(schema: str, reason: str) -> None:
    with pytest.raises(LockstepError, match=rf"(?s)LS0529.*{reason}"):
        kafka("t", servers="h:1", format="avro", avro_schema=schema)


@pytest.mark.parametrize("columns", ["f0 int", "other bigint", "f0 bigint, f1 array<int>"])
def test_a_schema_that_does_not_fit_is_refused(columns: str) -> None:
    with pytest.raises(LockstepError, match="LS0529 schema= does not fit the Avro schema"):
        source(record("long", LONGS), schema=columns)


def test_the_plan_has_the_avro_schema_whatever_its_white_space() -> None:
    text = json.dumps(ORDER)
    spec = kafka("t", servers="h:1", format="avro", avro_schema=text)
    assert json.loads(spec.to_json()["avro_schema"]) == ORDER
    assert kafka("t", servers="h:1", format="avro", avro_schema=json.dumps(ORDER, indent=4)) == spec
    other = kafka("t", servers="h:1", format="avro", avro_schema=text.replace('"PAID"', '"SOLD"'))
    assert (other.schema, other.to_json() == spec.to_json()) == (spec.schema, False)
    assert not any(name.startswith("avro") for name in kafka("t", servers="h:1", schema="n bigint").to_json())
