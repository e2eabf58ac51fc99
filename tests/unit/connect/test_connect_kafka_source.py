"""What of the Kafka source needs no broker: extents, values as tables, settings, the missing extra."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.connect.kafka.client import client_settings, library
from lockstep.connect.kafka.records import values_table
from lockstep.connect.kafka.specs import kafka
from lockstep.connect.kafka.watch import Topic
from lockstep.connect.protocols import Place
from lockstep.connect.registry import source_side
from lockstep.connect.sources.kafka import next_extent
from lockstep.credentials import without_secrets
from lockstep.errors import LockstepError

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def test_the_first_epoch_takes_partitions_up_and_reads_nothing() -> None:
    topic = Topic("id", {"0": 0, "1": 3}, {"0": 7, "1": 3})
    assert next_extent({}, topic, 100).positions == {"0": 0, "1": 3}
    assert not next_extent({}, topic, 100).is_all
    assert next_extent({}, topic, 100, from_end=True).positions == {"0": 7, "1": 3}


def test_a_partition_that_comes_later_is_read_from_its_beginning() -> None:
    topic = Topic("id", {"0": 0, "10": 0, "2": 0}, {"0": 9, "10": 5, "2": 1})
    found = next_extent({"0": 4}, topic, 100, from_end=True)
    assert (found.positions, found.records, found.new) == ({"0": 9, "2": 0, "10": 0}, 5, ("10", "2"))
    assert next_extent(found.positions, topic, 100).is_all


def test_an_end_before_the_position_moves_nothing() -> None:
    found = next_extent({"0": 9}, Topic("id", {"0": 0}, {"0": 4}), 100)
    assert (found.positions, found.records) == ({"0": 9}, 0)


@given(
    ends=st.dictionaries(st.integers(0, 20).map(str), st.integers(0, 500), min_size=1),
    records_max=st.integers(1, 300),
)
def test_epochs_read_every_offset_once(ends: dict[str, int], records_max: int) -> None:
    topic = Topic("id", dict.fromkeys(ends, 0), ends)
    since: dict[str, int] = {}
    for _ in range(2000):
        found = next_extent(since, topic, records_max)
        assert all(found.positions[name] >= position for name, position in since.items())
        since = found.positions
        if found.is_all:
            break
    assert since == ends


def test_slices_leave_out_partitions_that_were_just_taken_up(place: Place) -> None:
    side = source_side(kafka("t", servers="h:1", schema="n bigint"), place, "numbers")
    assert dict(side.start()) == {}
    assert side.slices({}, {"0": 5}) == []
    slices = side.slices({"0": 1, "2": 0}, {"0": 1, "2": 120_000, "10": 7})
    assert [(one.partition, one.start, one.end) for one in slices] == [
        ("2", 0, 40_000),
        ("2", 40_000, 80_000),
        ("2", 80_000, 120_000),
    ]


def parsed(values: list[bytes | None], format: Any, schema: pa.Schema = SCHEMA) -> tuple[list[Any], dict[int, str]]:
    bad: dict[int, str] = {}
    table = values_table(values, schema, format, bad.setdefault)
    assert table.schema == schema
    return table.to_pylist(), bad


def test_json_values_one_by_one_and_together() -> None:
    values = [b'{"n":1,"s":"a"}', b"", b'{\n"n": 2\n}\n', None, b'{"n": "x"}', b"{}{}", b"  ", b'{"s":"a\nb"}', b"[1]"]
    rows, bad = parsed(values, "json")
    assert rows == [{"n": 1, "s": "a"}, {"n": 2, "s": None}, {"n": None, "s": None}]
    assert sorted(bad) == [1, 4, 5, 6, 7, 8]
    assert bad[1] == "its value is empty"


def test_csv_values_may_hold_line_ends_in_quotes() -> None:
    values = [b"1,a", b'2,"b\nc"', b"x,y", b'3,"', b'4,d"', None, b"5,e\n", b"", b"6,f"]
    rows, bad = parsed(values, "csv")
    assert [row["n"] for row in rows] == [1, 2, 4, None, 5, 6]
    assert rows[1]["s"] == "b\nc"
    assert sorted(bad) == [2, 3, 7]


def test_raw_values_are_bytes_or_text() -> None:
    assert parsed([b"\xff", None], "raw", pa.schema([("v", pa.binary())])) == ([{"v": b"\xff"}, {"v": None}], {})
    rows, bad = parsed([b"a", b"\xff", b"b"], "raw", pa.schema([("v", pa.string())]))
    assert [row["v"] for row in rows] == ["a", "b"]
    assert list(bad) == [1]


VALUES = st.lists(
    st.sampled_from([b'{"n":1}', b'{"n":2,"s":"x"}', b"{", b"", b"\n", b'{"n":\n3}', b"1,a", b'1,"', b'"', b"2,", None])
)


@given(values=VALUES, cut=st.integers(0, 20), format=st.sampled_from(["json", "csv"]))
def test_what_becomes_of_a_value_does_not_depend_on_its_batch(values: Any, cut: int, format: Any) -> None:
    rows, bad = parsed(values, format)
    first, bad_first = parsed(values[:cut], format)
    second, bad_second = parsed(values[cut:], format)
    moved = {min(cut, len(values)) + index: reason for index, reason in bad_second.items()}
    assert (rows, bad) == (first + second, bad_first | moved)


def test_secrets_come_from_the_environment_and_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "correct horse")
    spec = kafka("t", servers="h:1", options={"sasl.password": "env:KAFKA_PASSWORD", "sasl.username": "me"})
    assert client_settings(spec)["sasl.password"] == "correct horse"
    assert "correct horse" not in str(spec.to_json()) + repr(spec) + without_secrets("no correct horse here")
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(LockstepError, match="KAFKA_PASSWORD"):
        client_settings(spec)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(LockstepError, match=r"LS0523") as caught:
        library()
    assert "lockstep[kafka]" in caught.value.hint
