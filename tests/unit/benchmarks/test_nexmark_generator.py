"""The Nexmark events follow the published model, and are the same wherever one begins to make them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest

from benchmarks.nexmark.generator import SCHEMA, Model, auctions, bids, events, people, table
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema

MODEL = Model(seed=3, events_per_s=1000)
MADE = events(MODEL, 0, 20_000)


def test_of_every_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    assert [event["event_type"] for event in MADE[:50]] == [0, 1, 1, 1, *[2] * 46]
    assert Counter(event["event_type"] for event in MADE) == {0: 400, 1: 1200, 2: 18_400}
    for event in MADE[:100]:
        given = [event[name] is not None for name in ("person", "auction", "bid")]
        assert given.index(True) == event["event_type"]
        assert given.count(True) == 1


def test_the_records_have_the_declared_schema() -> None:
    assert table(MODEL, 0, 10).schema == arrow_schema(parse_schema(SCHEMA))
    assert table(MODEL, 0, 0).num_rows == 0


@pytest.mark.parametrize(("first", "count"), [(0, 1), (999, 2), (1000, 1000), (1500, 2700), (40, 60)])
def test_events_are_a_function_of_seed_and_number(first: int, count: int) -> None:
    assert events(MODEL, first, count) == MADE[first : first + count]
    assert events(replace(MODEL, seed=4), first, count) != MADE[first : first + count]


def test_ids_count_up_and_events_come_at_a_steady_pace() -> None:
    assert [person["id"] for person in people(MADE)] == list(range(1000, 1400))
    assert [auction["id"] for auction in auctions(MADE)] == list(range(1000, 2200))
    assert {(after["at"] - before["at"]).total_seconds() for before, after in pairwise(MADE)} == {0.001}
    assert all(event["at"] == (event["person"] or event["auction"] or event["bid"])["at"] for event in MADE)


def test_half_of_the_bids_are_for_hot_auctions_and_three_quarters_by_hot_bidders() -> None:
    made = bids(MADE)
    hot_auctions = sum(bid["auction"] % 100 == 0 for bid in made) / len(made)
    hot_bidders = sum(bid["bidder"] % 100 == 1 for bid in made) / len(made)
    hot_sellers = sum(one["seller"] % 100 == 0 for one in auctions(MADE)) / 1200
    assert 0.49 < hot_auctions < 0.53
    assert 0.73 < hot_bidders < 0.78
    assert 0.72 < hot_sellers < 0.80


def test_bids_are_for_auctions_that_are_open_or_opened_soon() -> None:
    newest, early = 999, 0
    for event in MADE:
        if event["auction"]:
            newest = event["auction"]["id"]
        if event["bid"]:
            assert max(1000, newest - 200) <= event["bid"]["auction"] <= newest + 10
            early += event["bid"]["auction"] > newest
    assert 0 < early < 2000


def test_prices_are_spread_over_six_orders_of_magnitude_and_auctions_last_as_configured() -> None:
    prices = [bid["price"] for bid in bids(MADE)]
    magnitudes = Counter(len(str(price)) for price in prices)
    assert min(prices) >= 100
    assert max(prices) <= 100_000_000
    assert all(0.14 < magnitudes[digits] / len(prices) < 0.19 for digits in range(3, 9))
    lengths = [(one["expires"] - one["at"]).total_seconds() for one in auctions(MADE)]
    # 100 auctions in flight, three of them in 50 events, 1000 events a second.
    assert 1.5 < mean(lengths) < 1.85
    assert min(lengths) > 0
    assert {one["category"] for one in auctions(MADE)} == {10, 11, 12, 13, 14}


def test_sizes_are_about_the_configured_average() -> None:
    for kind, wanted, made in ((0, 200, people(MADE)), (1, 500, auctions(MADE)), (2, 100, bids(MADE))):
        texts = ["".join(value for value in one.values() if isinstance(value, str)) for one in made]
        assert wanted * 0.6 < mean(map(len, texts)) < wanted * 1.6, kind


def test_out_of_order_changes_the_order_within_groups_and_nothing_else() -> None:
    mixed = events(replace(MODEL, out_of_order=8), 0, 1000)
    times = [event["at"] for event in mixed]
    assert times != sorted(times)
    assert sorted(times) == [event["at"] for event in MADE[:1000]]
    for first in range(0, 1000, 8):
        assert sorted(times[first : first + 8]) == [event["at"] for event in MADE[first : first + 8]]
    assert sorted(person["id"] for person in people(mixed)) == list(range(1000, 1020))
