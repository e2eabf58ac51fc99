"""The workloads' right answers, on inputs small enough to check by eye, and against DuckDB."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow.json import read_json

from benchmarks.engines.catalogue import workload, workloads
from benchmarks.engines.contract import CLOSING_MS, Results, Row
from benchmarks.engines.workloads.nexmark import MODEL, QUERIES, SOURCE, nexmark
from benchmarks.errors import BenchmarkError
from benchmarks.nexmark.generator import events
from lockstep.plan.schema import parse_schema
from tests.spark.nexmark_reference import Reference


def _event(key: str, at_ms: int, amount: int, seq: int = 0) -> Row:
    return {"seq": seq, "sent_us": at_ms * 1000, "at_ms": at_ms, "key": key, "amount": amount}


def test_words_are_counted_over_all_lines() -> None:
    lines = [{"seq": 0, "sent_us": 0, "text": "a b a"}, {"seq": 1, "sent_us": 0, "text": "b"}]
    found = workload("word_count").expected({"lines": lines})
    assert sorted((row["word"], row["count"]) for row in found) == [("a", 2), ("b", 2)]


def test_windows_hold_the_events_that_happened_in_them_whenever_they_came() -> None:
    rows = [_event("a", 2500, 5), _event("a", 1999, 7), _event("b", 2000, 1), _event("a", 2000, 1)]
    found = workload("tumbling_window").expected({"events": rows})
    assert {(row["key"], row["window_start_ms"], row["events"], row["total"]) for row in found} == {
        ("a", 1000, 1, 7),
        ("a", 2000, 2, 6),
        ("b", 2000, 1, 1),
    }


def test_closing_records_are_in_no_result() -> None:
    one = workload("tumbling_window")
    records = {"events": [_event("a", 1500, 5), *one.closing("events", 1, 9)]}
    assert one.expected(records) == [{"key": "a", "window_start_ms": 1000, "events": 1, "total": 5}]


def test_two_inputs_are_counted_together() -> None:
    found = workload("two_rates").expected({"fast": [_event("a", 1500, 5)], "slow": [_event("a", 1600, 6)]})
    assert found == [{"key": "a", "window_start_ms": 1000, "events": 2, "total": 11}]


def test_the_three_highest_amounts_are_added_up() -> None:
    rows = [_event("a", 0, amount) for amount in (4, 9, 1, 9, 5)]
    assert workload("keyed_function").expected({"events": rows}) == [{"key": "a", "events": 5, "best": 23}]


def test_only_documents_shared_with_everyone_make_an_alert() -> None:
    base = {"customer": 7, "document": "d", "seq": 0, "sent_us": 0}
    rows = [
        {**base, "at_ms": 1200, "shared_with": "public"},
        {**base, "at_ms": 1100, "shared_with": "public"},
        {**base, "at_ms": 1300, "shared_with": "team"},
    ]
    found = workload("saas_monitor").expected({"shared": rows})
    assert found == [{"customer": 7, "window_start_ms": 1000, "documents": 2, "newest_ms": 1200}]


def test_a_chain_passes_every_record_on_with_as_many_hops_as_steps() -> None:
    one = workload("chain_3")
    found = one.expected({"events": one.records("events", 5, 2, 0)})
    assert [(row["seq"], row["hops"]) for row in found] == [(5, 3), (6, 3)]


@pytest.mark.parametrize("name", [name for name, one in workloads().items() if not name.startswith("nexmark")])
def test_records_are_a_function_of_their_numbers_and_fit_the_schema(name: str) -> None:
    one = workload(name)
    for source in one.inputs:
        made = one.records(source.source, 10, 5, 1_700_000_000_000_000)
        assert made == one.records(source.source, 10, 5, 1_700_000_000_000_000)
        assert one.records(source.source, 12, 1, 1_700_000_000_000_000) == made[2:3]
        names = [field.name for field in parse_schema(source.schema).fields]
        assert all(list(row) == names for row in json.loads(json.dumps(made)))
        assert all(set(row) == set(names) for row in one.closing(source.source, 15, 0))


def test_workloads_with_windows_have_closing_records_for_every_key_of_every_source() -> None:
    for one in workloads().values():
        if one.results is Results.FINAL and not one.name.startswith("nexmark"):
            for source in one.inputs:
                last = one.closing(source.source, 3, 4)
                assert {row["at_ms"] for row in last} == {CLOSING_MS}
                assert len({row.get("key", row.get("customer")) for row in last}) == len(last) >= 250


def test_an_unknown_workload_is_named_with_those_there_are() -> None:
    with pytest.raises(BenchmarkError, match=r"BM01 there is no workload word_cout(.|\n)*word_count"):
        workload("word_cout")


EVENTS = 8_000


@pytest.fixture(scope="module")
def site() -> list[Row]:
    return nexmark("q0", quick=True).records(SOURCE, 0, EVENTS, 0)


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Reference]:
    first = datetime.fromtimestamp(MODEL.begin_us / 1e6, UTC)
    reference = Reference([(first, events(MODEL, 0, EVENTS))], first + timedelta(hours=1))
    yield reference
    reference.close()


@pytest.mark.parametrize("query", [query for query in QUERIES if query != "q6"])
def test_nexmark_answers_are_those_of_duckdb(query: str, site: list[Row], duckdb: Reference) -> None:
    one = nexmark(query, quick=True)
    wanted = [_plain(row) for row in duckdb.answer(query)]
    found = one.expected({SOURCE: site})
    assert len(wanted) > 0
    assert _bag(found, one.columns) == _bag(wanted, one.columns)


def _plain(row: Row) -> Row:
    """Times as milliseconds, under the names that they have here; decimals as text."""
    made: Row = {}
    for name, value in row.items():
        if isinstance(value, datetime):
            made[f"{name}_ms"] = value.replace(tzinfo=UTC).timestamp() * 1000 // 1
        else:
            made[name] = str(value) if type(value).__name__ == "Decimal" else value
    return made


def _bag(rows: list[Row], columns: tuple[str, ...]) -> Counter[tuple[object, ...]]:
    return Counter(
        tuple(round(value, 6) if isinstance(value := row[name], float) else value for name in columns) for row in rows
    )


def test_the_last_ten_of_a_seller_are_averaged_with_each_auction_that_ends() -> None:
    def made(seq: int, kind: int, name: str, at_ms: int, **fields: object) -> Row:
        return {"seq": seq, "sent_us": 0, "at_ms": at_ms, "event_type": kind, name: fields}

    rows = []
    for number in range(12):
        expires = f"1970-01-01T00:00:{20 + number}.000Z"
        rows.append(made(2 * number, 1, "auction", 0, id=number, seller=5, category=1, expires=expires))
        rows.append(made(2 * number + 1, 2, "bid", 10, auction=number, price=number * 10))
    found = nexmark("q6", quick=True).expected({SOURCE: rows})
    assert [row["auction"] for row in found] == list(range(12))
    assert found[0]["average"] == 0
    assert found[11]["average"] == sum(range(20, 120, 10)) / 10


def test_events_as_files_are_what_the_generator_made(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in nexmark("q0", quick=True).records(SOURCE, 0, 50, 1)))
    read = read_json(path)
    wanted = events(MODEL, 0, 50)
    assert read["event_type"].to_pylist() == [event["event_type"] for event in wanted]
    times = [datetime.fromtimestamp(at / 1000, UTC) for at in read["at_ms"].to_pylist()]
    assert times == [event["at"] for event in wanted]
