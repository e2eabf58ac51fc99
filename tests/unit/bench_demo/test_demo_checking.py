"""The demo's proof: it agrees with a second computation, and it finds everything that it is there to find."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from lockstep.bench.demo.checking import Alert, Comparison, Key, alerts_of, compare, expected_alerts
from lockstep.bench.demo.events import CUSTOMERS, DISORDER_US, SCHEMA, Event, closing_event, events
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema, batch_from_pylist

START_US = 1_700_000_000_123_456
BLOCKS = 200


@pytest.fixture(scope="module")
def sent() -> list[Event]:
    return list(events(7, START_US, BLOCKS))


@pytest.fixture
def expected(sent: list[Event]) -> dict[Key, Alert]:
    return expected_alerts(sent)


def test_the_expected_alerts_are_those_that_a_database_computes(sent: list[Event], expected: dict[Key, Alert]) -> None:
    shared = batch_from_pylist([event.record() for event in sent], arrow_schema(parse_schema(SCHEMA)))
    with duckdb.connect() as database:
        database.register("shared", pa.Table.from_batches([shared]))
        rows = database.sql(
            """SELECT customer, epoch_us(date_trunc('second', "at")), count(*), epoch_us(max("at"))
               FROM shared WHERE shared_with = 'public' GROUP BY ALL"""
        ).fetchall()
    assert {(row[0], row[1]): row[2:] for row in rows} == {
        key: (alert.documents, alert.newest_us) for key, alert in expected.items()
    }


def test_about_seven_percent_of_the_events_match_and_all_customers_take_part(sent: list[Event]) -> None:
    assert len(sent) == 10_000
    assert 0.06 < sum(event.shared_with == "public" for event in sent) / len(sent) < 0.08
    assert {event.customer for event in sent} == set(range(CUSTOMERS))


def test_events_come_out_of_order_and_the_closing_event_is_later_than_all(sent: list[Event]) -> None:
    times = [event.at_us for event in sent]
    assert times != sorted(times)
    newest = times[0]
    for at_us in times:
        assert at_us > newest - 2 * DISORDER_US
        newest = max(newest, at_us)
    closing = closing_event(START_US, BLOCKS)
    assert closing.at_us > newest + 5_000_000
    assert expected_alerts([closing]) == {}


def test_alerts_published_in_any_order_agree(expected: dict[Key, Alert]) -> None:
    found = compare(expected, reversed(expected.values()))
    assert found.agrees
    assert found.published == len(expected) > 100
    assert list(found.complaints()) == []


def test_a_lost_alert_is_found(expected: dict[Key, Alert]) -> None:
    lost, *rest = expected.values()
    found = compare(expected, rest)
    assert (found.agrees, found.lost, found.repeated, found.wrong) == (False, (lost,), (), ())
    assert "1 alerts lost" in next(found.complaints())


def test_an_alert_that_came_twice_is_found(expected: dict[Key, Alert]) -> None:
    alerts = list(expected.values())
    found = compare(expected, [*alerts, alerts[3]])
    assert (found.agrees, found.lost, found.repeated, found.wrong) == (False, (), (alerts[3],), ())


@pytest.mark.parametrize("field", ["documents", "newest_us", "window_end_us"])
def test_an_alert_with_a_wrong_value_is_found(expected: dict[Key, Alert], field: str) -> None:
    first, *rest = expected.values()
    changed = {field: getattr(first, field) + 1}
    found = compare(expected, [replace(first, **changed), *rest])
    assert (found.agrees, found.lost, found.repeated, len(found.wrong)) == (False, (), (), 1)


def test_an_alert_that_should_not_be_there_is_found(expected: dict[Key, Alert]) -> None:
    extra = Alert(customer=CUSTOMERS + 1, window_start_us=0, window_end_us=1_000_000, documents=1, newest_us=5)
    found = compare(expected, [*expected.values(), extra])
    assert not found.agrees
    assert "should not be there" in found.wrong[0]


def test_no_alerts_at_all_prove_nothing() -> None:
    found = compare({}, [])
    assert found == Comparison(expected=0, published=0)
    assert not found.agrees
    assert "never arrived" in next(found.complaints())


def test_the_rows_of_the_sink_become_alerts_with_times_in_microseconds() -> None:
    at = datetime(2025, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    second = at.replace(microsecond=0)
    micros = pa.timestamp("us", tz="UTC")
    table = pa.table(
        {
            "customer": pa.array([7], pa.int32()),
            "window_start": pa.array([second], micros),
            "window_end": pa.array([second.replace(second=1)], micros),
            "documents": pa.array([3], pa.int64()),
            "newest": pa.array([at], micros),
        }
    )
    start_us = int(second.timestamp()) * 1_000_000
    assert alerts_of(table) == [Alert(7, start_us, start_us + 1_000_000, 3, start_us + 250_000)]
